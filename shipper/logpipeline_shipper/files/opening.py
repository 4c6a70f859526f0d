"""Opens log files and nothing else: whoever may write into a log folder must not make us read
another file, or hang.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from logpipeline_shipper.files.identity import look_at_open
from logpipeline_shipper.files.reading import PackedReader, PlainReader, Reader
from logpipeline_shipper.files.sources import ChainFile

# O_NONBLOCK keeps a FIFO from blocking us until somebody writes into it.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_TOO_MANY = (errno.EMFILE, errno.ENFILE)


class Unreadable(Exception):
    """A file that is there, but cannot be read now; *reason* is one token, for metrics."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Moved(Exception):
    """The path leads to nothing, or to another file than the listing saw: the next listing
    tells.
    """


class NotNow(Exception):
    """Bytes cannot be had in this moment, and nothing says that they are gone."""


class TooManyOpen(Exception):
    """The process or the system has no descriptor left: says nothing about the file."""


def open_file(path: Path, *, follow_link: bool) -> int:
    """Return a descriptor of the regular file *path*.

    *follow_link* allows one symbolic link to a ``*.log``: Docker's nodes have such ones below
    ``/var/log/pods``, and a link planted there must lead to nothing else.

    Raises:
        Moved: there is no such file.
        Unreadable: it is no regular file, or may not be read.
        TooManyOpen: no descriptor is left.
    """
    try:
        if follow_link and path.is_symlink():
            target = path.parent / os.readlink(path)
            if target.suffix != ".log":
                raise Unreadable("symbolic-link")
            path = target
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        raise _explained(error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Unreadable("not-a-regular-file")
    return descriptor


def open_reader(file: ChainFile, *, follow_link: bool) -> Reader:
    """Return a reader of the very file that a listing saw.

    Raises:
        Moved: another file stands at its path now, or none.
        Unreadable: it may not be read.
        TooManyOpen: no descriptor is left.
    """
    descriptor = open_file(file.path, follow_link=follow_link)
    found = look_at_open(descriptor)
    is_born_then = found.born_ns == file.born_ns or not (found.born_ns and file.born_ns)
    if (found.device, found.inode) != file.key or not is_born_then:
        os.close(descriptor)
        raise Moved(str(file.path))
    if not file.compressed:
        return PlainReader(descriptor)
    return PackedReader(descriptor, file.path.suffix.removeprefix("."))


def look_now(file: ChainFile) -> tuple[int, int] | None:
    """Return the length of *file* now, and the time in nanoseconds at which it was changed last;
    None where another file stands at its path.
    """
    try:
        found = file.path.stat()
    except OSError:
        return None
    is_same = (found.st_dev, found.st_ino) == file.key
    return (found.st_size, found.st_mtime_ns) if is_same else None


def _explained(error: OSError) -> Exception:
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
        return Moved(str(error.filename))
    if error.errno in _TOO_MANY:
        return TooManyOpen()
    if error.errno == errno.ELOOP:
        return Unreadable("symbolic-link")
    return Unreadable(errno.errorcode.get(error.errno or 0, "unknown"))
