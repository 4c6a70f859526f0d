"""The archive of one partition: takes messages, decides what of them is new, writes, commits, and
takes back.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
import zlib
from dataclasses import dataclass, replace
from typing import Self

import zstandard

from logpipeline import wire
from logpipeline.failpoints import reach
from logpipeline.records import Committed, StreamPosition
from logpipeline_collector.archive import knowledge, recovery, upkeep
from logpipeline_collector.archive.config import ArchiveConfig
from logpipeline_collector.archive.descriptors import Descriptors
from logpipeline_collector.archive.errors import (
    ArchiveBroken,
    ArchiveBusy,
    ArchiveFailed,
    ArchiveFull,
)
from logpipeline_collector.archive.knowledge import Knowledge
from logpipeline_collector.archive.naming import Template, origin_of
from logpipeline_collector.archive.output import ActiveFile, OutputFiles
from logpipeline_collector.archive.render import pieces, render
from logpipeline_collector.archive.state import LocalCommit, SourceName, State
from logpipeline_collector.archive.syncing import sync_files

__all__ = [
    "ArchiveBroken",
    "ArchiveBusy",
    "ArchiveFailed",
    "ArchiveFull",
    "PartitionArchive",
    "PendingCommit",
]

log = logging.getLogger(__name__)

SNAPSHOT_VERSION = 1
SNAPSHOT_BYTES_MAX = 512 * 1024 * 1024
_NOTHING = Knowledge()


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """What was dirty when the commit was prepared; taking messages may go on meanwhile."""

    commit: LocalCommit
    files: dict[str, ActiveFile]
    sources: dict[SourceName, Knowledge]
    intents: object


class PartitionArchive:
    """Files and state of one partition in one folder; see the module."""

    def __init__(
        self, config: ArchiveConfig, partition: int, descriptors: Descriptors, lock: int
    ) -> None:
        self.config = config
        self.partition = partition
        self._flock = lock
        self._lock = threading.RLock()
        self._pods = Template(config.path, config.cluster, partition)
        self._plain = Template(config.file_path, config.cluster, partition)
        path = config.state(partition)
        self.state = State(path)
        self.output = OutputFiles(config.logs, descriptors, path.with_suffix(".intents"))
        self.duplicates = self.late_ranges = self.cut_bytes = self.unknown_chains = 0
        self.lines = self.bytes = self.damaged_bytes = self.retained_files = 0
        self._sources: dict[SourceName, Knowledge] = {}
        self._changed: dict[SourceName, Knowledge] = {}
        self._changed_in: dict[SourceName, int] = {}
        self._last: LocalCommit | None = None
        self._confirmed = self._missing = self._dirty_bytes = 0
        self._load()

    @classmethod
    def open(cls, config: ArchiveConfig, partition: int, descriptors: Descriptors) -> Self:
        """Open the partition's files, and take back whatever was not committed.

        Raises:
            ArchiveBusy: another process has them open.
            ArchiveBroken: the state cannot be read; the message says what to do.
        """
        path = config.state(partition)
        path.parent.mkdir(parents=True, exist_ok=True)
        config.logs.mkdir(parents=True, exist_ok=True)
        lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise ArchiveBusy(
                f"partition {partition} in {config.folder} is written by another process; give "
                "each collector a folder of its own"
            ) from None
        try:
            return cls(config, partition, descriptors, lock)
        except BaseException:
            os.close(lock)
            raise

    @property
    def dirty_bytes(self) -> int:
        """Bytes that were written since the last commit was prepared."""
        return self._dirty_bytes

    @property
    def missing_bytes(self) -> int:
        """Bytes of all sources that never came."""
        return self._missing

    def committed(self) -> LocalCommit | None:
        """Return the last commit of this folder."""
        return self.state.last()

    def take(
        self, host: str, batch: wire.Batch | None, payload: bytes, *, sequence: int, time_ns: int
    ) -> None:
        """Write what is new of a message; *batch* None is a message without our headers.

        Raises:
            BadMessage: its payload is not what its headers say; nothing was written.
            ArchiveFull: the disk is; nothing was written, and it may be given again.
            ArchiveFailed: the disk failed.
        """
        with self._lock:
            if batch is None:
                self._write(host, None, payload + b"\n", time_ns)
                return
            name = (host, batch.source)
            before = self._sources.get(name, _NOTHING)
            decision = knowledge.decide(before, batch)
            data = wire.decode_payload(batch, payload)
            written: list[tuple[ActiveFile, int, bool]] = []
            try:
                for part in decision.ranges:
                    whole = part.start == batch.start and part.end == batch.end
                    piece = (
                        data if whole else data[part.start - batch.start : part.end - batch.start]
                    )
                    written += self._write(host, batch, piece, time_ns)
            except ArchiveFull:
                for file, length, was_open in reversed(written):
                    self.output.cut(file, length)
                    file.is_line_open = was_open
                raise
            self._learn(name, before, decision)

    def take_headers(self, host: str, batch: wire.Batch) -> None:
        """Note that another collector has archived *batch*."""
        with self._lock:
            name = (host, batch.source)
            before = self._sources.get(name, _NOTHING)
            self._learn(name, before, knowledge.decide(before, batch), is_counted=False)

    def prepare(
        self, position: StreamPosition, *, epoch: int, rollbacks: int, since: StreamPosition
    ) -> PendingCommit:
        """Return a commit of all that was taken so far; *since* is the position before it, which a
        folder that never committed cannot know.
        """
        with self._lock:
            last = self._last
            now = LocalCommit(
                number=last.number + 1 if last else 1,
                epoch=epoch,
                position=position,
                rollbacks=rollbacks,
                previous=(last.epoch, last.position) if last else (epoch, since),
            )
            files = {path: replace(file) for path, file in self.output.dirty.items()}
            for file in self.output.dirty.values():
                file.is_new = False
            sources, self._changed = self._changed, {}
            self.output.dirty, self._dirty_bytes = {}, 0
            self._last = now
            return PendingCommit(now, files, sources, self.output.next_intents())

    def write(self, commit: PendingCommit) -> None:
        """Make *commit* durable in this folder; call it in a thread.

        Raises:
            ArchiveFull: it is not; the same may be given again.
            ArchiveFailed: it is not, and cannot be repeated: the process has to end.
        """
        reach("collector.after-write")
        try:
            sync_files(self.config.logs, commit.files.values())
            reach("collector.after-fsync")
            rows = {path: file.row() for path, file in commit.files.items()}
            self.state.commit(commit.commit, rows, commit.sources)
            reach("collector.after-state")
        except ArchiveFull:
            raise
        except Exception as error:
            raise ArchiveFailed(
                f"partition {self.partition} could not be committed: {error}"
            ) from error
        with self._lock:
            for path, file in commit.files.items():
                if active := self.output.active.get(path):
                    active.committed = file.length
            for name in commit.sources:
                self._changed_in[name] = commit.commit.number
        recovery.drop_intents(commit.intents)

    def confirm(self, commit: PendingCommit) -> None:
        """Note that the group knows of *commit*: its files may be rotated."""
        with self._lock:
            self._confirmed = commit.commit.number

    def undo(self) -> None:
        """Take the last commit back, as if it had never been made."""
        with self._lock:
            self.state.undo()
            self._load()

    def discard(self) -> None:
        """Take back all that is not committed."""
        with self._lock:
            self.output.close_all()
            self._load()

    def is_rotation_due(self, now_s: float) -> bool:
        """Return whether a file is to be rotated as soon as all of it is committed."""
        with self._lock:
            return upkeep.is_rotation_due(self, now_s)

    def maintain(self, now_s: float) -> None:
        """Rotate, compress and remove what is due; call it in a thread."""
        self.rotate(now_s)
        upkeep.maintain(self, now_s)

    def rotate(self, now_s: float) -> None:
        """Rotate what is due; call it in a thread, while nothing is taken: a file that grew since
        the last commit stays.
        """
        upkeep.rotate(self, self._lock, now_s)

    @property
    def is_confirmed(self) -> bool:
        """Whether the group knows of this folder's last commit."""
        return self._last is not None and self._confirmed == self._last.number

    def changed_since(self, commit: int) -> tuple[int, list[tuple[str, Committed]]]:
        """Return the number of the last commit, and the sources that changed after *commit*, with
        hosts.
        """
        with self._lock:
            names = [name for name, number in self._changed_in.items() if number > commit]
            return self._confirmed, [
                (host, committed_of(source, self._sources[host, source])) for host, source in names
            ]

    def sources_of(self, host: str) -> list[Committed]:
        """Return how far the sources of *host* are archived."""
        with self._lock:
            return [
                committed_of(source, known)
                for (owner, source), known in self._sources.items()
                if owner == host and known.generations
            ]

    def missing(self) -> list[tuple[str, str, int]]:
        """Return host, source and bytes of what never came, the most first."""
        with self._lock:
            rows = [
                (*name, known.missing) for name, known in self._sources.items() if known.missing
            ]
        return sorted(rows, key=lambda row: -row[2])

    def export_sources(self) -> bytes:
        """Return what is known of all sources as committed, for another folder to go on from."""
        with self._lock:
            known = self.state.sources()
        rows = [[host, source, knowledge.encode(k)] for (host, source), k in known.items()]
        body = json.dumps({"version": SNAPSHOT_VERSION, "sources": rows}).encode()
        return zlib.crc32(body).to_bytes(4, "big") + zstandard.ZstdCompressor(level=1).compress(
            body
        )

    def import_sources(self, snapshot: bytes) -> None:
        """Forget what is known of sources, and take over what `export_sources` told (empty:
        nothing).

        Raises:
            ValueError: it is no snapshot.
        """
        sources: dict[SourceName, Knowledge] = {}
        if snapshot:
            try:
                body = zstandard.ZstdDecompressor().decompress(
                    snapshot[4:], max_output_size=SNAPSHOT_BYTES_MAX
                )
                if zlib.crc32(body).to_bytes(4, "big") != snapshot[:4]:
                    raise ValueError("its checksum does not match")
                data = json.loads(body)
                if data["version"] != SNAPSHOT_VERSION:
                    raise ValueError(
                        f"version {data['version']}; this program knows {SNAPSHOT_VERSION}"
                    )
                sources = {(h, s): knowledge.decode(k) for h, s, k in data["sources"]}
            except (zstandard.ZstdError, KeyError, TypeError) as error:
                raise ValueError(f"no snapshot of sources: {error}") from error
        with self._lock:
            self.state.import_sources(sources)
            self._load()

    def close(self) -> None:
        """Close the files and let go of the folder; what is not committed is taken back at the
        next opening.
        """
        with self._lock:
            self.output.close_all()
            self.state.close()
            os.close(self._flock)

    def _load(self) -> None:
        """Bring memory and files to what is committed."""
        self.damaged_bytes += recovery.recover(self.state, self.output, self.config.compression)
        self._sources = self.state.sources()
        self._missing = sum(known.missing for known in self._sources.values())
        self._last = self.state.last()
        self._confirmed = 0
        self._changed, self._changed_in = {}, {}
        self._dirty_bytes = 0

    def _learn(
        self,
        name: SourceName,
        before: Knowledge,
        decision: knowledge.Decision,
        *,
        is_counted: bool = True,
    ) -> None:
        self._sources[name] = self._changed[name] = decision.after
        self._missing += decision.after.missing - before.missing
        if is_counted:
            self.duplicates += not decision.ranges
            self.cut_bytes += decision.cut_bytes
            self.late_ranges += sum(part.is_late for part in decision.ranges)
            self.unknown_chains += decision.is_unknown_chain

    def _write(
        self, host: str, batch: wire.Batch | None, data: bytes, time_ns: int
    ) -> list[tuple[ActiveFile, int, bool]]:
        """Write *data* and return what to cut where, if a later part cannot be written."""
        origin = origin_of(host, batch)
        template = self._pods if batch is not None and batch.format == "cri" else self._plain
        written: list[tuple[ActiveFile, int, bool]] = []
        for period, piece in pieces(template, batch, data, time_ns):
            text = render(self.config.output, origin, batch, piece, time_ns)
            file = self.output.get(template.path(origin, period), host)
            length, was_open = file.length, file.is_line_open
            if text and was_open and not (batch is not None and batch.starts_inside_line):
                # The line before ended with its file, without a newline: this one is another.
                text = b"\n" + text
            try:
                self.output.write(file, text)
            except ArchiveFull:
                for other, other_length, other_open in reversed(written):
                    self.output.cut(other, other_length)
                    other.is_line_open = other_open
                raise
            if text:
                file.is_line_open = not text.endswith(b"\n")
            written.append((file, length, was_open))
            self._dirty_bytes += len(text)
            self.bytes += len(text)
            # Counting again what the headers say would cost a seventh of the whole.
            is_as_sent = text is data and batch is not None and len(data) == batch.end - batch.start
            self.lines += batch.lines if batch and is_as_sent else text.count(b"\n")
        return written


def committed_of(source: str, known: Knowledge) -> Committed:
    """Return *known* as it is told to shippers."""
    last = known.generations[-1]
    holes = tuple((g.name, start, end) for g in known.generations for start, end in g.holes)
    return Committed(source, last.name, last.high, holes)
