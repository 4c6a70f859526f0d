"""Benchmarks are run seldom: that each of them starts as `make` starts it is seen here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = dict(
    re.findall(
        r"^(bench[a-z-]*): .*\n\t(.*benchmarks/.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
)
START_WITHIN_S = 60


def test_there_are_benchmarks() -> None:
    """Else the next test is about nothing."""
    assert len(COMMANDS) >= 3


@pytest.mark.parametrize("name", COMMANDS)
def test_a_benchmark_starts_as_make_starts_it(name: str) -> None:
    """With all that it imports on its path."""
    command = COMMANDS[name].replace("$(BIN)/python", sys.executable)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        ["sh", "-c", f"{command} --help"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=START_WITHIN_S,
        check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
