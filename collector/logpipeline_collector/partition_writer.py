"""Decides which bytes of a partition's messages are new, writes these into a sink, and commits them
together with what is known of their sources.

All methods belong to the thread that takes messages, except those that name a thread of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from logpipeline import wire
from logpipeline.checksum import Checksum, extend
from logpipeline.deduplication import Decision, Loss, SourceState, counted
from logpipeline.extents import Repeat, Sums
from logpipeline.records import Committed, Question, Reached
from logpipeline_collector.sink import LocalCommit, Removed, Sink, SourceName
from logpipeline_collector.sources import Sources, decode_snapshot, encode_snapshot


class PayloadNeeded(Exception):
    """What a collector made of a message depends on its payload."""


@dataclass(frozen=True, slots=True, eq=False)
class PendingCommit:
    """A commit that is prepared: everything that was taken until then. Taking goes on meanwhile."""

    commit: LocalCommit
    mark: Any
    sources: Mapping[SourceName, SourceState | None]


class PartitionWriter:
    """Writes one partition into *sink*.

    *duplicates*, *late_ranges*, *cut_bytes*, *contradicted_bytes* and *unknown_chains* count what
    was met since the opening.
    """

    def __init__(self, sink: Sink[Any]) -> None:
        self.sink = sink
        self.duplicates = self.late_ranges = self.cut_bytes = self.unknown_chains = 0
        self.contradicted_bytes = 0
        self._sources = Sources()
        self._last: LocalCommit | None = None
        self._load()

    @property
    def missing_bytes(self) -> int:
        """Bytes of all sources that never came."""
        return counted(self._sources.missing_bytes)

    @property
    def lost_bytes(self) -> int:
        """Bytes of all sources that shippers named as lost."""
        return counted(self._sources.lost_bytes)

    @property
    def forgotten_sources(self) -> int:
        """See `Sources.forgotten`."""
        return self._sources.forgotten

    @property
    def lines(self) -> int:
        """Lines that were written."""
        return self.sink.lines_written

    @property
    def dirty_bytes(self) -> int:
        """Bytes that were written since the last commit was prepared."""
        return self.sink.dirty_bytes

    @property
    def damaged_bytes(self) -> int:
        """Committed bytes that the disk or another program took away, since the first opening."""
        return self.sink.damaged_bytes

    @property
    def newly_damaged_bytes(self) -> int:
        """Those of `damaged_bytes` that were found by this opening, and since."""
        return self.sink.newly_damaged_bytes

    @property
    def removed(self) -> Removed:
        """What retention removed since the opening."""
        return self.sink.removed

    def committed(self) -> LocalCommit | None:
        """Return the last commit of this sink."""
        return self.sink.last()

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
            SinkFull: there is no room; nothing was written, and it may be given again.
            SinkFailed: the disk failed.
        """
        if batch is None:
            self.sink.write_foreign(host, payload, time_ns)
            return
        repeat = Repeat.READ if is_read_again else None
        decision, data = read_new(self._sources, host, batch, payload, repeat=repeat)
        if decision.ranges:
            self.sink.write(host, batch, data, decision.ranges, time_ns)
        self._sources.learn(host, batch, decision, sequence=sequence)
        self.duplicates += not decision.ranges
        self.cut_bytes += decision.cut_bytes
        self.late_ranges += sum(part.is_late for part in decision.ranges)
        self.unknown_chains += decision.is_unknown_chain
        self.contradicted_bytes += decision.contradicted

    def begin_midway(self) -> None:
        """Start each source at its first seen offset: older bytes are not expected."""
        self._sources.is_from_midway = True

    def expect_all(self) -> None:
        """Expect of sources that are not known yet all of their bytes again."""
        self._sources.is_from_midway = False

    def is_begun_by(self, host: str, batch: wire.Batch) -> bool:
        """Return whether the first byte of *batch* would count as the begin of its source."""
        return self._sources.is_begun_by(host, batch)

    def learn(
        self, host: str, batch: wire.Batch, payload: bytes | None, *, is_believed: bool = False
    ) -> None:
        """Note what another collector has written of *batch*, by the rule by which it did.

        Raises:
            BadMessage: it wrote nothing of it.
            PayloadNeeded: its headers do not decide it, and are not believed; give the *payload*
                too.
        """
        data = _Payload(batch, payload)
        decision = _decide(self._sources, host, batch, None if is_believed else data.sum_at)
        if payload is not None and (decision.ranges or batch.lost):
            data.decode()
        self._sources.learn(host, batch, decision)

    def prepare(self, reached: Reached, *, epoch: int, since: Reached) -> PendingCommit:
        """Return a commit of everything that was taken so far; *since* is how far the stream was
        read before, which a sink that never committed cannot know.
        """
        last = self._last
        commit = LocalCommit(
            number=last.number + 1 if last is not None else 1,
            epoch=epoch,
            position=reached.position,
            rollbacks=reached.rollbacks or 0,
            previous=(last.epoch, last.reached) if last is not None else (epoch, since),
        )
        return PendingCommit(commit, self.sink.mark(), self._sources.take_changes())

    def write(self, pending: PendingCommit) -> None:
        """Make *pending* durable in the sink; call it in a thread.

        Raises:
            SinkFull: it is not committed; the same may be given again.
            SinkFailed: it is not committed, and cannot be repeated: the process has to end.
        """
        self.sink.commit(pending.commit, pending.mark, pending.sources)
        self._last = pending.commit

    def confirm(self, pending: PendingCommit) -> None:
        """Note that the group knows of *pending*: shippers may hear of it, upkeep may go on."""
        self._sources.commit(pending.commit.number, pending.sources)
        self.sink.confirm()

    def undo(self) -> None:
        """Take the last commit back, as if it had never been made."""
        self.sink.undo()
        self._load()

    def discard(self) -> None:
        """Take back everything that is not committed."""
        self.sink.discard()
        self._load()

    def changed_since(self, commit: int) -> tuple[int, list[tuple[str, Committed]]]:
        """Return the number of the last commit that the group knows of, and the sources that
        changed after *commit*, with hosts.
        """
        return self._sources.changed_since(commit)

    def asked(self, host: str, question: Question) -> list[Committed]:
        """Return how far the generations that *question* asks for are committed."""
        return self._sources.asked(host, question)

    def missing(self) -> list[tuple[str, str, int]]:
        """Return host, source and bytes of what never came, the most first."""
        return sorted(self._sources.missing(), key=lambda row: -row[2])

    def losses(self) -> list[tuple[str, str, Loss]]:
        """Return host, source and loss for all that shippers named as lost, the newest first."""
        return sorted(self._sources.losses(), key=lambda row: -row[2].time_ns)

    def export_sources(self) -> bytes:
        """Return what is known of all sources as committed, for another folder to go on from; call
        it in a thread.
        """
        return encode_snapshot(self.sink.source_rows())

    def import_sources(self, exported: bytes) -> None:
        """Forget what is known of sources, and take over what `export_sources` returned (empty:
        nothing), from the next commit on.

        Raises:
            BadSnapshot: *exported* is not a snapshot.
        """
        self._sources.replace(decode_snapshot(exported))

    def close(self) -> None:
        """Close the sink; what is not committed is taken back by the next opening."""
        self.sink.close()

    @property
    def bytes(self) -> int:
        """Bytes that were written. (Last, for its name hides the type's from what follows.)"""
        return self.sink.bytes_written

    def _load(self) -> None:
        """Know what is committed, and nothing else."""
        self._last = self.sink.last()
        self._sources.load(self.sink.sources(), self._last)


def read_new(
    sources: Sources, host: str, batch: wire.Batch, payload: bytes, *, repeat: Repeat | None = None
) -> tuple[Decision, bytes]:
    """Return which bytes of a message are new by what is known of *sources*, and its bytes; these
    are empty where nothing is new. Nothing is changed by it.

    Raises:
        BadMessage: it does not continue what is known, or its payload is not what its headers say.
    """
    data = _Payload(batch, payload)
    decision = _decide(sources, host, batch, data.sum_at, repeat=repeat)
    # A loss has nothing to write, but is believed only with the payload that it names: none.
    return decision, data.decode() if decision.ranges or batch.lost else b""


def _decide(
    sources: Sources,
    host: str,
    batch: wire.Batch,
    sums: Sums | None,
    *,
    repeat: Repeat | None = None,
) -> Decision:
    decision = sources.decide(host, batch, repeat=repeat, sums=sums)
    if decision.is_misfit:
        raise wire.BadMessage(
            "misfit", f"{batch.start}-{batch.end} does not continue what is collected"
        )
    return decision


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
