"""A second implementation of sinks, as simple as can be: one journal a partition, to which each
commit appends one record. It shows that the contract asks for no folder of log files.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from components.sink_contract import Died
from logpipeline.deduplication import Range, SourceState, decode, encode
from logpipeline.wire import Batch
from logpipeline_collector.sink import LocalCommit, Removed, SinkBusy, SinkFull, SourceName

Record = dict[str, Any]
Lines = list[tuple[str, str, str]]
HEAD_BYTES = 8


class Faults:
    """Faults of the disk below a journal: no room, or a death in the midst of a commit."""

    def __init__(self) -> None:
        self.is_full = False
        self.steps_left = 0

    def reach(self) -> None:
        """Die here if it is time."""
        if self.steps_left:
            self.steps_left -= 1
            if not self.steps_left:
                raise Died


class JournalSink:
    """A `logpipeline_collector.sink.Sink`. Records are a commit, a succession, or the note that the
    last commit is settled: it cannot be taken back any more.
    """

    def __init__(self, path: Path, faults: Faults) -> None:
        self.lines_written = self.bytes_written = self.dirty_bytes = 0
        self.damaged_bytes = self.newly_damaged_bytes = 0
        self.removed = Removed()
        self._path = path
        self._faults = faults
        self._written: Lines = []
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise SinkBusy(f"{path} is written by another process") from None
        self._load()

    def write(
        self, host: str, batch: Batch, data: bytes, ranges: tuple[Range, ...], time_ns: int
    ) -> None:
        """See `Sink`."""
        for part in ranges:
            self._add(host, batch.source, data[part.start - batch.start : part.end - batch.start])

    def write_foreign(self, host: str, payload: bytes, time_ns: int) -> None:
        """See `Sink`."""
        self._add(host, "", payload + b"\n")

    def _add(self, host: str, source: str, data: bytes) -> None:
        self._written.append((host, source, data.decode("latin-1")))
        self.lines_written += data.count(b"\n")
        self.bytes_written += len(data)
        self.dirty_bytes += len(data)

    def mark(self) -> Lines:
        """Return what was written since the last mark."""
        written, self._written, self.dirty_bytes = self._written, [], 0
        return written

    def commit(
        self, commit: LocalCommit, mark: Lines, sources: Mapping[SourceName, SourceState | None]
    ) -> None:
        """See `Sink`."""
        changed = [(name, encode(known) if known else None) for name, known in sources.items()]
        self._append({"commit": commit.encode(), "lines": mark, "sources": changed})

    def confirm(self) -> None:
        """There is no upkeep that would have to wait for it."""

    def undo(self) -> None:
        """See `Sink`."""
        records = list(read(self._path))
        last = max(place for place, record in enumerate(records) if "commit" in record)
        kept = [*records[:last], *records[last + 1 :], {"settled": True}]
        other = self._path.with_suffix(".new")
        other.write_bytes(b"".join(map(framed, kept)))
        new = os.open(other, os.O_RDWR | os.O_CLOEXEC)
        os.fsync(new)
        fcntl.flock(new, fcntl.LOCK_EX)
        other.rename(self._path)
        os.close(self._file)
        self._file = new
        self._load()

    def discard(self) -> None:
        """See `Sink`."""
        self._load()

    def last(self) -> LocalCommit | None:
        """See `Sink`."""
        last = None
        for record in read(self._path):
            if "commit" in record:
                last = LocalCommit.decode(record["commit"])
            elif "settled" in record and last is not None:
                last = last._replace(previous=None)
        return last

    def sources(self) -> dict[SourceName, SourceState]:
        """See `Sink`."""
        return {tuple(json.loads(k)): decode(json.loads(v)) for k, v in self.source_rows()}

    def source_rows(self) -> list[tuple[str, str]]:
        """See `Sink`."""
        known: dict[str, Any] = {}
        for record in read(self._path):
            for name, value in record.get("sources", ()):
                known[json.dumps(name)] = value
        return [(name, json.dumps(value)) for name, value in known.items() if value is not None]

    def keep_succession(self, epoch: int, text: str) -> None:
        """See `Sink`."""
        self._append({"succession": (epoch, text)})

    def is_rotation_due(self, now_s: float) -> bool:
        """Nothing is ever rotated."""
        return False

    def rotate(self, now_s: float) -> None:
        """Nothing is ever rotated."""

    def maintain(self, now_s: float) -> None:
        """There is no upkeep."""

    def set_aside(self, now_s: float) -> None:
        """What follows stands in records of its own anyway."""

    def close(self) -> None:
        """See `Sink`."""
        os.close(self._file)

    def _load(self) -> None:
        self._written, self.dirty_bytes = [], 0
        self._end = sum(len(framed(record)) for record in read(self._path))
        self._truncate()

    def _truncate(self) -> None:
        os.ftruncate(self._file, self._end)
        self._sync()

    def _append(self, record: Record) -> None:
        data = framed(record)
        half = len(data) // 2
        self._faults.reach()
        os.pwrite(self._file, data[:half], self._end)
        if self._faults.is_full:
            self._truncate()
            raise SinkFull(errno.ENOSPC, "the disk is full", str(self._path))
        self._faults.reach()
        os.pwrite(self._file, data[half:], self._end + half)
        self._faults.reach()
        self._sync()
        self._faults.reach()
        self._end += len(data)

    def _sync(self) -> None:
        os.fsync(self._file)


class JournalStorage:
    """A `logpipeline_collector.sink.Storage`: the journals in *folder*."""

    sink: type[JournalSink] = JournalSink

    def __init__(self, folder: Path, faults: Faults) -> None:
        self._folder = folder
        self._faults = faults

    @property
    def open_files(self) -> int:
        """They are not counted."""
        return 0

    def partitions(self) -> list[int]:
        """See `Storage`."""
        return sorted(int(path.stem) for path in self._folder.glob("*.journal"))

    def open(self, partition: int) -> JournalSink:
        """See `Storage`."""
        return self.sink(self._folder / f"{partition}.journal", self._faults)


class Journals:
    """Journals as the suite of tests sees them; a subclass may plant a defect."""

    sink: type[JournalSink] = JournalSink

    def __init__(self) -> None:
        self.faults = Faults()

    def storage(self, folder: Path) -> JournalStorage:
        """Return the storage in *folder*."""
        storage = JournalStorage(folder, self.faults)
        storage.sink = self.sink
        return storage

    def listed(self, folder: Path) -> dict[SourceName, bytes]:
        """Return what complete records hold."""
        lines: dict[SourceName, bytes] = {}
        for path in folder.glob("*.journal"):
            for record in read(path):
                for host, source, text in record.get("lines", ()):
                    lines[host, source] = lines.get((host, source), b"") + text.encode("latin-1")
        return lines

    def leftover_bytes(self, folder: Path) -> int:
        """Return what stands behind the last complete record."""
        return sum(
            path.stat().st_size - sum(len(framed(record)) for record in read(path))
            for path in folder.glob("*.journal")
        )

    def succession(self, folder: Path) -> tuple[int, str]:
        """Return the last one that was kept."""
        found = (0, "")
        for path in folder.glob("*.journal"):
            for record in read(path):
                found = tuple(record.get("succession", found))
        return found

    @contextmanager
    def full(self) -> Iterator[None]:
        """Have no room for a whole record."""
        self.faults.is_full = True
        yield
        self.faults.is_full = False

    @contextmanager
    def dying(self, step: int) -> Iterator[None]:
        """Die at the *step*-th place of a commit."""
        self.faults.steps_left = step
        try:
            yield
        finally:
            self.faults.steps_left = 0


def framed(record: Record) -> bytes:
    """Return *record* with its length and checksum in front."""
    body = json.dumps(record, sort_keys=True).encode()
    return len(body).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body


def read(path: Path) -> Iterator[Record]:
    """Yield the complete records of a journal."""
    data = path.read_bytes()
    while len(data) >= HEAD_BYTES:
        size, crc = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:HEAD_BYTES], "big")
        body = data[HEAD_BYTES : HEAD_BYTES + size]
        if len(body) < size or zlib.crc32(body) != crc:
            return
        yield json.loads(body)
        data = data[HEAD_BYTES + size :]
