"""The worker of one partition: takes it over when it is assigned, reads it, and releases it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from logpipeline.failpoints import reach
from logpipeline.group.ownership import Fenced
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
from logpipeline.nats.pull import Delivered
from logpipeline.nats.replicas import LAG_S_MAX
from logpipeline.streamstate import Verdict
from logpipeline_collector.context import Context
from logpipeline_collector.owned_partition import FULL_RETRY_S, OwnedPartition
from logpipeline_collector.sink import SinkBusy, SinkFull
from logpipeline_collector.snapshot_schedule import SnapshotSchedule
from logpipeline_collector.stream_position import StreamMissing
from logpipeline_collector.stream_reader import Interrupted, StreamReader
from logpipeline_collector.takeover import PASSING, NotYet, TakeOver, tidy, verify_owned

log = logging.getLogger(__name__)

# How often an idle partition checks whether a commit has failed or a snapshot is due.
TAKE_TIMEOUT_S = 1.0
RETRY_S = 0.2
# After this many messages the event loop serves other tasks.
MESSAGES_AT_ONCE = 64


class PartitionWorker:
    """Owns *partition* whenever it is wanted and free."""

    def __init__(self, context: Context, partition: int) -> None:
        self.partition = partition
        self.owned: OwnedPartition | None = None
        self.problem: str | None = "starting"
        self.beat_s = time.monotonic()
        self._context = context
        self._generation: int | None = None
        self._assigned_s = time.monotonic()
        self._last_generation = 0
        self._is_ending = False
        # An attempt to take the partition may have ended behind the swap: then the record names us,
        # and no other member takes from one that lives.
        self._may_be_named = False
        self._changed = asyncio.Event()
        self._reader: StreamReader | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether the assignment gives the partition to us."""
        return self._generation is not None

    def want(self, generation: int | None) -> None:
        """Set the assignment under which the partition is ours; None: it is not ours."""
        if generation != self._generation:
            self._assigned_s = time.monotonic()
        self._generation = generation
        self._last_generation = self._last_generation if generation is None else generation
        self._changed.set()
        if self._reader is not None and generation is None:
            self._reader.wake()

    def end(self) -> None:
        """Release the partition for good; `run` then returns."""
        self._is_ending = True
        self.want(None)

    async def run(self) -> None:
        """Take over, read and release the partition, until `end` is called.

        Raises:
            SinkBroken, SinkFailed, OSError: our storage cannot be used.
        """
        await self._tidy()
        while not self._is_ending:
            self._changed.clear()
            self.beat_s = time.monotonic()
            if self.is_wanted:
                await self._try_to_own()
            elif self._may_be_named:
                await self._tidy()
            else:
                self.problem = None
                await self._pause(TAKE_TIMEOUT_S)
        if self._may_be_named:
            await self._tidy()

    async def _try_to_own(self) -> None:
        """Take the partition, and hold it for as long as it is wanted."""
        taker = TakeOver(
            self._context,
            self.partition,
            lambda: self._last_generation,
            lambda: self._assigned_s,
            self._goes_on,
        )
        self._may_be_named = True
        taken = await taker.attempt()
        if isinstance(taken, NotYet):
            self._note(taken.reason)
            if self._goes_on():
                await self._pause(RETRY_S)
        elif await self._hold(taken):
            self._may_be_named = False
        else:
            await self._tidy()

    def _goes_on(self) -> bool:
        self.beat_s = time.monotonic()
        return self.is_wanted

    async def _tidy(self) -> None:
        began_s = time.monotonic()
        while self.partition in self._context.storage.partitions():
            try:
                await tidy(
                    self._context,
                    self.partition,
                    is_wanted=self.is_wanted,
                    may_lag=time.monotonic() - began_s < LAG_S_MAX,
                )
                break
            except PASSING as error:
                if isinstance(error, SinkBusy) and not self.is_wanted:
                    # Another worker of this collector has it open, and settles it.
                    break
                self._note(str(error))
            if self._is_ending:
                break
            await self._pause(RETRY_S)
        self._may_be_named = False

    async def _hold(self, owned: OwnedPartition) -> bool:
        self.owned, self.problem = owned, None
        self._context.committer.add(owned)
        snapshots = SnapshotSchedule(self._context, owned)
        try:
            try:
                await self._read_while_wanted(owned, snapshots)
                await self._release(owned, snapshots)
            except SinkFull as error:
                log.warning(
                    "the disk is full: partition given up without what is not committed",
                    extra={"partition": self.partition, "reason": str(error)},
                )
                await snapshots.stop()
                await self._close(owned)
                await self._mark_released(owned)
        except Fenced as error:
            log.warning(
                "partition lost",
                extra={"partition": self.partition, "epoch": owned.epoch, "reason": str(error)},
            )
            self._context.metrics.fenced.labels(self.partition).inc()
            return False
        finally:
            await snapshots.stop()
            await self._close(owned)
        return True

    async def _close(self, owned: OwnedPartition) -> None:
        if self.owned is owned:
            await self._context.committer.remove(owned)
            await owned.close()
            self._context.metrics.gone(self.partition)
            self.owned = None

    async def _read_while_wanted(self, owned: OwnedPartition, snapshots: SnapshotSchedule) -> None:
        while self.is_wanted:
            owned.raise_failure()
            try:
                await self._verify(owned)
                await self._read(owned, snapshots)
            except (Interrupted, StreamMissing, NotSent, OutcomeUnknown, ApiError) as error:
                self._note(str(error))
                self._context.metrics.reopened.labels(self.partition).inc()
                await self._pause(RETRY_S)

    async def _verify(self, owned: OwnedPartition) -> None:
        found = await verify_owned(self._context.js, owned)
        if found.verdict is not Verdict.GOOD:
            log.error(
                "the stream lost messages that were read; it is read again from the last position "
                "that it still has",
                extra={
                    "partition": self.partition,
                    "how": found.verdict.value,
                    "read": owned.position.sequence,
                    "again_from": found.position.sequence,
                    "last": found.stream.last,
                },
            )
        owned.adopt(found)

    async def _read(self, owned: OwnedPartition, snapshots: SnapshotSchedule) -> None:
        context = self._context
        reader = StreamReader(
            context.js,
            owned.stream,
            context.next_consumer(self.partition, owned.epoch),
            pull_bytes=context.pull_bytes,
            headers_only=False,
            subjects=owned.subjects,
        )
        try:
            await reader.open(owned.position)
            self._reader = reader
            owned.lag.pending = reader.pending
            self.problem = None
            while self.is_wanted and owned.failure is None:
                self.beat_s = time.monotonic()
                await self._take(reader, owned)
                snapshots.begin_if_due()
        finally:
            self._reader = None
            await snapshots.stop()
            await reader.close(delete=not self.is_wanted or owned.failure is not None)
        owned.raise_failure()

    async def _take(self, reader: StreamReader, owned: OwnedPartition) -> None:
        deliveries = await reader.take(timeout_s=TAKE_TIMEOUT_S)
        if not deliveries:
            owned.note_silence(reader.pending, reader.stream_state, reader.passed)
            if owned.may_note_passed:
                with owned.waiting_for_record():
                    await owned.note_passed()
        for number, delivered in enumerate(deliveries, start=1):
            while not await self._take_one(owned, delivered):
                await self._pause(FULL_RETRY_S)
                if not self.is_wanted or owned.failure is not None:
                    return
            if number % MESSAGES_AT_ONCE == 0:
                self._context.committer.grown(owned)
                await asyncio.sleep(0)
                if owned.failure is not None:
                    return
        self._context.committer.grown(owned)
        await owned.wait_for_room()

    async def _take_one(self, owned: OwnedPartition, delivered: Delivered) -> bool:
        await owned.until_takes()
        try:
            await self._context.intake.take(owned, delivered)
        except SinkFull as error:
            # Nothing was written, and nothing more is read until there is room: the stream is the
            # buffer.
            if owned.problem is None:
                log.error("disk full, waiting", extra={"reason": str(error)})
            owned.problem = f"the disk is full: {error}"
            self.beat_s = time.monotonic()
            return False
        if owned.problem is not None:
            log.info("disk has room again", extra={"partition": self.partition})
            owned.problem = None
        return True

    async def _release(self, owned: OwnedPartition, snapshots: SnapshotSchedule) -> None:
        await owned.commit_all(self._context.executor)
        await snapshots.finish()
        await self._mark_released(owned)

    async def _mark_released(self, owned: OwnedPartition) -> None:
        with owned.waiting_for_record():
            await owned.held.release()
        reach("collector.after-release")
        self._context.metrics.releases.labels(self.partition).inc()
        log.info(
            "partition released",
            extra={
                "partition": self.partition,
                "epoch": owned.epoch,
                "sequence": owned.committed.sequence,
            },
        )

    def _note(self, problem: str) -> None:
        self.beat_s = time.monotonic()
        if problem != self.problem:
            log.info("partition waits", extra={"partition": self.partition, "reason": problem})
        self.problem = problem

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            # Not wait_for: in Python 3.11 it drops a cancellation that meets the result.
            async with asyncio.timeout(seconds):
                await self._changed.wait()
                # If it stayed set, every later pause would end at once, and a loop whose requests
                # fail without waiting would never yield to the event loop.
                self._changed.clear()
