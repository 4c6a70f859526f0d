"""A skipped test is told with its reason, and where nothing may be missing it is a failure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Each runs pytest in a process of its own, with all that it loads.
pytestmark = pytest.mark.long

SKIPPED = "import pytest\ndef test_one():\n    pytest.skip('no second disk here')\n"
SKIPPED_FILE = "import pytest\npytest.skip('no Java here', allow_module_level=True)\n"
MARKED = "import pytest\n@pytest.mark.skip(reason='no second disk here')\ndef test_one(): pass\n"
OPTIONAL = (
    "import pytest\n"
    "@pytest.mark.optional_elsewhere('needs a kernel module')\n"
    "def test_one():\n    pytest.skip('no second disk here')\n"
)
EXPECTED_FAILURE = (
    "import pytest\n@pytest.mark.xfail(reason='known')\ndef test_one():\n    assert False\n"
)


@pytest.mark.parametrize("source", [SKIPPED, MARKED, SKIPPED_FILE])
def test_a_skip_fails_only_where_everything_is_required(tmp_path: Path, source: str) -> None:
    """On a laptop it is a line in the summary; in CI the run is red, and says the reason."""
    lenient = _run(tmp_path, source, REQUIRE_ALL="0")
    strict = _run(tmp_path, source, REQUIRE_ALL="1")

    assert "SKIPPED [1]" in lenient.stdout
    assert "1 skipped" in lenient.stdout
    assert strict.returncode != 0
    assert "REQUIRE_ALL=1, and this was skipped" in strict.stdout
    assert "here" in strict.stdout


@pytest.mark.parametrize("source", [OPTIONAL, EXPECTED_FAILURE])
def test_what_may_be_missing_is_no_failure(tmp_path: Path, source: str) -> None:
    """A test that says why it is optional, or is known to fail, does not stop CI."""
    assert _run(tmp_path, source, REQUIRE_ALL="1").returncode == 0


def test_a_failure_shows_the_log_of_its_server(tmp_path: Path) -> None:
    """Nobody has to run a failed test again to see what the server said."""
    run = _run(tmp_path, "async def test_one(nats_server):\n    assert False\n")

    assert run.returncode == 1
    assert "Server is ready" in run.stdout


def test_a_hang_is_a_failure_with_a_traceback(tmp_path: Path) -> None:
    """A test that waits for ever ends, and shows the line where it stood."""
    source = "import threading\ndef test_one():\n    threading.Event().wait()\n"

    run = _run(tmp_path, source, "--timeout=0.5")

    assert run.returncode == 1
    assert "threading.Event().wait()" in run.stdout
    assert "Timeout" in run.stdout


def _run(
    folder: Path, source: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    tests = folder / "tests"
    shutil.copytree(ROOT / "tests" / "support", tests / "support", dirs_exist_ok=True)
    shutil.copy(ROOT / "tests" / "conftest.py", tests)
    shutil.copy(ROOT / "pyproject.toml", folder)
    (tests / "unit").mkdir(exist_ok=True)
    (tests / "unit" / "test_sample.py").write_text(source)
    # In the folder that all runs share, the end of a run removes what former ones left: minutes.
    own = ("-p", "no:cacheprovider", "--basetemp", str(folder / "temporary"))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *own, *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
