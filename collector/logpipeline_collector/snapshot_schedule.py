"""When the snapshots of an owned partition are written: now and then beside reading, and once more
at its release.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import Executor
from contextlib import suppress

from logpipeline.failpoints import reach
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
from logpipeline.records import EpochRecord
from logpipeline_collector.context import Context
from logpipeline_collector.owned_partition import OwnedPartition, in_thread
from logpipeline_collector.snapshots import SnapshotBroken, SnapshotStore
from logpipeline_collector.sources import BadSnapshot
from logpipeline_collector.stream_position import save_marks

log = logging.getLogger(__name__)

# After a roll-back a snapshot is written so soon.
URGENT_SNAPSHOT_S = 1.0
# Where nothing is committed, snapshot and record are checked once in so many snapshot periods.
PERIODS_BETWEEN_LOOKS = 6
# A snapshot that takes longer is named: until it is stored, the stream cannot be trimmed.
LATE_AFTER_S = 10.0
# A snapshot at release saves a successor some reading, but the release must not wait for it.
RELEASE_DEADLINE_S = 5.0

LATE = "a snapshot of the sources' positions takes long; the stream is trimmed when it is stored"
NOT_IN_TIME = "it was not stored before the partition was released; a successor reads more"


async def has_snapshot(store: SnapshotStore, record: EpochRecord) -> bool:
    """Return whether the snapshot that *record* points to exists; True if the server does not
    answer.
    """
    try:
        return record.snapshot > 0 and await store.is_there(record.snapshot)
    except (NotSent, OutcomeUnknown, ApiError):
        return True


async def write_snapshot(
    store: SnapshotStore, owned: OwnedPartition, executor: Executor
) -> str | None:
    """Store the sources' committed positions for a successor; return why it did not work.

    Raises:
        Fenced: the partition is no longer ours.
    """
    former = owned.held.record.snapshot
    try:
        await store.remove_unfinished(former, epoch=owned.epoch)
        snapshot = await owned.snapshot(executor)
        sequence = await store.write(snapshot)
        await owned.held.point_to_snapshot(sequence, snapshot.position.sequence)
        owned.note_snapshot(snapshot)
        await store.drop_before(former)
    except (NotSent, OutcomeUnknown, ApiError, SnapshotBroken, BadSnapshot) as error:
        # A snapshot that no successor could read would let the stream be trimmed up to it.
        reason = f"no snapshot of the sources' positions could be stored: {error}"
        log.warning(reason, extra={"partition": owned.partition})
        with suppress(NotSent, OutcomeUnknown, ApiError):
            # The room that it lacks may be what this attempt left, or the snapshot before the last.
            await store.remove_unfinished(former, epoch=owned.epoch)
            await store.drop_before(former)
        return reason
    return None


class SnapshotSchedule:
    """Writes the snapshots of *owned*, one at a time. Reading goes on meanwhile."""

    def __init__(self, context: Context, owned: OwnedPartition) -> None:
        self._context = context
        self._owned = owned
        self._store = context.snapshots(owned.partition)
        self._begun_s = time.monotonic()
        self._periods = 0
        self._is_late = False
        self._running: asyncio.Task[None] | None = None

    def begin_if_due(self) -> None:
        """Start the snapshot, or the look at the record, that is due, unless one is running.

        Raises:
            Fenced: the partition is no longer ours.
        """
        now_s = time.monotonic()
        if self._running is not None:
            if not self._running.done():
                self._name_if_late(now_s)
                return
            ended, self._running = self._running, None
            ended.result()
        wait_s = self._context.config.snapshot_every_s
        if self._owned.is_snapshot_urgent:
            wait_s = min(wait_s, URGENT_SNAPSHOT_S)
        if now_s - self._begun_s < wait_s:
            return
        self._begun_s, self._is_late = now_s, False
        self._periods += 1
        if self._owned.is_snapshot_old:
            work = self._write()
        elif self._periods % PERIODS_BETWEEN_LOOKS == 0:
            work = self._look()
        else:
            return
        self._running = asyncio.get_running_loop().create_task(work)  # kept until it is done

    async def stop(self) -> None:
        """Break off what runs, and return when it has ended: what the stream holds is looked at
        anew now, and a snapshot from before would be noted as one of after.
        """
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def finish(self) -> None:
        """Let a successor find a snapshot, if that takes not too long.

        Raises:
            Fenced: the partition is no longer ours.
        """
        await self.stop()
        try:
            async with asyncio.timeout(RELEASE_DEADLINE_S):
                await (self._write() if self._owned.is_snapshot_old else self._restore())
        except TimeoutError:
            self._count("failed")
            log.warning(
                "no snapshot of the sources' positions could be stored",
                extra={"partition": self._owned.partition, "reason": NOT_IN_TIME},
            )

    async def _look(self) -> None:
        # Without commits, nothing else would notice that the record is gone or has another owner.
        await self._owned.held.look()
        await self._restore()

    async def _restore(self) -> None:
        """Write the snapshot again if it is gone: a successor could not."""
        owned = self._owned
        is_any = owned.committed.sequence or owned.committed_rollbacks
        if is_any and not await has_snapshot(self._store, owned.held.record):
            log.warning("the snapshot is gone, written again", extra={"partition": owned.partition})
            await self._write()

    async def _write(self) -> None:
        context, owned = self._context, self._owned
        path = context.config.marks_path(owned.partition)
        try:
            await in_thread(context.executor, save_marks, path, owned.marks.encode())
        except OSError as error:
            log.warning("marks not saved", extra={"reason": str(error)})
        owned.snapshot_problem = await write_snapshot(self._store, owned, context.executor)
        self._count("failed" if owned.snapshot_problem else "stored")
        reach("collector.after-snapshot")

    def _name_if_late(self, now_s: float) -> None:
        if not self._is_late and now_s - self._begun_s > LATE_AFTER_S:
            self._is_late = True
            self._owned.snapshot_problem = LATE
            self._count("late")
            log.warning(LATE, extra={"partition": self._owned.partition})

    def _count(self, outcome: str) -> None:
        self._context.metrics.snapshots.labels(self._owned.partition, outcome).inc()
