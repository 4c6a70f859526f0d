"""Takes a partition over from a collector with another folder: what it had archived must be known
here, source by source, before the first line is written.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace

from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.nats.pull import Delivered
from logpipeline.records import REFUSED_MAX, EpochRecord, StreamPosition
from logpipeline_collector.archive.partition import PayloadNeeded
from logpipeline_collector.intake import Intake
from logpipeline_collector.reading import ConsumerName, StreamReader
from logpipeline_collector.snapshots import Snapshot, SnapshotBroken, SnapshotStore
from logpipeline_collector.tenure import Tenure

log = logging.getLogger(__name__)

TAKE_TIMEOUT_S = 1.0
# Headers alone: a few hundred bytes a message.
PULL_BYTES = 2 * 1024 * 1024
# The event loop serves others after so many messages.
MESSAGES_AT_ONCE = 256
# A snapshot at release saves a successor some reading; it is not worth holding the release up.
SNAPSHOT_DEADLINE_S = 5.0


@dataclass(frozen=True, slots=True)
class Found:
    """What a predecessor left: its *snapshot*, or *why* there is none that can be used."""

    snapshot: Snapshot | None
    why: str = ""


async def find_snapshot(store: SnapshotStore, record: EpochRecord) -> Found:
    """Return the snapshot that *record* points to.

    Raises:
        NotSent, OutcomeUnknown, ApiError: the server could not be asked.
    """
    if not record.snapshot:
        return Found(None, "the last owner left no snapshot")
    try:
        snapshot = await store.read(record.snapshot)
    except SnapshotBroken as error:
        return Found(None, str(error))
    return Found(snapshot)


async def has_snapshot(store: SnapshotStore, record: EpochRecord) -> bool:
    """Return whether the snapshot that *record* points to is there; True where nobody can say."""
    try:
        return record.snapshot > 0 and await store.is_there(record.snapshot)
    except (NotSent, OutcomeUnknown, ApiError):
        return True


def import_snapshot(tenure: Tenure, found: Found) -> StreamPosition | None:
    """Take the snapshot's sources over, and return the position that they describe; without a
    snapshot that can be used nothing is known, and None returned.
    """
    why = found.why
    if found.snapshot is not None:
        try:
            tenure.archive.import_sources(found.snapshot.sources)
        except ValueError as error:
            why = str(error)
        else:
            return found.snapshot.position
    tenure.archive.import_sources(b"")
    if tenure.position.sequence > tenure.held.record.begun:
        log.warning(
            "no snapshot of the sources' positions; reading the whole stream",
            extra={"partition": tenure.partition, "reason": why},
        )
    return None


def is_past_gone(tenure: Tenure) -> bool:
    """Return whether the stream's headers no longer tell of all that was archived."""
    begun, stream = tenure.held.record.begun, tenure.stream_state
    return tenure.position.sequence > begun and stream is not None and stream.first > begun + 1


async def catch_up(
    js: JetStream, intake: Intake, tenure: Tenure, name: ConsumerName, start: StreamPosition
) -> int:
    """Bring the sources' positions from *start* up to where the tenure begins, and return how many
    messages' headers that took.

    Raises:
        Interrupted: reading broke off; begin again with the snapshot.
    """
    if start.created != tenure.position.created or start.sequence >= tenure.position.sequence:
        return 0
    # Headers say all, but for the messages that they lie about: those behind the newest snapshot
    # are listed, unless they are too many.
    is_listed = start.sequence >= tenure.held.record.snapshot_at
    headers_only = is_listed and len(tenure.refused) < REFUSED_MAX
    reader = StreamReader(js, tenure.stream, name, pull_bytes=PULL_BYTES, headers_only=headers_only)
    learner = _Learner(js, intake, tenure, headers_only=headers_only)
    try:
        await reader.open(start)
        return await _take_until(reader, learner, tenure)
    finally:
        await reader.close(delete=True)


class _Learner:
    """Learns from messages, and asks for the payload of those whose headers do not tell enough."""

    def __init__(
        self, js: JetStream, intake: Intake, tenure: Tenure, *, headers_only: bool
    ) -> None:
        self._js = js
        self._intake = intake
        self._tenure = tenure
        self._headers_only = headers_only

    async def learn(self, delivered: Delivered) -> None:
        """Learn what was archived of the message."""
        try:
            self._intake.learn(self._tenure, delivered, has_payload=not self._headers_only)
        except PayloadNeeded:
            stored = await self._js.message(self._tenure.stream, delivered.sequence)
            if stored is None:
                return  # Removed a moment ago: what it brought may come twice, and is not lost.
            whole = replace(delivered, message=delivered.message._replace(data=stored.data))
            self._intake.learn(self._tenure, whole, has_payload=True)


async def _take_until(reader: StreamReader, learner: _Learner, tenure: Tenure) -> int:
    taken = 0
    is_more = reader.pending > 0
    while is_more:
        for delivered in await reader.take(timeout_s=TAKE_TIMEOUT_S):
            if delivered.sequence > tenure.position.sequence:
                return taken
            await learner.learn(delivered)
            taken += 1
            is_more = delivered.pending > 0 and delivered.sequence < tenure.position.sequence
            if taken % MESSAGES_AT_ONCE == 0:
                await asyncio.sleep(0)
    return taken


async def write_snapshot(store: SnapshotStore, tenure: Tenure) -> bool:
    """Store the sources' committed positions for a successor; return whether it worked."""
    former = tenure.held.record.snapshot
    snapshot = await tenure.snapshot()
    try:
        sequence = await store.write(snapshot)
        await tenure.held.point_to_snapshot(sequence, snapshot.position.sequence)
        if former:
            await store.drop_before(former)
    except (NotSent, OutcomeUnknown, ApiError) as error:
        log.warning(
            "no snapshot of the sources' positions could be stored",
            extra={"partition": tenure.partition, "reason": str(error)},
        )
        return False
    return True
