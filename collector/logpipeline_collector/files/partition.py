"""The archive of one partition: takes messages, decides what of them is new, writes, commits, and
takes back.

Messages are taken in one thread; commits and maintenance may run in another one meanwhile.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from typing import Self

from logpipeline import wire
from logpipeline.checksum import Checksum, extend
from logpipeline.knowledge import Decision, Loss, Range
from logpipeline.records import Committed, Question, Reached
from logpipeline.strands import Repeat, Sums
from logpipeline_collector.files import commit, state
from logpipeline_collector.files.commit import Mark, PendingCommit, recover
from logpipeline_collector.files.config import FilesConfig
from logpipeline_collector.files.maintenance import Upkeep
from logpipeline_collector.files.output import Descriptors, OutputFiles, Writer
from logpipeline_collector.files.sources import Sources
from logpipeline_collector.files.state import (
    LocalCommit,
    SinkBroken,
    SinkBusy,
    SinkFailed,
    SinkFull,
    State,
)

__all__ = [
    "LocalCommit",
    "PartitionFiles",
    "PendingCommit",
    "SinkBroken",
    "SinkBusy",
    "SinkFailed",
    "SinkFull",
]

PRIVATE_MODE = 0o750


class PartitionFiles:
    """Files and state of one partition in one folder; see the module."""

    def __init__(
        self, config: FilesConfig, partition: int, descriptors: Descriptors, lock: int
    ) -> None:
        self.config = config
        self.partition = partition
        self.dirty_bytes = 0
        self.duplicates = self.late_ranges = self.cut_bytes = self.unknown_chains = 0
        self.contradicted_bytes = 0
        self._flock = lock
        # Held by commits and maintenance, which never overlap.
        self._working = threading.Lock()
        path = config.state(partition)
        self._state = State(path)
        self._output = OutputFiles(
            config.logs,
            path.with_suffix(".new"),
            descriptors,
            config.rotate_bytes,
            self._state.damage,
        )
        self._writer = Writer(config, partition, self._output)
        self._upkeep = Upkeep(config, self._output, self._state)
        self._sources = Sources()
        self._last: LocalCommit | None = None
        self._unconfirmed: PendingCommit | None = None
        self._load()

    @classmethod
    def open(cls, config: FilesConfig, partition: int, descriptors: Descriptors) -> Self:
        """Open the partition's files, and take back whatever was not committed.

        Raises:
            SinkBusy: another process has them open.
            SinkBroken: the state cannot be read; the message says what to do.
        """
        path = config.state(partition)
        path.with_suffix(".new").mkdir(PRIVATE_MODE, parents=True, exist_ok=True)
        config.logs.mkdir(parents=True, exist_ok=True)
        lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise SinkBusy(
                f"partition {partition} in {config.folder} is written by another process; give "
                "each collector a folder of its own"
            ) from None
        try:
            return cls(config, partition, descriptors, lock)
        except BaseException:
            os.close(lock)
            raise

    @property
    def missing_bytes(self) -> int:
        """Bytes of all sources that never came."""
        return self._sources.missing_bytes

    @property
    def lost_bytes(self) -> int:
        """Bytes of all sources that shippers named as lost."""
        return self._sources.lost_bytes

    @property
    def lines(self) -> int:
        """Lines that were written."""
        return self._writer.lines

    @property
    def damaged_bytes(self) -> int:
        """Committed bytes that the disk, or another program, took away, ever since."""
        return self._state.damage.bytes

    @property
    def retained_files(self) -> int:
        """Files that were removed because of their age, or for want of room."""
        return self._upkeep.retention.removed.total()

    def committed(self) -> LocalCommit | None:
        """Return the last commit of this folder."""
        return self._state.last()

    def take(
        self,
        host: str,
        batch: wire.Batch | None,
        payload: bytes,
        *,
        sequence: int,
        time_ns: int,
        is_read_again: bool = False,
    ) -> None:
        """Write what is new of a message; *batch* None is a message without our headers. The
        server has it at *sequence*, since *time_ns*; *is_read_again* says that it was taken before,
        when the stream had not gone back yet.

        Raises:
            BadMessage: its payload is not what its headers say; nothing was written.
            SinkFull: the disk is; nothing was written, and it may be given again.
            SinkFailed: the disk failed.
        """
        with self._output.lock:
            if batch is None:
                self.dirty_bytes += self._writer.write_foreign(host, payload, time_ns)
                return
            data = _Payload(batch, payload)
            decision = self._decide(host, batch, data.sum_at, is_read_again=is_read_again)
            if decision.ranges or batch.lost:
                self._write(host, batch, data.decode(), decision.ranges, time_ns)
            self._sources.learn(host, batch, decision, sequence=sequence)
            self.duplicates += not decision.ranges
            self.cut_bytes += decision.cut_bytes
            self.late_ranges += sum(part.is_late for part in decision.ranges)
            self.unknown_chains += decision.is_unknown_chain
            self.contradicted_bytes += decision.contradicted

    def _decide(
        self, host: str, batch: wire.Batch, sums: Sums | None, *, is_read_again: bool = False
    ) -> Decision:
        repeat = Repeat.READ if is_read_again else None
        decision = self._sources.decide(host, batch, repeat=repeat, sums=sums)
        if decision.is_misfit:
            raise wire.BadMessage(
                "misfit", f"{batch.start}-{batch.end} does not continue what is archived"
            )
        return decision

    def _write(
        self, host: str, batch: wire.Batch, data: bytes, ranges: tuple[Range, ...], time_ns: int
    ) -> None:
        if ranges:
            self.dirty_bytes += self._writer.write(host, batch, data, ranges, time_ns)

    def begin_midway(self) -> None:
        """Expect sources to have older bytes, which nobody here wants."""
        self._sources.is_from_midway = True

    def learn(
        self, host: str, batch: wire.Batch, payload: bytes | None, *, is_believed: bool = False
    ) -> None:
        """Note what another collector has archived of *batch*, by the rule by which it did.

        Raises:
            BadMessage: it archived nothing.
            PayloadNeeded: its headers do not tell, and are not believed; give the *payload* too.
        """
        data = _Payload(batch, payload)
        with self._output.lock:
            decision = self._decide(host, batch, None if is_believed else data.sum_at)
            if payload is not None and (decision.ranges or batch.lost):
                data.decode()
            self._sources.learn(host, batch, decision)

    def keep_succession(self, epoch: int, text: str) -> None:
        """Keep *text*, what the group's record tells of former folders when *epoch* begins here. It
        says which of their lines count. To be called before the epoch's first commit.

        Raises:
            SinkFull: there is no room for it.
        """
        with self._working:
            self._state.keep_succession(epoch, text)

    def prepare(self, reached: Reached, *, epoch: int, since: Reached) -> PendingCommit:
        """Return a commit of all that was taken so far; *since* is how far it was before, which a
        folder that never committed cannot know.
        """
        with self._output.lock:
            last = self._last
            commit = LocalCommit(
                number=last.number + 1 if last is not None else 1,
                epoch=epoch,
                position=reached.position,
                rollbacks=reached.rollbacks or 0,
                previous=(last.epoch, last.reached) if last is not None else (epoch, since),
            )
            files = {file: Mark(file.length, file.tail) for file in self._output.dirty}
            self._output.dirty = set()
            self.dirty_bytes = 0
            return PendingCommit(commit, files, self._sources.take_changes())

    def write(self, pending: PendingCommit) -> None:
        """Make *pending* durable in this folder; call it in a thread.

        Raises:
            SinkFull: it is not; the same may be given again.
            SinkFailed: it is not, and cannot be repeated: the process has to end.
        """
        with self._working:
            self._unconfirmed = pending
            commit.write(pending, self._output, self._state)
            self._last = pending.commit

    def confirm(self, pending: PendingCommit) -> None:
        """Note that the group knows of *pending*: its files may be rotated, its sources told."""
        with self._output.lock:
            self._sources.commit(pending.commit.number, pending.sources)
            self._unconfirmed = None

    def undo(self) -> None:
        """Take the last commit back, as if it had never been made."""
        with self._working:
            self._state.undo()
            self._load()

    def discard(self) -> None:
        """Take back all that is not committed."""
        with self._working:
            self._load()

    def maintain(self, now_s: float) -> None:
        """Rotate, compress and remove what is due; call it in a thread, also while messages are
        taken.

        Raises:
            SinkFull: there is no room for it; what was due stays due.
            SinkFailed: the disk failed.
        """
        with self._working:
            # Only what the group knows of: what may have to be undone must look as it did.
            if self._unconfirmed is None:
                self._upkeep.run(now_s, time.monotonic)

    def is_rotation_due(self, now_s: float) -> bool:
        """Return whether `rotate` would rotate something."""
        with self._output.lock:
            return self._upkeep.is_rotation_due(now_s)

    def rotate(self, now_s: float) -> None:
        """Do of `maintain` only the rotation."""
        with self._working:
            if self._unconfirmed is None:
                self._upkeep.rotate(now_s)

    def set_aside(self, now_s: float) -> None:
        """Rotate every file: somebody else has written what follows, and what we write follows
        that. Call it in a thread, with nothing taken since the last commit.

        Raises:
            SinkFull: there is no room for it.
            SinkFailed: the disk failed.
        """
        with self._working:
            self._upkeep.set_aside(now_s)

    def changed_since(self, commit: int) -> tuple[int, list[tuple[str, Committed]]]:
        """Return the number of the last commit that the group knows of, and the sources that
        changed after *commit*, with hosts.
        """
        with self._output.lock:
            return self._sources.changed_since(commit)

    def asked(self, host: str, question: Question) -> list[Committed]:
        """Return how far the generations of *host* are committed that *question* asks for."""
        with self._output.lock:
            return self._sources.asked(host, question)

    def missing(self) -> list[tuple[str, str, int]]:
        """Return host, source and bytes of what never came, the most first."""
        with self._output.lock:
            rows = list(self._sources.missing())
        return sorted(rows, key=lambda row: -row[2])

    def losses(self) -> list[tuple[str, str, Loss]]:
        """Return host, source and loss for all that shippers named as lost, the newest first."""
        with self._output.lock:
            rows = list(self._sources.losses())
        return sorted(rows, key=lambda row: -row[2].time_ns)

    def export_sources(self) -> bytes:
        """Return what is known of all sources as committed, for another folder to go on from."""
        return state.encode_snapshot(self._state.source_rows())

    def import_sources(self, told: bytes) -> None:
        """Forget what is known of sources, and take over what `export_sources` told (empty:
        nothing), from the next commit on.

        Raises:
            BadSnapshot: it is none.
        """
        sources = state.decode_snapshot(told)
        with self._output.lock:
            self._sources.replace(sources)

    def close(self) -> None:
        """Close the files and let go of the folder; what is not committed is taken back at the
        next opening.
        """
        with self._working:
            self._upkeep.close()
            self._output.close()
            self._state.close()
            os.close(self._flock)

    @property
    def bytes(self) -> int:
        """Bytes that were written. (Last, for its name hides the type's from what follows.)"""
        return self._writer.bytes

    def _load(self) -> None:
        """Bring memory and files to what is committed."""
        with self._output.lock:
            recover(self._state, self._output)
            self._last = self._state.last()
            self._sources.load(self._state.sources(), self._last)
            self._unconfirmed = None
            self.dirty_bytes = 0
        self._upkeep.load()


class PayloadNeeded(Exception):
    """What a collector made of a message depends on its payload."""


class _Payload:
    """The payload of a batch, decoded when it is looked at; None is one that was not read."""

    def __init__(self, batch: wire.Batch, payload: bytes | None) -> None:
        self._batch = batch
        self._payload = payload
        self._decoded: bytes | None = None

    def decode(self) -> bytes:
        """Return the batch's bytes.

        Raises:
            BadMessage: they are not what its headers say.
        """
        if self._decoded is None:
            if self._payload is None:
                raise PayloadNeeded
            self._decoded = wire.decode_payload(self._batch, self._payload)
        return self._decoded

    def sum_at(self, offset: int) -> Checksum:
        """Return the running checksum at *offset* in the batch."""
        sums = self._batch.checksums
        assert sums is not None
        return extend(sums.before, self.decode()[: offset - self._batch.start])
