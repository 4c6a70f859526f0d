"""Takes a partition over from a collector with another folder: what it had archived must be known
here, source by source, before the first line is written.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.records import EpochRecord, StreamPosition
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


async def catch_up(
    js: JetStream, intake: Intake, tenure: Tenure, name: ConsumerName, found: Found
) -> int:
    """Bring the sources' positions up to where the tenure begins, and return how many messages'
    headers that took.

    Raises:
        Interrupted: reading broke off; begin again with the snapshot.
    """
    start = _import(tenure, found)
    if start.created != tenure.position.created or start.sequence >= tenure.position.sequence:
        return 0
    reader = StreamReader(js, tenure.stream, name, pull_bytes=PULL_BYTES, headers_only=True)
    try:
        await reader.open(start)
        return await _take_until(reader, intake, tenure)
    finally:
        await reader.close(delete=True)


def _import(tenure: Tenure, found: Found) -> StreamPosition:
    """Take the snapshot's sources over, and return the position that they describe."""
    why = found.why
    begun = tenure.held.record.begun
    if found.snapshot is not None:
        try:
            tenure.archive.import_sources(found.snapshot.sources)
        except ValueError as error:
            why = str(error)
        else:
            return found.snapshot.position
    tenure.archive.import_sources(b"")
    if tenure.position.sequence > begun:
        log.warning(
            "no snapshot of the sources' positions; reading the headers of the whole stream",
            extra={"partition": tenure.partition, "reason": why},
        )
    return StreamPosition(tenure.position.created, begun, 0)


async def _take_until(reader: StreamReader, intake: Intake, tenure: Tenure) -> int:
    taken = 0
    is_more = reader.pending > 0
    while is_more:
        for delivered in await reader.take(timeout_s=TAKE_TIMEOUT_S):
            if delivered.sequence > tenure.position.sequence:
                return taken
            intake.take_headers(tenure, delivered)
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
