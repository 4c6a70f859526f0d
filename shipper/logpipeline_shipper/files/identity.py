"""Who a file is: its inode, and when that was given to it.

A rotation that deletes a file frees its inode, and the next file takes it: by device and inode
alone, a file that was looked at a moment ago and the one that is opened now would be the same.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

# linux/stat.h: type, size and times as of `stat`, and the time of birth.
_STATX_BASIC_AND_BIRTH = 0x0FFF
_STATX_BIRTH = 0x0800
_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_AT_EMPTY_PATH = 0x1000
_STATX_BYTES = 256
_MASK = struct.Struct("=I")
_MODE = struct.Struct("=28xH2xQQ")  # mode, inode, size
_TIMES = struct.Struct("=80xqI20xqI")  # birth and modification: seconds, nanoseconds
_DEVICE = struct.Struct("=136xII")
# Without the call, or where a container's profile forbids it, nobody tells of births.
_NO_CALL = (errno.ENOSYS, errno.EPERM)
_S_TO_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Found:
    """What stands at a path; *born_ns* is 0 where the file system does not say."""

    device: int
    inode: int
    born_ns: int
    size: int
    mtime_ns: int
    is_regular: bool


def look_at(path: Path, *, follow_link: bool) -> Found:
    """Return what stands at *path*.

    Raises:
        OSError: nothing, or it may not be looked at.
    """
    flags = 0 if follow_link else _AT_SYMLINK_NOFOLLOW
    found = _statx(_AT_FDCWD, os.fsencode(path), flags)
    return found or _of(os.stat(path, follow_symlinks=follow_link))


def look_at_open(descriptor: int) -> Found:
    """Return what *descriptor* is open on."""
    return _statx(descriptor, b"", _AT_EMPTY_PATH) or _of(os.fstat(descriptor))


def _of(found: os.stat_result) -> Found:
    return Found(
        device=found.st_dev,
        inode=found.st_ino,
        born_ns=0,
        size=found.st_size,
        mtime_ns=found.st_mtime_ns,
        is_regular=stat.S_ISREG(found.st_mode),
    )


def _load() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "statx") else None


_LIBC = _load()


def _statx(folder: int, path: bytes, flags: int) -> Found | None:
    """Return what statx(2) tells; None where there is no such call."""
    if _LIBC is None:
        return None
    told = ctypes.create_string_buffer(_STATX_BYTES)
    if _LIBC.statx(folder, path, flags, _STATX_BASIC_AND_BIRTH, told):
        code = ctypes.get_errno()
        if code in _NO_CALL:
            return None
        raise OSError(code, os.strerror(code), os.fsdecode(path))
    (mask,) = _MASK.unpack_from(told)
    mode, inode, size = _MODE.unpack_from(told)
    born_s, born, changed_s, changed = _TIMES.unpack_from(told)
    return Found(
        device=os.makedev(*_DEVICE.unpack_from(told)),
        inode=inode,
        born_ns=born_s * _S_TO_NS + born if mask & _STATX_BIRTH else 0,
        size=size,
        mtime_ns=changed_s * _S_TO_NS + changed,
        is_regular=stat.S_ISREG(mode),
    )
