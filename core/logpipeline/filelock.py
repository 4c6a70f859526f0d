"""A lock on a file. One process holds it, and the kernel frees it however that process ends: there
is no stale lock to clean up.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

PRIVATE_MODE = 0o600
# Longer than any process id.
_OWNER_BYTES_MAX = 32


class FileLocked(Exception):
    """Another process holds the lock; *owner* is its id, as far as it wrote it down."""

    def __init__(self, path: Path, owner: str) -> None:
        super().__init__(f"{path} is locked by process {owner or 'unknown'}")
        self.owner = owner or "unknown"


class FileLock:
    """A lock that is held on the file *path*, open as *descriptor*."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    @classmethod
    def take(cls, path: Path, mode: int = PRIVATE_MODE) -> Self:
        """Make the file *path* if necessary, and lock it.

        Raises:
            FileLocked: another process holds the lock.
            OSError: the file cannot be made, or its file system has no locks.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, _OWNER_BYTES_MAX, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise FileLocked(path, owner) from None
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor)

    @staticmethod
    def is_held(path: Path) -> bool | None:
        """Return whether a process holds the lock on *path*; None if there is no such file.

        If none does, the file is locked for a moment by this look: whoever takes the lock just then
        is refused.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def write_owner(self, pid: int) -> None:
        """Write the process id *pid* into the file, for messages to those who find it locked."""
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, f"{pid}\n".encode(), 0)

    def is_in_place(self) -> bool:
        """Return whether the path still leads to the file that is locked."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self.descriptor))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Free the lock, unless a child process holds the descriptor too."""
        os.close(self.descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
