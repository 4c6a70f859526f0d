"""From a wanted partition to an owned one: wait until it is free, open and compare, swap the epoch,
bring the sources' positions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from logpipeline.failpoints import reach
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
from logpipeline.records import BadRecord, EpochRecord, GoneFolder, Reached, StreamPosition
from logpipeline.streamstate import state_of
from logpipeline_collector.archive.errors import ArchiveBusy, ArchiveFull
from logpipeline_collector.archive.partition import PartitionArchive
from logpipeline_collector.beginning import first_position
from logpipeline_collector.context import Context
from logpipeline_collector.epochs import Fenced, Seen
from logpipeline_collector.handover import catch_up, find_snapshot, import_snapshot, is_past_gone
from logpipeline_collector.marks import Marks, load_marks
from logpipeline_collector.ownership import Claim, claim
from logpipeline_collector.reading import Interrupted
from logpipeline_collector.recovery import (
    BUCKET_RESTORED,
    FOLDER_GONE,
    SOURCES_UNKNOWN,
    Recovery,
    Source,
)
from logpipeline_collector.settling import settle
from logpipeline_collector.tenure import Tenure
from logpipeline_collector.threads import in_thread
from logpipeline_collector.verify import StreamMissing, verify

log = logging.getLogger(__name__)

# What may pass by itself: the same is tried again.
PASSING = (
    NotSent,
    OutcomeUnknown,
    ApiError,
    Fenced,
    ArchiveBusy,
    ArchiveFull,
    BadRecord,
    Interrupted,
    StreamMissing,
)


@dataclass(frozen=True, slots=True)
class NotYet:
    """The partition could not be taken now, and why."""

    reason: str


class TakeOver:
    """Tries to make one partition ours."""

    def __init__(self, context: Context, partition: int, generation: Callable[[], int]) -> None:
        self._context = context
        self._partition = partition
        self._generation = generation

    async def attempt(self) -> Tenure | NotYet:
        """Return the partition's tenure, or why it is not ours yet.

        Raises:
            ArchiveBroken, ArchiveFailed, OSError: our folder cannot be used.
        """
        try:
            seen = await self._read()
            free = await self._claim(seen.record)
            if not free.is_free:
                return NotYet(free.reason)
            archive = self._context.open_archive(self._partition)
        except PASSING as error:
            return NotYet(str(error))
        try:
            tenure = await self._take(archive, seen, free)
        except PASSING as error:
            archive.discard()
            archive.close()
            return NotYet(str(error))
        except BaseException:
            archive.close()
            raise
        return tenure

    async def _read(self) -> Seen:
        """Return the bucket's record; where it is lost, the one of the last snapshot."""
        seen = await self._context.epochs.read(self._partition)
        if seen.record is not None:
            return seen
        copy = await self._context.snapshots(self._partition).last_record()
        # Whoever shares the partitions out has lost his number too, and begins anew.
        return seen if copy is None else replace(seen, record=replace(copy, assignment=0))

    async def _claim(self, record: EpochRecord | None) -> Claim:
        is_ours = record is not None and self._context.folder.is_ours(record.incarnation)
        silent_s = 0.0
        if record is not None and not record.released and not is_ours:
            membership = self._context.membership
            silent_s = await membership.silent_s(record.owner, record.incarnation)
        return claim(
            record,
            generation=self._generation(),
            is_our_folder=is_ours,
            owner_silent_s=silent_s,
            takeover_after_s=self._context.config.takeover_after_s,
        )

    async def _take(self, archive: PartitionArchive, seen: Seen, free: Claim) -> Tenure:
        config = self._context.config
        found = settle(self._context, self._partition, archive, seen.record)
        is_beginning = seen.record is None and found.source is Source.NOTHING
        position = await self._begin() if is_beginning else found.position
        gone = await self._look_for_gone(seen.record, found) if found.is_folder_gone else None
        held = await self._context.epochs.take_over(
            self._partition,
            seen,
            epoch=found.epoch,
            assignment=self._generation(),
            reached=Reached(position, found.rollbacks),
            is_beginning=is_beginning,
            gone=gone,
        )
        reach("collector.after-take-over")
        if held.record.succession is not None:
            told = held.record.succession.encode()
            await in_thread(self._context.executor, archive.keep_succession, found.epoch, told)
        if held.record.begun:
            archive.begin_midway()
        tenure = Tenure(
            partition=self._partition,
            stream=config.stream_of(self._partition),
            archive=archive,
            held=held,
            position=position,
            rollbacks=found.rollbacks,
            marks=load_marks(config.marks_path(self._partition)),
            assignment=self._generation,
            commit_bytes=config.commit_bytes,
            committed_to=self._context.committed_to,
        )
        tenure.warning = found.warning
        if seen.record is not None and not seen.revision:
            self._warn_of_restored(tenure, seen.record)
        if found.source in (Source.SNAPSHOT, Source.STREAM):
            await self._bring_sources(tenure)
        metrics = self._context.metrics
        if gone is not None:
            metrics.gone_folders.labels(self._partition).inc()
            log.error(FOLDER_GONE, extra={"partition": self._partition, **asdict(gone)})
        metrics.takeovers.labels(self._partition, found.source.name.lower()).inc()
        metrics.epoch.labels(self._partition).set(held.record.epoch)
        log.info(
            "partition taken",
            extra={
                "partition": self._partition,
                "epoch": held.record.epoch,
                "sequence": position.sequence,
                "positions": found.source.value,
                "reason": free.reason,
            },
        )
        return tenure

    async def _begin(self) -> StreamPosition:
        context, config = self._context, self._context.config
        return await first_position(
            context.js,
            config.stream_of(self._partition),
            context.next_consumer(0),
            policy=config.deliver_policy,
            start_time=config.opt_start_time,
        )

    async def _look_for_gone(self, record: EpochRecord | None, found: Recovery) -> GoneFolder:
        """Return which folder is gone, and what of it can be read again."""
        assert record is not None
        context = self._context
        stream = context.config.stream_of(self._partition)
        info = await context.js.stream_info(stream)
        if info is None:
            raise StreamMissing(stream)
        after = record.succession.since.position.sequence if record.succession else 0
        is_again = found.source is Source.STREAM
        return GoneFolder(
            member=record.owner,
            folder=record.folder,
            time_ns=time.time_ns(),
            after=after,
            end=record.position.sequence,
            again_from=max(after + 1, state_of(info).first) if is_again else 0,
        )

    async def _bring_sources(self, tenure: Tenure) -> None:
        context = self._context
        found = await find_snapshot(context.snapshots(self._partition), tenure.held.record)
        tenure.marks = Marks.decode(found.snapshot.marks) if found.snapshot else Marks()
        tenure.adopt(await verify(context.js, tenure.stream, tenure.position, tenure.marks))
        begun = tenure.held.record.begun
        start = import_snapshot(tenure, found)
        if start is None:
            if is_past_gone(tenure):
                await self._forget(tenure)
            start = StreamPosition(tenure.position.created, begun, 0)
        name = context.next_consumer(tenure.epoch)
        headers = await catch_up(context.js, context.intake, tenure, name, start)
        # Our own files end where the others' began: who reads them by age reads them in order.
        await in_thread(context.executor, tenure.archive.set_aside, time.time())
        # From here on a crash finds in our own folder what was brought.
        tenure.begin_anew()
        await tenure.commit_all(context.executor)
        log.info(
            "positions of the sources taken over",
            extra={"partition": self._partition, "headers": headers},
        )

    def _warn_of_restored(self, tenure: Tenure, record: EpochRecord) -> None:
        tenure.warning = BUCKET_RESTORED
        self._context.metrics.warnings.labels(self._partition).inc()
        log.warning(
            BUCKET_RESTORED,
            extra={"partition": self._partition, "sequence": record.position.sequence},
        )

    async def _forget(self, tenure: Tenure) -> None:
        """Go on without knowing all sources: what is at the position or before it was archived, and
        shippers are not to send it again because we do not know it.
        """
        tenure.archive.begin_midway()
        await tenure.held.begin_behind(tenure.position)
        tenure.warning = SOURCES_UNKNOWN
        self._context.metrics.warnings.labels(self._partition).inc()
        log.warning(SOURCES_UNKNOWN, extra={"partition": self._partition, "epoch": tenure.epoch})
