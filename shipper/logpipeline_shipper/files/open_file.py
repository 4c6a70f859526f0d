"""Opens log files safely and within one limit of descriptors: a program that can write into a log
folder cannot make the shipper read another file, or hang.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from logpipeline_shipper.files.listing import ChainFile
from logpipeline_shipper.files.reader import PackedReader, PlainReader, Reader

T = TypeVar("T")

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
# Without the call, or where a container's seccomp profile forbids it, times of birth are unknown.
_NO_CALL = (errno.ENOSYS, errno.EPERM)
_S_TO_NS = 1_000_000_000

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# With O_NONBLOCK the open of a FIFO does not wait for a writer.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_TOO_MANY = (errno.EMFILE, errno.ENFILE)

# The kernel gives files the time of its last tick, of which there are a hundred a second at least.
TICK_NS = 10_000_000
# Half of the usual limit of 1,024 descriptors a process.
OPEN_FILES_MAX = 512


def files_now_ns() -> int:
    """Return a time before which no file is made or written any more, as files show it, in
    nanoseconds since 1970.
    """
    return time.time_ns() - TICK_NS


# A rotation that deletes a file frees its inode, and the next file takes it: by device and inode
# alone, a file that was listed a moment ago and the one that is opened now would be the same.
@dataclass(frozen=True, slots=True)
class FileStat:
    """The file at a path; *born_ns* is 0 if the file system has no time of birth."""

    device: int
    inode: int
    born_ns: int
    size: int
    mtime_ns: int
    is_regular: bool


# O_NOFOLLOW looks at the last part of a path alone. The owner of a folder that is searched could
# put a link in the place of a folder further up, and the same names below it would lead anywhere.
class OpenFolder:
    """The folder *path*, open: what is in it is reached by *descriptor*, whatever takes its place.

    *path* is *root* or below it. Links may lead to *root*, whose path an administrator wrote; none
    is followed below it.

    Raises:
        OSError: there is no such folder (`NotADirectoryError`: a part of its path is no folder, for
            example a link), or it cannot be opened.
    """

    __slots__ = ("descriptor", "path", "root")

    def __init__(self, path: Path, root: Path) -> None:
        self.path, self.root = path, root
        self.descriptor = os.open(root, _FOLDER_FLAGS)
        for part in path.parts[len(root.parts) :]:
            above = self.descriptor
            try:
                self.descriptor = os.open(part, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=above)
            finally:
                os.close(above)

    def __enter__(self) -> OpenFolder:
        return self

    def __exit__(self, *_error: object) -> None:
        os.close(self.descriptor)


def look_at(path: Path | str, *, follow_link: bool, folder: OpenFolder | None = None) -> FileStat:
    """Return the file at *path*, which may be a name in *folder*.

    Raises:
        OSError: there is none, or the system does not show it.
    """
    descriptor = None if folder is None else folder.descriptor
    flags = 0 if follow_link else _AT_SYMLINK_NOFOLLOW
    found = _statx(_AT_FDCWD if descriptor is None else descriptor, os.fsencode(path), flags)
    return found or _of(os.stat(path, dir_fd=descriptor, follow_symlinks=follow_link))


def look_at_open(descriptor: int) -> FileStat:
    """Return the file that *descriptor* is open on."""
    return _statx(descriptor, b"", _AT_EMPTY_PATH) or _of(os.fstat(descriptor))


def _of(found: os.stat_result) -> FileStat:
    return FileStat(
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


def _statx(folder: int, path: bytes, flags: int) -> FileStat | None:
    """Return the answer of statx(2); None where there is no such call."""
    if _LIBC is None:
        return None
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    if _LIBC.statx(folder, path, flags, _STATX_BASIC_AND_BIRTH, answer):
        code = ctypes.get_errno()
        if code in _NO_CALL:
            return None
        raise OSError(code, os.strerror(code), os.fsdecode(path))
    (mask,) = _MASK.unpack_from(answer)
    mode, inode, size = _MODE.unpack_from(answer)
    born_s, born, changed_s, changed = _TIMES.unpack_from(answer)
    return FileStat(
        device=os.makedev(*_DEVICE.unpack_from(answer)),
        inode=inode,
        born_ns=born_s * _S_TO_NS + born if mask & _STATX_BIRTH else 0,
        size=size,
        mtime_ns=changed_s * _S_TO_NS + changed,
        is_regular=stat.S_ISREG(mode),
    )


class Unreadable(Exception):
    """The file is there, but cannot be read now; *reason* is one token, for metrics."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Inconclusive(Exception):
    """The file was not read, which says nothing about the file: the next try may be different."""


class Moved(Inconclusive):
    """There is no file at the path, or another one than was listed: the next listing shows it."""


class TooManyOpen(Inconclusive):
    """The process or the system has no descriptor left."""


class Closed(Inconclusive):
    """The descriptor was given to another file meanwhile: open the file again."""


# Each reason for which a file is not read now.
NOT_READ = (Inconclusive, Unreadable, OSError)


class NotNow(Exception):
    """Bytes cannot be read at this moment, and nothing says that they are gone."""


def open_file(file: ChainFile, *, follow_link: bool) -> int:
    """Return a descriptor of the regular file at the path of *file*.

    *follow_link* allows one symbolic link to a ``*.log``, as the file itself: nodes with Docker
    have such links below ``/var/log/pods``, and a link that an attacker puts there must lead to
    nothing else.

    Raises:
        Moved: there is no such file.
        Unreadable: it is no regular file, or may not be read.
        TooManyOpen: no descriptor is left.
    """
    try:
        with OpenFolder(file.path.parent, file.root) as folder:
            name = _followed(file.path.name, folder) if follow_link else file.path.name
            descriptor = os.open(name, _FLAGS, dir_fd=folder.descriptor)
    except OSError as error:
        raise _explained(error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Unreadable("not-a-regular-file")
    return descriptor


def _followed(name: str, folder: OpenFolder) -> str:
    try:
        target = os.readlink(name, dir_fd=folder.descriptor)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return name  # it is no link
        raise
    if Path(target).suffix != ".log":
        raise Unreadable("symbolic-link")
    return target


def open_reader(file: ChainFile, *, follow_link: bool) -> Reader:
    """Return a reader of exactly the file that was listed.

    Raises:
        Moved: another file stands at its path now, or none.
        Unreadable: it may not be read.
        TooManyOpen: no descriptor is left.
    """
    descriptor = open_file(file, follow_link=follow_link)
    found = look_at_open(descriptor)
    is_born_then = found.born_ns == file.born_ns or not (found.born_ns and file.born_ns)
    if (found.device, found.inode) != file.key or not is_born_then:
        os.close(descriptor)
        raise Moved(str(file.path))
    if file.codec is None:
        return PlainReader(descriptor)
    return PackedReader(descriptor, file.codec)


# The length of a file, and its time of modification in nanoseconds.
Stamp = tuple[int, int]


def look_now(file: ChainFile) -> Stamp | None:
    """Return the length of *file* now and its time of modification in nanoseconds; None if another
    file is at its path.
    """
    try:
        found = file.path.stat()
    except OSError:
        return None
    is_same = (found.st_dev, found.st_ino) == file.key
    return (found.st_size, found.st_mtime_ns) if is_same else None


def has_length(file: ChainFile) -> bool:
    """Return whether *file* is as long as when it was listed, which may have been in the middle of
    a write that is over by now.
    """
    found = look_now(file)
    return found is not None and found[0] == file.size


def _explained(error: OSError) -> Exception:
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
        return Moved(str(error.filename))
    if error.errno in _TOO_MANY:
        return TooManyOpen()
    if error.errno == errno.ELOOP:
        return Unreadable("symbolic-link")
    return Unreadable(errno.errorcode.get(error.errno or 0, "unknown"))


class Handle:
    """A reader whose descriptor the budget may close between two reads."""

    __slots__ = (
        *("_budget", "deleted_since", "is_open", "key", "reader"),
        *("size_at_close", "used_s", "uses"),
    )

    def __init__(self, budget: DescriptorBudget, reader: Reader, key: tuple[int, int]) -> None:
        self._budget = budget
        self.uses = 0
        self.reader = reader
        self.key = key
        self.is_open = True
        self.used_s = 0.0
        self.deleted_since: float | None = None
        self.size_at_close = 0

    def read(self, offset: int, size: int) -> bytes:
        """Return up to *size* bytes at *offset*.

        Raises:
            Closed: the budget closed the descriptor.
            OSError: reading failed.
        """
        # Chains may be read in threads: a descriptor's number must not be reused while it is read.
        self._budget.borrow(self)
        try:
            return self.reader.read(offset, size)
        finally:
            self.uses -= 1

    def size(self) -> int:
        """Return the length of the content.

        Raises:
            Closed: the budget closed the descriptor.
        """
        return self._ask(lambda reader: reader.size())

    def written_ns(self) -> int:
        """Return when the file was written to last, in nanoseconds since 1970.

        Raises:
            Closed: the budget closed the descriptor.
        """
        return self._ask(lambda reader: reader.written_ns())

    def data_start(self) -> int:
        """Return the offset of the first byte that is in no hole of the file.

        Raises:
            Closed: the budget closed the descriptor.
        """
        return self._ask(lambda reader: reader.data_start())

    def has_name(self) -> bool:
        """Return whether the file was not removed.

        Raises:
            Closed: the budget closed the descriptor.
        """
        return self._ask(lambda reader: reader.has_name())

    def is_written(self) -> bool:
        """Return whether a program has the file open for writing, though it has no name any more.

        Raises:
            Closed: the budget closed the descriptor.
        """
        return self._ask(lambda reader: reader.is_written())

    def _ask(self, ask: Callable[[Reader], T]) -> T:
        self._budget.borrow(self)
        try:
            return ask(self.reader)
        finally:
            self.uses -= 1

    @property
    def compressed(self) -> bool:
        """Return whether the file is packed."""
        return self.reader.compressed

    @property
    def tells_size(self) -> bool:
        """Return whether `size` is the content's, modulo 4 GiB where it is compressed."""
        return self.reader.tells_size

    @property
    def is_busy(self) -> bool:
        """Return whether a read is under way."""
        return self.uses > 0

    def close(self) -> None:
        """Give the descriptor back."""
        self._budget.close(self)


# A descriptor is closed when another file needs it, and opened again later. A deleted file is the
# exception: its descriptor is all that is left of it, so it stays open until it is read, up to a
# number of bytes and an age that all chains share.
class DescriptorBudget:
    """Keeps at most *open_files_max* log files open, deleted ones included."""

    def __init__(self, open_files_max: int = OPEN_FILES_MAX) -> None:
        self.open_files_max = max(open_files_max, 2)
        self._lock = threading.RLock()
        self._handles: OrderedDict[Handle, None] = OrderedDict()
        self._deleted: OrderedDict[Handle, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._handles) + len(self._deleted)

    def has_room(self) -> bool:
        """Return whether one more file can be opened without closing another."""
        return len(self) < self.open_files_max

    def has_room_for_idle(self) -> bool:
        """Return whether files may be open that have no unread bytes. Half is left to the others,
        which are opened ahead only where nothing has to be closed for them.
        """
        return len(self) <= self.open_files_max // 2

    def open(self, opener: Callable[[], Reader], key: tuple[int, int], now_s: float) -> Handle:
        """Return a handle of what *opener* opens; the least recently used one makes room.

        Raises:
            TooManyOpen: the system has no descriptor left, and we have none to give.
        """
        with self._lock:
            while not self.has_room() and self._close_one():
                pass
            try:
                reader = opener()
            except TooManyOpen:
                if not self._close_one():
                    raise
                reader = opener()
            handle = Handle(self, reader, key)
            handle.used_s = now_s
            self._handles[handle] = None
            return handle

    def borrow(self, handle: Handle) -> None:
        """Note that *handle* is in use, until its *uses* are counted down again.

        Raises:
            Closed: it is closed.
        """
        with self._lock:
            if not handle.is_open:
                raise Closed
            handle.uses += 1
            if handle in self._handles:
                self._handles.move_to_end(handle)

    def close(self, handle: Handle) -> None:
        """Close *handle*, also that of a deleted file; it keeps the last size."""
        with self._lock:
            if handle.is_open:
                handle.is_open = False
                self._handles.pop(handle, None)
                self._deleted.pop(handle, None)
                handle.size_at_close = handle.reader.size()
                handle.reader.close()

    def keep_deleted(self, handle: Handle, unread_bytes: int, now_s: float) -> None:
        """Note that *handle* is all that is left of a deleted file with so many *unread_bytes*."""
        with self._lock:
            if handle.is_open:
                if handle.deleted_since is None:
                    handle.deleted_since = now_s
                self._handles.pop(handle, None)
                self._deleted[handle] = unread_bytes

    def keep_listed(self, handle: Handle) -> None:
        """Note that the file of *handle* has a name again, so that the handle may be closed."""
        with self._lock:
            if handle.is_open and self._deleted.pop(handle, None) is not None:
                handle.deleted_since = None
                self._handles[handle] = None

    def limit_deleted(self, now_s: float, *, bytes_max: int, age_s: float) -> None:
        """Close deleted files, oldest first, until the rest is within the limits; their chains
        count the lost bytes.
        """
        with self._lock:
            for handle in list(self._deleted):
                since = now_s if handle.deleted_since is None else handle.deleted_since
                too_old = now_s - since > age_s
                too_large = sum(self._deleted.values()) > bytes_max
                too_many = len(self._deleted) > self.open_files_max // 2
                if (too_old or too_large or too_many) and not handle.is_busy:
                    self.close(handle)

    def _close_one(self) -> bool:
        handle = next((handle for handle in self._handles if not handle.is_busy), None)
        if handle is None:
            return False
        self.close(handle)
        return True
