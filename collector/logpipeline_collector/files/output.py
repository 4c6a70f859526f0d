"""The open files of a partition: what is written to each beyond what is committed, and how to take
it back.

Before its first commit a new file has only a scratch name, in a folder beside the state. After a
crash, the files in that folder are removed.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from logpipeline.deduplication import Range
from logpipeline.origin import origin_of
from logpipeline.wire import Batch
from logpipeline_collector.config import FilesConfig
from logpipeline_collector.files import safe_open
from logpipeline_collector.files.naming import Template
from logpipeline_collector.files.render import Piece, Tail, pieces, render
from logpipeline_collector.files.safe_open import Blocked, NotAFile
from logpipeline_collector.files.state import Damage, FileRow, Stage, State, disk_error
from logpipeline_collector.files.volume import Volume
from logpipeline_collector.sink import SinkFailed, SinkFull

Key = tuple[object, int]

log = logging.getLogger(__name__)

# Space that is kept free, so that a commit always has room for SQLite's log, folders and names.
RESERVE_BYTES = 16 * 1024 * 1024
# On a small volume only this part is kept free.
RESERVE_SHARE = 16
# Bytes that are written between two checks of the free room.
RESERVE_CHECK_BYTES = 1024 * 1024

# Paths that are cached; beyond that the cache begins anew.
PLACES_CACHED_MAX = 100_000
# Files of one message that may turn out to be gone, or cut: lines go on in a new one, or behind the
# cut.
LOST_FILES_MAX = 16
UNCOMMITTED_HELD = "it held lines that are not committed; they are read again"


class Kept(NamedTuple):
    """Bytes that are kept, and the time of the oldest file that could be removed; None: no file."""

    size: int
    oldest_ns: int | None


class Usage:
    """How much each partition keeps on the disk of a collector: limits are those of the whole
    folder, and the oldest file of all is removed first. Owners report themselves, from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[object, Kept] = {}

    def report(self, owner: object, *, size: int, oldest_ns: int | None) -> None:
        """Note that *owner* keeps *size* bytes, and the time of the oldest file that it could
        remove; None: no file.
        """
        with self._lock:
            self._kept[owner] = Kept(size, oldest_ns)

    def forget(self, owner: object) -> None:
        """Stop counting *owner*."""
        with self._lock:
            self._kept.pop(owner, None)

    @property
    def size(self) -> int:
        """Bytes that all owners keep."""
        with self._lock:
            return sum(kept.size for kept in self._kept.values())

    def oldest_of_others(self, owner: object) -> float:
        """Return the time of the oldest file that other owners could remove; infinity for none."""
        with self._lock:
            times = [
                kept.oldest_ns
                for other, kept in self._kept.items()
                if other is not owner and kept.oldest_ns is not None
            ]
            return min(times, default=math.inf)


@dataclass(slots=True)
class _Open:
    descriptor: int
    users: int = 0
    is_wanted: bool = True


class Descriptors:
    """At most *limit* descriptors, each found by its owner and a number.

    A borrowed descriptor is never closed, so that a thread that syncs a file does not meet another
    file under its number. So *limit* may be exceeded by the number of threads.
    """

    def __init__(self, limit: int, usage: Usage | None = None) -> None:
        self.usage = usage or Usage()
        self._limit = max(limit, 1)
        self._open: OrderedDict[Key, _Open] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    @contextlib.contextmanager
    def borrow(self, key: Key, open_file: Callable[[], int]) -> Iterator[int]:
        """Yield the descriptor of *key*, opened by *open_file* where it is not."""
        with self._lock:
            held = self._open.get(key)
            if held is None:
                self._make_room()
                held = self._open[key] = _Open(open_file())
            else:
                self._open.move_to_end(key)
            held.users += 1
        try:
            yield held.descriptor
        finally:
            with self._lock:
                held.users -= 1
                if not held.users and not held.is_wanted:
                    os.close(held.descriptor)

    def close(self, key: Key) -> None:
        """Close the file of *key*, if it is open."""
        with self._lock:
            self._close(key)

    def close_all(self, owner: object) -> None:
        """Close the files of *owner*."""
        with self._lock:
            for key in [key for key in self._open if key[0] is owner]:
                self._close(key)

    def write(self, descriptor: int, data: bytes | memoryview, offset: int) -> int:
        """Write at *offset*, and return how many bytes were written."""
        return os.pwrite(descriptor, data, offset)

    def sync(self, descriptor: int) -> None:
        """Make a file's bytes durable."""
        # macOS has no fdatasync.
        getattr(os, "fdatasync", os.fsync)(descriptor)

    def free_bytes(self, root: Path) -> tuple[int, int]:
        """Return how many bytes are free for us on the volume of *root*, and how many it has."""
        status = os.statvfs(root)
        return status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize

    def _make_room(self) -> None:
        surplus = len(self._open) + 1 - self._limit
        if surplus <= 0:
            return
        idle = (key for key, held in self._open.items() if not held.users)
        for key in [key for _, key in zip(range(surplus), idle, strict=False)]:
            self._close(key)

    def _close(self, key: Key) -> None:
        held = self._open.pop(key, None)
        if held is None:
            return
        held.is_wanted = False
        if not held.users:
            os.close(held.descriptor)


@dataclass(slots=True, eq=False)
class OutputFile:
    """One file: *length* and *tail* as written, *committed* as known to the state.

    *is_scratch* is True while the file has only its scratch name.
    """

    number: int
    place: str
    path: str
    host: str
    begun_ns: int
    stage: Stage = Stage.ACTIVE
    length: int = 0
    tail: Tail | None = None
    written_ns: int = 0
    rotated_ns: int = 0
    size: int = 0
    is_scratch: bool = False
    committed: FileRow | None = None

    def row(self, length: int, tail: Tail | None) -> FileRow:
        """Return the file as it is stored with *length* and *tail*."""
        return FileRow(
            path=self.path,
            place=self.place,
            host=self.host,
            stage=self.stage,
            begun_ns=self.begun_ns,
            length=length,
            tail=tail,
            rotated_ns=self.rotated_ns,
            size=self.size,
        )

    @property
    def is_committed(self) -> bool:
        """Whether everything that was written to the file is committed."""
        return self.committed is not None and self.length == self.committed.length

    @property
    def disk_bytes(self) -> int:
        """Bytes that the file takes on the disk."""
        return self.size if self.stage is Stage.PACKED else self.length


class FileLost(Exception):
    """Another program removed *file*. Everything that was written to it is committed."""

    def __init__(self, file: OutputFile, why: str) -> None:
        super().__init__(f"{file.path}: {why}")
        self.file = file
        self.why = why


class FileCut(Exception):
    """Another program cut *file* to *size* bytes. Everything that was written to it is
    committed.
    """

    def __init__(self, file: OutputFile, size: int) -> None:
        super().__init__(f"{file.path}: another program cut it to {size} bytes")
        self.file = file
        self.size = size


class Append(NamedTuple):
    """Bytes for the end of a file, and how it ends then."""

    file: OutputFile
    data: bytes
    tail: Tail | None


@dataclass(eq=False)
class OutputFiles:
    """Writes at tracked lengths below *root*, never anywhere else."""

    root: Path
    scratch: Path
    descriptors: Descriptors
    volume: Volume
    rotate_bytes: int
    state: State
    # Held while files are written or their fields change: maintenance has its own thread.
    lock: threading.Lock = field(default_factory=threading.Lock)
    files: dict[int, OutputFile] = field(default_factory=dict)
    active: dict[str, OutputFile] = field(default_factory=dict)
    # In the order in which they were written: a history is to repeat itself.
    dirty: dict[OutputFile, None] = field(default_factory=dict)
    full: dict[OutputFile, None] = field(default_factory=dict)
    disk_bytes: int = 0
    _next_number: int = 1
    _unchecked_bytes: int = RESERVE_CHECK_BYTES

    @property
    def damage(self) -> Damage:
        """The committed bytes that were taken away."""
        return self.state.damage

    def load(self, rows: dict[int, FileRow]) -> None:
        """Forget everything, and begin with the files of *rows*, which were recovered: each is as
        its row says.
        """
        self.close()
        self.files, self.active, self.dirty, self.full = {}, {}, {}, {}
        self._next_number = max(rows, default=0) + 1
        now_ns = time.time_ns()
        for number, row in sorted(rows.items(), key=lambda item: item[1].begun_ns):
            file = OutputFile(number, row.place, row.path, row.host, row.begun_ns, row.stage)
            file.length, file.tail, file.committed = row.length, row.tail, row
            file.rotated_ns, file.size, file.written_ns = row.rotated_ns, row.size, now_ns
            self.files[number] = file
            if row.stage is Stage.ACTIVE:
                self.active[row.place] = file
            self._note_full(file)
        self.disk_bytes = sum(file.disk_bytes for file in self.files.values())

    def at(self, place: str, host: str) -> OutputFile:
        """Return the active file of *place*; it may not exist yet."""
        file = self.active.get(place)
        if file is None:
            file = OutputFile(self._next_number, place, place, host, time.time_ns())
            file.is_scratch = True
            self._next_number += 1
            self.files[file.number] = self.active[place] = file
        return file

    def append(self, appends: Iterable[Append]) -> None:
        """Write all *appends*, or none of them.

        Raises:
            SinkFull: there is no room; nothing was written.
            FileLost, FileCut: a file is gone, or shorter than it was; nothing was written.
            SinkFailed: the disk failed.
        """
        done: list[tuple[OutputFile, int, Tail | None]] = []
        try:
            for file, data, tail in appends:
                done.append((file, file.length, file.tail))
                self._check_room(len(data))
                self._write(file, data)
                file.length += len(data)
                file.tail = tail
        except (SinkFull, SinkFailed, FileLost, FileCut):
            for file, length, tail in reversed(done):
                file.length, file.tail = length, tail
                self._cut(file)
            raise
        now_ns = time.time_ns()
        for file, length, _ in done:
            file.written_ns = now_ns
            self.disk_bytes += file.length - length
            self.dirty[file] = None
            self._note_full(file)

    def lose(self, lost: FileLost) -> None:
        """Give up a file that another program removed; a new one takes its place."""
        file = lost.file
        self.damage.add(file.path, file.length, lost.why)
        self.descriptors.close((self, file.number))
        if self.active.get(file.place) is file:
            del self.active[file.place]
        self.full.pop(file, None)
        self.disk_bytes -= file.disk_bytes
        file.stage = Stage.GONE
        self.dirty[file] = None

    def shorten(self, cut: FileCut) -> None:
        """Go on at the end of a file that another program cut.

        Raises:
            SinkFull, SinkFailed: the state cannot be written; nothing is counted.
        """
        file, lost = cut.file, cut.file.length - cut.size
        assert file.committed is not None
        row = file.committed._replace(length=cut.size, tail=None)
        counted = self.damage.bytes
        self.damage.add(file.path, lost, "another program cut the file")
        try:
            # Before anything is written behind the cut: a start after a crash would take it for
            # the bytes that were committed there.
            self.state.recover({file.number: row}, gone=(), lost={file.number: lost})
        except (SinkFull, SinkFailed):
            self.damage.bytes = counted
            raise
        file.committed, file.length, file.tail = row, cut.size, None
        self.disk_bytes -= lost
        self.full.pop(file, None)

    def forget(self, file: OutputFile) -> None:
        """Forget *file*, which was removed."""
        self.descriptors.close((self, file.number))
        with self.lock:
            if self.files.pop(file.number, None) is not None and file.stage is not Stage.GONE:
                self.disk_bytes -= file.disk_bytes

    def packed(self, file: OutputFile, row: FileRow) -> None:
        """Note that *file* is compressed now, as *row* says."""
        with self.lock:
            self.disk_bytes += row.size - file.disk_bytes
            file.path, file.stage, file.size, file.committed = row.path, row.stage, row.size, row

    def sync(self, file: OutputFile, length: int) -> None:
        """Make the first *length* bytes of *file* durable.

        Raises:
            OSError: they are not durable.
        """
        with self.descriptors.borrow((self, file.number), lambda: self._open(file)) as descriptor:
            _check(file, length, descriptor)
            self.descriptors.sync(descriptor)

    def sync_all(self, lengths: Mapping[OutputFile, int]) -> bool:
        """Make everything on the volume durable, with the bytes of files up to their *lengths*;
        return False where the system cannot.

        Raises:
            OSError: something is not durable.
        """
        if not self.volume.sync():
            return False
        for file, length in lengths.items():
            key = (self, file.number)
            with self.descriptors.borrow(key, partial(self._open, file)) as descriptor:
                _check(file, length, descriptor)
        return True

    def scratch_of(self, file: OutputFile) -> Path:
        """Return the scratch name of *file*."""
        return self.scratch / str(file.number)

    def close(self) -> None:
        """Close all descriptors."""
        self.descriptors.close_all(self)

    def _write(self, file: OutputFile, data: bytes) -> None:
        view, offset = memoryview(data), file.length
        try:
            with self.descriptors.borrow((self, file.number), lambda: self._open(file)) as opened:
                size = os.fstat(opened).st_size
                if size < file.length:
                    # Written at its place, what comes now would leave a gap of zeros before it.
                    raise self._cut_by_another(file, size)
                while view:
                    written = self.descriptors.write(opened, view, offset)
                    offset, view = offset + written, view[written:]
        except (FileNotFoundError, NotAFile, Blocked) as error:
            if not file.is_committed:
                why = f"{error}; {UNCOMMITTED_HELD}"
                raise SinkFailed(
                    f"{self.root / file.path} was removed by another program: {why}"
                ) from error
            raise FileLost(file, str(error)) from error
        except OSError as error:
            raise disk_error(error, f"write {file.path}", self.root) from error

    def _cut_by_another(self, file: OutputFile, size: int) -> FileCut | SinkFailed:
        if file.is_committed:
            return FileCut(file, size)
        where = self.root / file.path
        return SinkFailed(f"{where} was cut by another program: {UNCOMMITTED_HELD}")

    def _open(self, file: OutputFile) -> int:
        if not file.is_scratch:
            return safe_open.open_file(self.root, file.path, os.O_RDWR)
        flags = os.O_RDWR | os.O_CLOEXEC | (0 if file.length else os.O_CREAT)
        return os.open(self.scratch_of(file), flags, safe_open.FILE_MODE)

    def _cut(self, file: OutputFile) -> None:
        """Cut *file* to its length. If that fails, the next write overwrites the rest."""
        try:
            with self.descriptors.borrow((self, file.number), lambda: self._open(file)) as opened:
                # Another program may have cut it further, and zeros are no lines.
                os.ftruncate(opened, min(file.length, os.fstat(opened).st_size))
        except OSError as error:
            log.warning("a partial write stays", extra={"path": file.path, "reason": str(error)})
        if not file.length and file.is_scratch:
            self.descriptors.close((self, file.number))
            self.scratch_of(file).unlink(missing_ok=True)

    def _check_room(self, size: int) -> None:
        self._unchecked_bytes += size
        if self._unchecked_bytes < RESERVE_CHECK_BYTES:
            return
        free, total = self.descriptors.free_bytes(self.root)
        if free - size < min(RESERVE_BYTES, total // RESERVE_SHARE):
            full = OSError(errno.ENOSPC, f"{free} bytes are free, and a reserve is kept")
            raise disk_error(full, "write", self.root)
        self._unchecked_bytes = 0

    def _note_full(self, file: OutputFile) -> None:
        if file.length >= self.rotate_bytes and file.stage is Stage.ACTIVE:
            self.full[file] = None


def _check(file: OutputFile, length: int, descriptor: int) -> None:
    status = os.fstat(descriptor)
    # What is open can be written and made durable without a name; nobody could read it.
    if not status.st_nlink:
        raise OSError(errno.ENOENT, f"{file.path} was removed by another program")
    if status.st_size < length:
        raise OSError(errno.EIO, f"{file.path} was cut by another program")


class Writer:
    """Writes the messages of one partition; *lines* and *bytes* count what was written."""

    def __init__(self, config: FilesConfig, partition: int, output: OutputFiles) -> None:
        self.lines = 0
        self.bytes = 0
        self._output = output
        self._format = config.output
        self._cri = Template(config.path, cluster=config.cluster, partition=partition)
        self._plain = Template(config.file_path, cluster=config.cluster, partition=partition)
        self._places: dict[object, str] = {}

    def write(
        self, host: str, batch: Batch, data: bytes, ranges: Iterable[Range], time_ns: int
    ) -> int:
        """Write the *ranges* of *batch*, whose bytes are *data*; return how many bytes were
        written.

        Raises:
            SinkFull: there is no room; nothing was written.
            SinkFailed: the disk failed.
        """
        time_ns = batch.last_time_ns or time_ns
        origin = origin_of(host, batch)
        whole = Piece(origin, batch, data, batch.start, time_ns)
        parts = [self._part(whole, part) for part in ranges]
        written = self._write(parts, first_ns=batch.first_time_ns or time_ns, last_ns=time_ns)
        is_whole = parts[0] is whole
        self.lines += batch.lines if is_whole else sum(p.data.count(b"\n") for p in parts)
        return written

    def write_foreign(self, host: str, payload: bytes, time_ns: int) -> int:
        """Write the lines of a message without our headers; return how many bytes were written.

        Raises:
            SinkFull: there is no room; nothing was written.
            SinkFailed: the disk failed.
        """
        piece = Piece(origin_of(host, None), None, payload + b"\n", 0, time_ns)
        written = self._write([piece], first_ns=time_ns, last_ns=time_ns)
        self.lines += payload.count(b"\n") + 1
        return written

    def _write(self, parts: list[Piece], *, first_ns: int, last_ns: int) -> int:
        for attempt in itertools.count(1):
            appends = list(self._appends(parts, first_ns=first_ns, last_ns=last_ns))
            try:
                self._output.append(appends)
                break
            except (FileLost, FileCut) as changed:
                if attempt == LOST_FILES_MAX:
                    raise SinkFailed(
                        f"another program changes files again and again: {changed}"
                    ) from changed
                if isinstance(changed, FileLost):
                    self._output.lose(changed)
                else:
                    self._output.shorten(changed)
        written = sum(len(append.data) for append in appends)
        self.bytes += written
        return written

    def _appends(self, parts: list[Piece], *, first_ns: int, last_ns: int) -> Iterator[Append]:
        # A second piece for the same file continues the first one.
        tails: dict[OutputFile, Tail | None] = {}
        for part in parts:
            is_cri = part.batch is not None and part.batch.format == "cri"
            template = self._cri if is_cri else self._plain
            for period, piece in pieces(template, part, first_ns=first_ns, last_ns=last_ns):
                file = self._output.at(self._place(template, piece, period), piece.origin.host)
                data, tail = render(self._format, piece, tails.get(file, file.tail))
                tails[file] = tail
                yield Append(file, data, tail)

    def _place(self, template: Template, piece: Piece, period: str) -> str:
        key = (template, piece.origin, period)
        place = self._places.get(key)
        if place is None:
            if len(self._places) >= PLACES_CACHED_MAX:
                self._places.clear()
            place = self._places[key] = template.place(piece.origin, period)
        return place

    @staticmethod
    def _part(whole: Piece, part: Range) -> Piece:
        if part.end - part.start == len(whole.data):
            return whole
        data = whole.data[part.start - whole.start : part.end - whole.start]
        return whole._replace(data=data, start=part.start)
