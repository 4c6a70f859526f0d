"""How to run one test by itself, as it was run: printed with its failure."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What changes which tests there are, and what they do.
VARIABLES = ("SOAK", "FAULT_ROUNDS", "HYPOTHESIS_PROFILE")
# A test of faults carries its seed in its name; a run with another one does not know that name.
SEED = re.compile(r"SEED=(\d+)")


def command_for(name: str, python: str = sys.executable) -> str:
    """Return the command that runs the test *name* alone, seed and settings included."""
    settings = [f"{key}={os.environ[key]}" for key in VARIABLES if os.environ.get(key)]
    if seed := SEED.search(name):
        settings.append(seed[0])
    folder = Path(python).parent
    pytest = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
    return " ".join([*settings, f"{pytest}/pytest", shlex.quote(name)])
