"""Take-over of a partition: wait until it is free, open it and compare it with the record, swap the
epoch, bring the sources' positions.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial

from logpipeline.failpoints import reach
from logpipeline.group.ownership import Fenced
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.nats.pull import Delivered
from logpipeline.nats.replicas import certain_message
from logpipeline.records import (
    REFUSED_MAX,
    Assignment,
    BadRecord,
    EpochRecord,
    GoneFolder,
    Reached,
    StreamPosition,
    assignment_key,
)
from logpipeline.streamstate import state_of
from logpipeline_collector.context import Context
from logpipeline_collector.epochs import StoredEpoch
from logpipeline_collector.intake import Intake
from logpipeline_collector.owned_partition import OwnedPartition, close_uncommitted, in_thread
from logpipeline_collector.partition_writer import PartitionWriter, PayloadNeeded
from logpipeline_collector.recovery import (
    BUCKET_RESTORED,
    FOLDER_GONE,
    SOURCES_UNKNOWN,
    FolderCommit,
    Recovery,
    Source,
    is_outdated,
    recover,
)
from logpipeline_collector.sink import SinkBusy, SinkFull
from logpipeline_collector.snapshots import Snapshot, SnapshotBroken, SnapshotStore
from logpipeline_collector.stream_position import (
    Marks,
    StreamMissing,
    Verified,
    first_position,
    load_marks,
    still_passed,
    verify,
)
from logpipeline_collector.stream_reader import ConsumerName, Interrupted, StreamReader

log = logging.getLogger(__name__)

TAKE_TIMEOUT_S = 1.0
# Headers alone: a few hundred bytes a message.
PULL_BYTES = 2 * 1024 * 1024
# After this many messages the event loop serves other tasks.
MESSAGES_AT_ONCE = 256

# A partition may have been taken under an assignment of a higher number than ours. For so long the
# bucket may still come to show that one: a replica lags, or an owner has read more than we have.
# After that, numbers have gone back: the bucket was restored from a copy, or the key was lost.
ASSIGNMENT_STANDS_S = 60.0


class Outdated(Exception):
    """The state bucket shows a record that is older than the folder, as a lagging replica does."""


# Errors that may pass: the take-over is tried again.
PASSING = (
    NotSent,
    OutcomeUnknown,
    ApiError,
    Fenced,
    SinkBusy,
    SinkFull,
    BadRecord,
    Interrupted,
    StreamMissing,
    Outdated,
)


@dataclass(frozen=True, slots=True)
class Claim:
    """Whether a partition may be taken now, and the *reason*, for people."""

    is_free: bool
    reason: str


def claim(
    record: EpochRecord | None,
    *,
    generation: int,
    is_our_folder: bool,
    owner_silent_s: float,
    takeover_after_s: float,
) -> Claim:
    """Return whether a member to whom the assignment *generation* gives the partition may take it
    from the owner that *record* names.

    *is_our_folder* says that the owner was our member in our own folder. We show that we are alive
    in its place, so that process is gone.
    """
    if record is None:
        return Claim(True, "it has no owner")
    if record.assignment > generation:
        newer = record.assignment
        return Claim(False, f"it was taken under the newer assignment {newer}, which may come yet")
    if record.released:
        return Claim(True, f"{record.owner} released it")
    if is_our_folder:
        return Claim(True, f"the last owner, {record.owner}, worked in this folder, and is gone")
    if owner_silent_s >= takeover_after_s:
        return Claim(True, f"{record.owner} was silent for {owner_silent_s:.1f} s")
    return Claim(False, f"waiting for {record.owner} to release it")


def settle(
    context: Context, partition: int, writer: PartitionWriter, record: EpochRecord | None
) -> Recovery:
    """Take back a commit that came too late, and return how to go on. Opening has already taken
    back what was never committed.
    """
    compare = partial(
        recover,
        record=record,
        identity=context.folder.identity,
        copied_from=context.folder.copied_from,
        member=context.config.member,
        is_read_again=context.config.on_empty_volume == "Reread",
    )
    found = compare(_last_commit(writer))
    if found.source is Source.UNDO:
        log.info("last commit taken back", extra={"partition": partition})
        writer.undo()
        found = compare(_last_commit(writer, can_undo=False))
    if found.warning:
        context.metrics.warnings.labels(partition).inc()
        log.warning(found.warning, extra={"partition": partition, "epoch": found.epoch})
    return found


def is_predecessors(context: Context, record: EpochRecord) -> bool:
    """Return whether the owner that *record* names was our member in our folder."""
    # Where another member has an image of our folder, its processes are known here, and may live.
    return record.owner == context.config.member and context.folder.is_ours(record.incarnation)


async def tidy(context: Context, partition: int, *, is_wanted: bool, may_lag: bool) -> None:
    """Settle a partition of which something is stored here; unless it *is_wanted*, release it, too.
    With *may_lag*, a record that is older than the folder is not believed.

    Raises:
        NotSent, OutcomeUnknown, ApiError, SinkBusy, Fenced, Outdated: not possible now; try again.
    """
    writer = context.open_partition(partition)
    try:
        seen = await context.epochs.read(partition)
        # A take-over that follows writes the record, which shows whether it is the newest one.
        if may_lag and not is_wanted and is_outdated(_last_commit(writer), seen.record):
            raise Outdated("the state bucket shows an older record than this folder's")
        found = settle(context, partition, writer, seen.record)
        record = seen.record
        if record is None or is_wanted or record.released:
            return
        if is_predecessors(context, record):
            reached = Reached(found.position, found.rollbacks)
            await context.epochs.let_go(partition, seen, reached)
            log.info("partition of our predecessor released", extra={"partition": partition})
    finally:
        writer.close()


def _last_commit(writer: PartitionWriter, *, can_undo: bool = True) -> FolderCommit | None:
    last = writer.committed()
    if last is None:
        return None
    previous = last.previous if can_undo else None
    return FolderCommit(last.epoch, last.reached, previous)


@dataclass(frozen=True, slots=True)
class Found:
    """The *snapshot* of a predecessor, or *why* there is none that can be used."""

    snapshot: Snapshot | None
    why: str = ""


async def verify_owned(js: JetStream, owned: OwnedPartition) -> Verified:
    """Return where to read the partition on; it has passed what it had, if that still holds.

    Raises:
        StreamMissing, NotSent, OutcomeUnknown, ApiError: see `verify`.
    """
    found = await verify(js, owned.stream, owned.position, owned.marks)
    owned.passed = await still_passed(js, owned.stream, found.stream, owned.held.record.passed)
    return found


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


def import_snapshot(owned: OwnedPartition, found: Found) -> StreamPosition | None:
    """Take over the sources of the snapshot, and return the position that they describe. Without a
    usable snapshot, forget all sources and return None.
    """
    why = found.why
    if found.snapshot is not None:
        try:
            owned.writer.import_sources(found.snapshot.sources)
        except ValueError as error:
            why = str(error)
        else:
            return found.snapshot.position
    owned.writer.import_sources(b"")
    if owned.position.sequence > owned.begun:
        log.warning(
            "no snapshot of the sources' positions; reading the whole stream",
            extra={"partition": owned.partition, "reason": why},
        )
    return None


def is_past_gone(position: StreamPosition, *, begun: int, first: int) -> bool:
    """Return whether the stream, whose *first* message this is, no longer has the headers of
    everything that was written from where the group had *begun* up to *position*.
    """
    return position.sequence > begun and first > begun + 1


def is_behind(start: StreamPosition, position: StreamPosition) -> bool:
    """Return whether headers have to be read to bring the sources from *start* to *position*."""
    return start.created == position.created and start.sequence < position.sequence


async def catch_up(
    js: JetStream,
    intake: Intake,
    owned: OwnedPartition,
    name: ConsumerName,
    start: StreamPosition,
    goes_on: Callable[[], bool],
) -> int:
    """Bring the sources' positions from *start* up to where the owned partition begins, and return
    how many messages' headers were read. Where the stream went back since the record was written,
    what it still has of what the record covers is in predecessors' folders: it is learned as well,
    and the partition begins behind it.

    *goes_on* is asked again and again, and says whether the partition is still wanted.

    Raises:
        Interrupted: reading broke off, or is not wanted any more; begin again with the snapshot.
    """
    if not (is_behind(start, owned.position) or owned.verified is not None):
        return 0
    # Headers are enough, except for messages that are not what their headers say. Those behind the
    # newest snapshot are listed in the record, unless they are too many.
    is_listed = start.sequence >= owned.held.record.snapshot_at
    headers_only = is_listed and len(owned.refused) < REFUSED_MAX
    reader = StreamReader(
        js,
        owned.stream,
        name,
        pull_bytes=PULL_BYTES,
        headers_only=headers_only,
        subjects=owned.subjects,
    )
    learner = _Learner(js, intake, owned, headers_only=headers_only)
    try:
        await reader.open(start)
        return await _take_until(reader, learner, owned, goes_on)
    finally:
        await reader.close(delete=True)


class _Learner:
    """Learns from headers, and asks for the payload where headers are not enough."""

    def __init__(
        self, js: JetStream, intake: Intake, owned: OwnedPartition, *, headers_only: bool
    ) -> None:
        self._js = js
        self._intake = intake
        self._owned = owned
        self._headers_only = headers_only

    async def learn(self, delivered: Delivered) -> None:
        """Learn what was written of the message."""
        try:
            self._intake.learn(self._owned, delivered, has_payload=not self._headers_only)
        except PayloadNeeded:
            stored = await certain_message(self._js, self._owned.stream, delivered.sequence)
            if stored is None:
                return  # Removed a moment ago: its lines may come twice, and are not lost.
            whole = replace(delivered, message=delivered.message._replace(data=stored.data))
            self._intake.learn(self._owned, whole, has_payload=True)


async def _take_until(
    reader: StreamReader, learner: _Learner, owned: OwnedPartition, goes_on: Callable[[], bool]
) -> int:
    taken = 0
    is_more = reader.pending > 0
    while is_more:
        if not goes_on():
            raise Interrupted("the partition is no longer assigned to this collector")
        deliveries = await reader.take(timeout_s=TAKE_TIMEOUT_S)
        if not deliveries:
            # What was pending may have been removed from the stream meanwhile.
            is_more = reader.pending > 0
        for delivered in deliveries:
            if not owned.is_covered(delivered):
                return taken
            await learner.learn(delivered)
            owned.note_learned(delivered)
            taken += 1
            is_last = owned.verified is None and delivered.sequence >= owned.position.sequence
            is_more = delivered.pending > 0 and not is_last
            if taken % MESSAGES_AT_ONCE == 0:
                await asyncio.sleep(0)
    return taken


@dataclass(frozen=True, slots=True)
class NotYet:
    """The *reason* why the partition could not be taken now."""

    reason: str


class TakeOver:
    """Attempts to take over one partition. *generation* returns the assignment that gives it to us,
    and *assigned_s* since when, on the monotonic clock. *goes_on* is asked while it takes long, and
    says whether the partition is still wanted.
    """

    def __init__(
        self,
        context: Context,
        partition: int,
        generation: Callable[[], int],
        assigned_s: Callable[[], float],
        goes_on: Callable[[], bool],
    ) -> None:
        self._context = context
        self._partition = partition
        self._generation = generation
        self._assigned_s = assigned_s
        self._goes_on = goes_on

    async def attempt(self) -> OwnedPartition | NotYet:
        """Return the owned partition, or why it is not ours yet.

        Raises:
            SinkBroken, SinkFailed, OSError: our storage cannot be used.
        """
        try:
            seen = await self._read()
            free = await self._claim(seen.record)
            if not free.is_free:
                return NotYet(free.reason)
            writer = self._context.open_partition(self._partition)
        except PASSING as error:
            return NotYet(str(error))
        try:
            owned = await self._take(writer, seen, free)
        except PASSING as error:
            close_uncommitted(writer)
            return NotYet(str(error))
        except BaseException:
            writer.close()
            raise
        return owned

    async def _read(self) -> StoredEpoch:
        """Return the bucket's record, or the copy in the last snapshot if the bucket has none."""
        seen = await self._context.epochs.read(self._partition)
        if seen.record is not None:
            return seen
        copy = await self._context.snapshots(self._partition).last_record()
        # The operator, which assigns partitions, has lost its number as well, and begins anew.
        return seen if copy is None else replace(seen, record=replace(copy, assignment=0))

    async def _claim(self, record: EpochRecord | None) -> Claim:
        is_ours = record is not None and is_predecessors(self._context, record)
        silent_s = 0.0
        if record is not None and not record.released and not is_ours:
            membership = self._context.membership
            silent_s = await membership.silent_s(record.owner, record.incarnation)
        generation = self._generation()
        if record is not None and record.assignment > generation and await self._stands():
            generation = record.assignment
        return claim(
            record,
            generation=generation,
            is_our_folder=is_ours,
            owner_silent_s=silent_s,
            takeover_after_s=self._context.config.takeover_after_s,
        )

    async def _stands(self) -> bool:
        """Return whether the assignment that gives us the partition is the one in the bucket, and
        was for long.
        """
        if time.monotonic() - self._assigned_s() < ASSIGNMENT_STANDS_S:
            return False
        entry = await self._context.bucket.get(assignment_key(self._context.config.group))
        if entry is None:
            return False
        return Assignment.decode(entry.value).generation == self._generation()

    async def _take(
        self, writer: PartitionWriter, seen: StoredEpoch, free: Claim
    ) -> OwnedPartition:
        config = self._context.config
        found = settle(self._context, self._partition, writer, seen.record)
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
            text = held.record.succession.encode()
            await in_thread(self._context.executor, writer.sink.keep_succession, found.epoch, text)
        owned = OwnedPartition(
            partition=self._partition,
            stream=config.stream_of(self._partition),
            subjects=config.filter_of(self._partition),
            writer=writer,
            held=held,
            position=position,
            rollbacks=found.rollbacks,
            marks=load_marks(config.marks_path(self._partition)),
            assignment=self._generation,
            commit_bytes=config.commit_bytes,
            committed_to=self._context.committed_to,
            goes_on=self._goes_on,
        )
        if held.record.begun or held.record.begun_ns:
            owned.begin_midway()
        owned.warning = found.warning
        if seen.record is not None and not seen.revision:
            self._warn_of_restored(owned, seen.record)
        if found.source in (Source.SNAPSHOT, Source.STREAM):
            await self._bring_sources(owned)
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
        return owned

    async def _begin(self) -> StreamPosition:
        context, config = self._context, self._context.config
        return await first_position(
            context.js,
            config.stream_of(self._partition),
            context.next_consumer(self._partition, 0),
            policy=config.deliver_policy,
            start_time=config.opt_start_time,
        )

    async def _look_for_gone(self, record: EpochRecord | None, found: Recovery) -> GoneFolder:
        """Return which folder is gone, and which of its messages can be read again."""
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

    async def _bring_sources(self, owned: OwnedPartition) -> None:
        context = self._context
        found = await find_snapshot(context.snapshots(self._partition), owned.held.record)
        owned.marks = Marks.decode(found.snapshot.marks) if found.snapshot else Marks()
        owned.adopt(await verify_owned(context.js, owned))
        begun = owned.begun
        start = import_snapshot(owned, found)
        if start is None:
            stream = owned.stream_state
            first = stream.first if stream is not None else 0
            if is_past_gone(owned.position, begun=begun, first=first):
                await self._forget(owned)
            start = StreamPosition(owned.position.created, begun, 0)
        else:
            # The stream may have gone back since the snapshot: what stands at its sequences now is
            # not in it.
            start = (await verify(context.js, owned.stream, start, owned.marks)).position
        name = context.next_consumer(self._partition, owned.epoch)
        headers = await catch_up(context.js, context.intake, owned, name, start, self._goes_on)
        # Our older files end before the other folder's begin, so reading files by age is in order.
        await in_thread(context.executor, owned.writer.sink.set_aside, time.time())
        # From here on, our own folder has what was brought, also after a crash.
        owned.begin_anew()
        await owned.commit_all(context.executor)
        log.info(
            "positions of the sources taken over",
            extra={"partition": self._partition, "headers": headers},
        )

    def _warn_of_restored(self, owned: OwnedPartition, record: EpochRecord) -> None:
        owned.warning = BUCKET_RESTORED
        self._context.metrics.warnings.labels(self._partition).inc()
        log.warning(
            BUCKET_RESTORED,
            extra={"partition": self._partition, "sequence": record.position.sequence},
        )

    async def _forget(self, owned: OwnedPartition) -> None:
        """Go on without knowing all sources. Everything up to the position was written, and
        shippers must not send it again because we do not know it.
        """
        owned.begin_midway()
        with owned.waiting_for_record():
            await owned.held.begin_behind(owned.position)
        owned.warning = SOURCES_UNKNOWN
        self._context.metrics.warnings.labels(self._partition).inc()
        log.warning(SOURCES_UNKNOWN, extra={"partition": self._partition, "epoch": owned.epoch})
