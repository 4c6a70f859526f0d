"""Connections with the oldest nats-py that the project says it takes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 400
INSTALL_WITHIN_S = 400
LOCK = ROOT / "requirements" / "oldest-nats-py.txt"
TESTS = ("tests/unit/test_core_nats_session.py", "tests/live/test_core_nats_connection.py")

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(TIMEOUT_S + INSTALL_WITHIN_S),
    pytest.mark.optional_elsewhere("needs a package index"),
]


def oldest() -> str:
    """Return the first version that pyproject.toml allows."""
    found = re.search(r'"nats-py >=([0-9.]+),<3"', (ROOT / "pyproject.toml").read_text())
    assert found is not None
    return f"{found.group(1)}.0"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder with that version, and nothing else."""
    assert LOCK.read_text().startswith(f"nats-py=={oldest()} ")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:")
    done = subprocess.run(
        [*pip, "--require-hashes", "--target", str(tmp_path), "-r", str(LOCK)],
        capture_output=True, text=True, timeout=INSTALL_WITHIN_S, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"no package index has nats-py {oldest()}: {done.stderr.strip()[-200:]}")
    return tmp_path


def test_the_oldest_library_passes_the_tests_of_connections(library: Path) -> None:
    """Each private part that a session overrides works there as in the newest."""
    environment = {**os.environ, "PYTHONPATH": str(library)}
    asked = "import nats, nats.aio.client as c; print(nats.__file__, c.__version__)"
    used = subprocess.run(
        [sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]

    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S,
        check=False,
    )  # fmt: skip

    assert used == [str(library / "nats" / "__init__.py"), oldest()]
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
