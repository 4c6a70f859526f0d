"""What is generated is compared with what is there, before anybody relies on it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "generate.py"
FILES = (
    "deploy/crd.yaml",
    "deploy/admission.yaml",
    "charts/logpipeline/files/crd.yaml",
    "charts/logpipeline/files/admission.yaml",
    "charts/logpipeline/files/alerts.yaml",
    "deploy/local/alerts.yml",
    "docs/crd.md",
    "docs/cli.md",
    "docs/api.md",
    "docs/operations.md",
)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the generated files, without Helm."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    return tmp_path


def generate(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the script on *root*."""
    command = [sys.executable, str(SCRIPT), "--root", str(root), "--helm", "no-such-helm", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_stale_file_fails_the_check_is_named_and_is_written_anew(copied: Path) -> None:
    """Each of them; what Helm renders is left alone without it, and that is said."""
    before = {name: (copied / name).read_text() for name in FILES}
    for name, text in before.items():
        # The last is the head of the table that a page has between texts of its own.
        words = "LogPipeline" if name != FILES[-1] else "| Reason | What it says |"
        (copied / name).write_text(text.replace(words, words.upper()))

    checked = generate(copied, "--check")

    assert checked.returncode == 1
    assert checked.stderr == "".join(f"{name} is stale; run `make generate`\n" for name in FILES)
    written = generate(copied)
    assert written.returncode == 0
    assert "left deploy/operator.yaml and deploy/classes.yaml" in written.stdout
    assert {name: (copied / name).read_text() for name in FILES} == before
    assert generate(copied, "--check").returncode == 0
