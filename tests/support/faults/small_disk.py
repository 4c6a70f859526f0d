"""A disk so small that a test can fill it, and what a test needs to say why it has none."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BALLAST = "ballast"
CHUNK_BYTES = 64 * 1024


class SmallDisk:
    """A file system of its own at *path*."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / BALLAST

    def fill(self) -> None:
        """Leave no byte free."""
        with self._ballast.open("ab", buffering=0) as file:
            size = CHUNK_BYTES
            while size:
                try:
                    # A write into an almost full disk may be a short one.
                    file.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2

    def free(self) -> None:
        """Give the room back."""
        self._ballast.unlink(missing_ok=True)

    @property
    def free_bytes(self) -> int:
        """How much can be written now."""
        state = os.statvfs(self.path)
        return state.f_bavail * state.f_frsize


@contextmanager
def small_disk(path: Path, *, size_bytes: int) -> Iterator[SmallDisk]:
    """Mount a disk of *size_bytes* at *path* for as long as the block lasts.

    Where nothing can be mounted the test is skipped, and says why.
    """
    path.mkdir(parents=True, exist_ok=True)
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a disk can be made full only by mounting a small one, which needs root")
    options = f"size={size_bytes},mode=0700"
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {made.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        # Lazily: a process that just died may still be letting go of its files.
        subprocess.run(["umount", "--lazy", str(path)], check=True)
