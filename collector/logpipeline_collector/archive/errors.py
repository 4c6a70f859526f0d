"""What can go wrong with a collector's folder, and what to do about it."""

from __future__ import annotations

import errno
from pathlib import Path

# EFBIG: a limit on the size of files, which a smaller file would not meet.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class ArchiveBusy(Exception):
    """Another process writes this partition in this folder."""


class ArchiveBroken(Exception):
    """The state of the files cannot be read; the message says what to do."""


class ArchiveFailed(Exception):
    """The disk failed; what it said to be written cannot be believed. The process has to end."""


class ArchiveFull(OSError):
    """The disk is full; nothing of what was asked was done, and it may be asked again."""


class BadSnapshot(ValueError):
    """Bytes that are no snapshot of sources, or one of another version."""


def disk_error(error: OSError, what: str, folder: Path) -> ArchiveFull | ArchiveFailed:
    """Return what *error* means for an archive in *folder*, which tried to do *what*."""
    if error.errno in _FULL:
        reason = f"{error.strerror}: cannot {what}; make room, it goes on by itself"
        return ArchiveFull(error.errno, reason, str(folder))
    return ArchiveFailed(f"{folder}: cannot {what}: {error}; look at the disk, then start again")
