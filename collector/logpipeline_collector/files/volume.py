"""The file system of a folder, which is made durable as a whole: cheaper than one file at a time
where there are many.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from pathlib import Path

# Older kernels report success whatever the disk said: syncfs(2).
_LINUX = (5, 8)


class Volume:
    """The file system of *root*, opened before anything is written that it shall make durable.

    The kernel reports a failed write once to each descriptor that was open then. One that is opened
    for the sync would not hear of a failure that another program, or another partition, has heard
    of already. So each partition has one of its own.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._descriptor: int | None = _open(root) if _is_told_of_failures() else None

    def sync(self) -> bool:
        """Make everything durable; return False where the system cannot, or would not tell.

        Raises:
            OSError: something that was written since the opening is not durable.
        """
        if self._descriptor is None:
            return False
        number = _syncfs(self._descriptor)
        if number:
            raise OSError(number, os.strerror(number), str(self._root))
        return True

    def close(self) -> None:
        """Close the descriptor."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _is_told_of_failures() -> bool:
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (
        sys.platform == "linux"
        and release is not None
        and (int(release[1]), int(release[2])) >= _LINUX
    )


def _open(root: Path) -> int:
    return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _syncfs(descriptor: int) -> int:
    """Return the number of the error, 0 for none."""
    failed = ctypes.CDLL(None, use_errno=True).syncfs(descriptor)
    return ctypes.get_errno() if failed else 0
