"""The files of a partition: what was written to each beyond what is committed, and how to take it
back.

A new file has no name among the others before its first commit: it is written in a folder of its
own beside the state, whose contents after a crash are nobody's.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from logpipeline_collector.archive import beneath
from logpipeline_collector.archive.beneath import Blocked, NotAFile
from logpipeline_collector.archive.descriptors import Descriptors
from logpipeline_collector.archive.errors import ArchiveFailed, ArchiveFull, disk_error
from logpipeline_collector.archive.render import Tail
from logpipeline_collector.archive.rows import FileRow, Stage

log = logging.getLogger(__name__)

# Kept free, so that what was written can also be committed: SQLite's log, folders, names.
RESERVE_BYTES = 16 * 1024 * 1024
# Of a small volume only this part.
RESERVE_SHARE = 16
# How much is written between two looks at what is free.
RESERVE_CHECK_BYTES = 1024 * 1024


@dataclass(slots=True, eq=False)
class OutputFile:
    """One file: *length* and *tail* as written, *committed* as known to the state.

    *is_scratch* is True while its only name is the one beside the state.
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
    def disk_bytes(self) -> int:
        """What the file takes on the disk."""
        return self.size if self.stage is Stage.PACKED else self.length


class FileLost(Exception):
    """Somebody has taken *file* away; nothing was written to it that is not committed."""

    def __init__(self, file: OutputFile, why: str) -> None:
        super().__init__(f"{file.path}: {why}")
        self.file = file
        self.why = why


class Append(NamedTuple):
    """Bytes for the end of a file, and how it ends then."""

    file: OutputFile
    data: bytes
    tail: Tail | None


@dataclass(slots=True)
class Damage:
    """What the disk, or somebody else, has taken from committed files."""

    files: int = 0
    bytes: int = 0

    def add(self, path: str, lost: int, why: str) -> None:
        """Count *lost* bytes of the file *path*, and name them."""
        self.files += 1
        self.bytes += lost
        log.error(
            "committed bytes of a file are gone",
            extra={"path": path, "bytes": lost, "reason": why},
        )


@dataclass(eq=False)
class OutputFiles:
    """Writes at tracked lengths below *root*, never anywhere else."""

    root: Path
    scratch: Path
    descriptors: Descriptors
    rotate_bytes: int
    # Held by whoever writes or changes what is known of files: maintenance has its own thread.
    lock: threading.Lock = field(default_factory=threading.Lock)
    files: dict[int, OutputFile] = field(default_factory=dict)
    active: dict[str, OutputFile] = field(default_factory=dict)
    dirty: set[OutputFile] = field(default_factory=set)
    full: set[OutputFile] = field(default_factory=set)
    damage: Damage = field(default_factory=Damage)
    disk_bytes: int = 0
    _next_number: int = 1
    _unchecked_bytes: int = RESERVE_CHECK_BYTES

    def load(self, rows: dict[int, FileRow]) -> None:
        """Forget everything, and know the files of *rows*: recovered, so what stands there is what
        they say.
        """
        self.close()
        self.files, self.active, self.dirty, self.full = {}, {}, set(), set()
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
        """Return the file that is written for *place*; it need not exist yet."""
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
            ArchiveFull: there is no room; nothing is kept of them.
            FileLost: a file is gone; nothing is kept of them.
            ArchiveFailed: the disk failed.
        """
        done: list[tuple[OutputFile, int, Tail | None]] = []
        try:
            for file, data, tail in appends:
                done.append((file, file.length, file.tail))
                self._check_room(len(data))
                self._write(file, data)
                file.length += len(data)
                file.tail = tail
        except (ArchiveFull, ArchiveFailed, FileLost):
            for file, length, tail in reversed(done):
                file.length, file.tail = length, tail
                self._cut(file)
            raise
        now_ns = time.time_ns()
        for file, length, _ in done:
            file.written_ns = now_ns
            self.disk_bytes += file.length - length
            self.dirty.add(file)
            self._note_full(file)

    def lose(self, lost: FileLost) -> None:
        """Give up a file that somebody has taken away; a new one takes its place."""
        file = lost.file
        self.damage.add(file.path, file.length, lost.why)
        self.descriptors.close((self, file.number))
        if self.active.get(file.place) is file:
            del self.active[file.place]
        self.full.discard(file)
        self.disk_bytes -= file.disk_bytes
        file.stage = Stage.GONE
        self.dirty.add(file)

    def forget(self, file: OutputFile) -> None:
        """Know nothing of *file* any more: it was removed."""
        self.descriptors.close((self, file.number))
        with self.lock:
            if self.files.pop(file.number, None) is not None and file.stage is not Stage.GONE:
                self.disk_bytes -= file.disk_bytes

    def packed(self, file: OutputFile, row: FileRow) -> None:
        """Know that *file* is compressed now, as *row* says."""
        with self.lock:
            self.disk_bytes += row.size - file.disk_bytes
            file.path, file.stage, file.size, file.committed = row.path, row.stage, row.size, row

    def sync(self, file: OutputFile) -> None:
        """Make the bytes of *file* durable.

        Raises:
            OSError: they are not.
        """
        with self.descriptors.borrow((self, file.number), lambda: self._open(file)) as descriptor:
            if not os.fstat(descriptor).st_nlink:
                raise OSError(errno.ENOENT, f"{file.path} was taken away")
            self.descriptors.sync(descriptor)

    def scratch_of(self, file: OutputFile) -> Path:
        """Return where the first bytes of *file* are written."""
        return self.scratch / str(file.number)

    def close(self) -> None:
        """Close all descriptors."""
        self.descriptors.close_all(self)

    def _write(self, file: OutputFile, data: bytes) -> None:
        view, offset = memoryview(data), file.length
        try:
            with self.descriptors.borrow((self, file.number), lambda: self._open(file)) as opened:
                while view:
                    written = self.descriptors.write(opened, view, offset)
                    offset, view = offset + written, view[written:]
        except (FileNotFoundError, NotAFile, Blocked) as error:
            if file.committed is None or file.length != file.committed.length:
                why = f"{error}; it held lines that are not committed, and are read again"
                raise ArchiveFailed(f"{self.root / file.path} was taken away: {why}") from error
            raise FileLost(file, str(error)) from error
        except OSError as error:
            raise disk_error(error, f"write {file.path}", self.root) from error

    def _open(self, file: OutputFile) -> int:
        if not file.is_scratch:
            return beneath.open_file(self.root, file.path, os.O_RDWR)
        flags = os.O_RDWR | os.O_CLOEXEC | (0 if file.length else os.O_CREAT)
        return os.open(self.scratch_of(file), flags, beneath.FILE_MODE)

    def _cut(self, file: OutputFile) -> None:
        """Free what was written beyond the length of *file*; it is overwritten if that fails."""
        try:
            with self.descriptors.borrow((self, file.number), lambda: self._open(file)) as opened:
                os.ftruncate(opened, file.length)
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
            full = OSError(errno.ENOSPC, f"{free} bytes are free, and some must stay so")
            raise disk_error(full, "write", self.root)
        self._unchecked_bytes = 0

    def _note_full(self, file: OutputFile) -> None:
        if file.length >= self.rotate_bytes and file.stage is Stage.ACTIVE:
            self.full.add(file)
