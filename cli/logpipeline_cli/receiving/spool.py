"""The files that a receiver appends to, and the redo log that makes an append to many of them one
durable step.

A shipper reads these files while they grow. A file that becomes shorter is a new file to it, whose
lines it ships again, so a torn last line must never be cut off after a crash: it has to be
completed with the very bytes that were meant. So what is to be written is first written to the redo
log (`.redo`), with its places, and synced; a start writes those of it that the files lack to the
same places. The log also holds the *state* (a position in the source), so that position and lines
cannot disagree.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from logpipeline.failpoints import reach
from logpipeline.filelock import FileLock
from logpipeline_cli.receiving.redo import REDO, Place, Record, Write, encode, records_of

LOCK = ".lock"
SUFFIX = ".log"
# Lines of names for which there is no room any more.
OVERFLOW = f"%other{SUFFIX}"  # no name that a sender chooses is encoded so
# Read and written again at a start, which takes a second on a slow disk.
REDO_BYTES_MAX = 16 * 1024 * 1024
OPEN_FILES_MAX = 256
ROTATE_BYTES = 64 * 1024 * 1024
KEEP_FILES = 10
NAMES_MAX = 10_000
FILE_MODE = 0o640

_NO_DESCRIPTOR = "no file descriptor is free"
_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk's quota is used up",
    errno.EFBIG: "a file may not become larger",
    errno.EMFILE: _NO_DESCRIPTOR,
    errno.ENFILE: _NO_DESCRIPTOR,
}


class SpoolFull(Exception):
    """The disk is full, or something else is used up that may be free again later, as the message
    says. None of the given lines is written.
    """


class SyncFailed(OSError):
    """A file or a folder could not be synced: the process has to end, and its next start repairs
    the file.
    """


@dataclass(slots=True)
class _Target:
    """A file that is open for writing; *is_dirty*: it has bytes that are not synced."""

    path: Path
    descriptor: int
    is_dirty: bool = False

    @property
    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def is_in_place(self) -> bool:
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self.descriptor))
        except FileNotFoundError:
            return False

    def write(self, offset: int, data: bytes) -> None:
        """Let *data* stand at *offset*. Bytes that stand there already are not written again: a
        file with a new time and its old length looks as if a program had written the same anew.
        """
        # They may be in the kernel's memory only.
        self.is_dirty = True
        found = os.pread(self.descriptor, len(data), offset) if offset < self.size else b""
        if data.startswith(found):
            data, offset = data[len(found) :], offset + len(found)
        view = memoryview(data)
        while view:
            done = os.pwrite(self.descriptor, view, offset)
            view, offset = view[done:], offset + done

    def sync(self) -> None:
        if not self.is_dirty:
            return
        try:
            os.fsync(self.descriptor)
        except OSError as error:
            # The kernel reports it once, and may have dropped the bytes: a second try could succeed
            # without them. A new start writes them again.
            raise SyncFailed(errno.EIO, f"sync failed: {error.strerror}", self.path) from error
        self.is_dirty = False


class Spool:
    """The files below *folder*; one process owns it. Its methods block, and one thread calls them.

    A file that has grown to *rotate_bytes* is renamed to `<name>.1`, and `<name>.<keep>` is removed
    then: whether it was shipped is not known here.

    Raises:
        FileLocked: another process owns the folder.
        SpoolFull: what a former process had accepted cannot be written yet.
        SpoolBroken: the redo log is damaged.
    """

    def __init__(
        self,
        folder: Path,
        *,
        rotate_bytes: int = ROTATE_BYTES,
        keep: int = KEEP_FILES,
        names_max: int = NAMES_MAX,
        open_files_max: int = OPEN_FILES_MAX,
    ) -> None:
        self.folder = folder
        self.state: Any = None
        self.removed_files = 0
        self._rotate_bytes = rotate_bytes
        self._keep = keep
        self._names_max = names_max
        self._open_files_max = open_files_max
        self._targets: OrderedDict[str, _Target] = OrderedDict()
        self._pending: tuple[Write, ...] = ()
        self._has_failed = False
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock.take(folder / LOCK)
        self._redo = -1
        self._place = Place("")
        try:
            # It is for a message only, which a full disk may lack.
            with suppress(OSError):
                self._lock.write_owner(os.getpid())
            self._names = _names_below(folder)
            with _full():
                self._recover()
        except BaseException:
            self._close_files()
            raise

    def name_of(self, name: str) -> str:
        """Return *name*, or `OVERFLOW` where there are too many names already."""
        if name in self._names:
            return name
        if len(self._names) < self._names_max:
            # At once: one request may bring more names than there is room for, before the first of
            # them is a file.
            self._names.add(name)
            return name
        return OVERFLOW

    @property
    def is_waiting(self) -> bool:
        """Whether accepted lines are in the redo log only, because the disk is full."""
        return bool(self._pending)

    def commit(self, lines: Mapping[str, bytes], state: Any = None) -> None:
        """Append whole *lines* to the files that they are given for, and keep *state* (JSON).

        When it returns, all of it survives a crash; when it raises, nothing of it was accepted.

        Raises:
            SpoolFull: there is no room now.
            OSError: the disk fails; a start finds what the redo log has.
        """
        self._check()
        with _full():
            self._apply()
            writes = tuple(self._placed(name, data) for name, data in lines.items() if data)
            self._log(Record(writes, state))
        self.state = state
        self._pending = writes
        reach("receive.logged")
        # It is accepted: what a full disk keeps from its file is written from memory later, or
        # from the redo log by the next start.
        with suppress(SpoolFull), _full():
            self._apply()
            if self._redo_bytes > REDO_BYTES_MAX or any(map(self._is_large, lines)):
                self.checkpoint()

    def checkpoint(self) -> None:
        """Sync the files, empty the redo log, and rotate the files that have reached their size.

        Raises:
            SpoolFull: there is no room now.
            OSError: the disk fails; nothing is lost.
        """
        self._check()
        if self._redo_bytes == self._redo_begun_bytes:
            return
        with _full():
            self._apply()
            for target in self._targets.values():
                self._sync(target)
            reach("receive.synced")
            self._begin_redo()
            # Only now: the redo log names places in the files by their names.
            for name in [name for name in self._targets if self._is_large(name)]:
                self._rotate(name)

    def try_room(self, size: int) -> None:
        """Return if a commit of *size* bytes would have room now. Nothing is kept of the try.

        Raises:
            SpoolFull: it would not.
            OSError: the disk fails.
        """
        self._check()
        with _full(), self._changing(self.folder):
            try:
                # No head of a record, so that a start takes it for one that was not written whole.
                _write_all(self._redo, bytes(size), self._redo_bytes)
                os.fdatasync(self._redo)
            finally:
                os.ftruncate(self._redo, self._redo_bytes)

    def close(self) -> None:
        """Write and sync the remaining lines, unless the disk is full, and unlock the folder."""
        try:
            if self._has_failed:
                return
            with suppress(SpoolFull):
                self.checkpoint()
        finally:
            self._close_files()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _close_files(self) -> None:
        for target in self._targets.values():
            os.close(target.descriptor)
        self._targets.clear()
        if self._redo >= 0:
            os.close(self._redo)
        self._lock.close()

    # -- the redo log

    def _recover(self) -> None:
        path = self.folder / REDO
        raw = path.read_bytes() if path.exists() else b""
        folders = set[Path]()
        for record in records_of(raw):
            for write in record.writes:
                target = self._target(write.name)
                folders.add(target.path.parent)
                # It is shorter only where another program removed or cut it.
                target.write(min(write.offset, target.size), write.data)
            self.state = record.state
        for target in self._targets.values():
            self._sync(target)
        # The former process may have ended between a new file and the sync of its name.
        for folder in folders:
            with self._changing(folder):
                pass
        self._begin_redo()

    def _begin_redo(self) -> None:
        path, temporary = self.folder / REDO, self.folder / f"{REDO}.tmp"
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with self._changing(self.folder):
            descriptor = os.open(temporary, flags, 0o600)
            try:
                place = Place(secrets.token_hex(4))
                data = encode(Record((), self.state), place)
                _write_all(descriptor, data, 0)
                os.fsync(descriptor)
                os.rename(temporary, path)
            except BaseException:
                os.close(descriptor)
                raise
            # At once: the former one has no name any more, and no start would find what it gets.
            former, self._redo, self._place = self._redo, descriptor, place.next
            self._redo_bytes = self._redo_begun_bytes = len(data)
            if former >= 0:
                os.close(former)

    def _log(self, record: Record) -> None:
        data = encode(record, self._place)
        try:
            _write_all(self._redo, data, self._redo_bytes)
            reach("receive.written")
            os.fdatasync(self._redo)
        except OSError:
            # No shipper reads it, so it may become shorter. A crash before leaves half a record,
            # which its checksum tells.
            os.ftruncate(self._redo, self._redo_bytes)
            raise
        self._redo_bytes += len(data)
        self._place = self._place.next

    # -- the files

    def _placed(self, name: str, data: bytes) -> Write:
        target = self._target(name)
        size = target.size
        if size and os.pread(target.descriptor, 1, size - 1) != b"\n":
            # Another program left half a line: ours must not continue it.
            data = b"\n" + data
        return Write(name, size, data)

    def _apply(self) -> None:
        for write in self._pending:
            self._target(write.name).write(write.offset, write.data)
            reach("receive.applied")
        self._pending = ()

    def _target(self, name: str) -> _Target:
        target = self._targets.get(name)
        if target is not None:
            if target.is_in_place():
                self._targets.move_to_end(name)
                return target
            self._drop(name)
        while len(self._targets) >= self._open_files_max:
            self._drop(next(iter(self._targets)))
        path = self.folder / name
        self._make_folder(path.parent)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with nullcontext() if path.exists() else self._changing(path.parent):
            target = _Target(path, os.open(path, flags, FILE_MODE))
            self._targets[name] = target
        self._names.add(name)
        return target

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            self._make_folder(folder.parent)
            with self._changing(folder.parent):
                folder.mkdir()

    def _drop(self, name: str) -> None:
        self._sync(self._targets[name])
        os.close(self._targets.pop(name).descriptor)

    def _check(self) -> None:
        if self._has_failed:
            raise SyncFailed(errno.EIO, "sync failed before: start again", self.folder)

    def _sync(self, target: _Target) -> None:
        try:
            target.sync()
        except SyncFailed:
            self._has_failed = True
            raise

    @contextmanager
    def _changing(self, folder: Path) -> Iterator[None]:
        """Sync *folder* after the block, which makes, renames or removes names in it."""
        # It is opened before: where no descriptor is free, nothing is changed, so that it can be
        # tried again. A change that cannot be synced ends the process.
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield
            _sync_folder(descriptor, folder)
        except SyncFailed:
            # A new name in it may be gone after a power loss, that of the redo log, too.
            self._has_failed = True
            raise
        finally:
            os.close(descriptor)

    def _is_large(self, name: str) -> bool:
        target = self._targets.get(name)
        return target is not None and target.size >= self._rotate_bytes

    def _rotate(self, name: str) -> None:
        path = self.folder / name
        aged = [path, *(path.with_name(f"{path.name}.{age}") for age in range(1, self._keep + 1))]
        # A crash between two renames leaves a gap, which the next rotation fills.
        free = next((age for age, each in enumerate(aged) if not each.exists()), len(aged))
        if free == len(aged):
            aged[-1].unlink()
            self.removed_files += 1
            free -= 1
        with self._changing(path.parent):
            for age in range(free, 0, -1):
                os.rename(aged[age - 1], aged[age])
        self._drop(name)


def _names_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob(f"*{SUFFIX}")}


def _sync_folder(descriptor: int, folder: Path) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise SyncFailed(errno.EIO, f"sync failed: {error.strerror}", folder) from error


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(descriptor, view, offset)
        view, offset = view[done:], offset + done


@contextmanager
def _full() -> Iterator[None]:
    """Turn the errors of a full disk into `SpoolFull`."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise SpoolFull(_FULL[error.errno]) from error
        raise
