"""Processes that run a module of this folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def command(module: str, *words: str) -> list[str]:
    """Return the command that runs *module* with *words*; it needs `environment`."""
    return [sys.executable, "-m", module, *words]


def environment() -> dict[str, str]:
    """Return this process' environment, in which the modules of this folder are found."""
    paths = [str(FOLDER), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
