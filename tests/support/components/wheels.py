"""Wheels of this checkout, built and installed without a network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# To build and install, or to start and end all processes of a demo, on a machine that is very busy.
TIMEOUT_S = 240


def install(project: Path, folder: Path) -> Path:
    """Build the wheel of *project*, and return the folder below *folder* that has it alone."""
    target, dist = folder / "installed", folder / "dist"
    _done(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(dist), cwd=project)
    (wheel,) = dist.glob("*.whl")
    pip = ("-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation")
    _done(sys.executable, *pip, "--target", str(target), str(wheel), cwd=folder)
    return target


def _done(*words: str, cwd: Path) -> None:
    done = subprocess.run(
        words, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
