"""A partition while a collector owns it: its writer, its epoch, how far it is read and committed;
and the clock that commits all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from logpipeline.failpoints import reach
from logpipeline.group.ownership import Fenced
from logpipeline.nats.pull import Delivered
from logpipeline.records import REFUSED_MAX, Committed, Question, Reached, StreamPosition
from logpipeline.streamstate import StreamState, Verdict
from logpipeline.wire import Batch
from logpipeline_collector.epochs import HeldEpoch, at_most
from logpipeline_collector.partition_writer import PartitionWriter, PendingCommit
from logpipeline_collector.sink import SinkFull
from logpipeline_collector.snapshots import Snapshot
from logpipeline_collector.stream_position import Marks, Verified
from logpipeline_collector.stream_reader import Missed

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)

# Uncommitted bytes, in multiples of a commit, that may be written while a commit waits for the
# state bucket.
UNCOMMITTED_COMMITS_MAX = 4
ROOM_POLL_S = 0.1
FULL_RETRY_S = 1.0
# A change of the record that waits for longer is shown, so often.
RECORD_WAIT_S = 2.0
RECORD_WAITS = (
    "the state bucket does not take the commit; it goes on by itself when the bucket does"
)
# How often rotation, compression and retention look for something to do.
MAINTAIN_EVERY_S = 2.0


async def in_thread(
    executor: Executor, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return the result of *function*, run in a thread. When cancelled, wait for the thread first:
    otherwise a file would be closed while the thread still writes it.
    """
    future = asyncio.get_running_loop().run_in_executor(executor, lambda: function(*args, **kwargs))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise


@dataclass(slots=True)
class Lag:
    """What is still to be read, as of the last delivery."""

    pending: int = 0
    time_ns: int = 0
    messages_read: int = 0
    bytes_read: int = 0

    def note(self, delivered: Delivered) -> None:
        """Take one more delivery into account."""
        self.pending, self.time_ns = delivered.pending, delivered.time_ns
        self.messages_read += 1
        self.bytes_read += len(delivered.message.data)

    @property
    def bytes(self) -> int:
        """Bytes that are pending, estimated from the messages that came so far."""
        return self.pending * self.bytes_read // max(self.messages_read, 1)


@dataclass(eq=False)
class OwnedPartition:
    """One partition in one epoch, in a *stream* that holds other partitions as well if it is read
    by *subjects*. *position* is how far it is read, *committed* how far the group knows that it is
    committed; from the position to *passed*, which the record has as well once that is noted, the
    stream has nothing of it.

    *failure* is set when a commit failed: nothing is written after it. *warning* says what was
    wrong when the partition was taken. *went_back_to* is the sequence up to which the
    stream is still what it was at the last commit, if it went back since. *goes_on* is called while
    a commit waits for something that a restart would not bring, and says whether the partition is
    still wanted.
    """

    partition: int
    stream: str
    subjects: tuple[str, ...]
    writer: PartitionWriter
    held: HeldEpoch
    position: StreamPosition
    rollbacks: int
    marks: Marks
    assignment: Callable[[], int]
    commit_bytes: int
    committed_to: Callable[[OwnedPartition, float], None]
    goes_on: Callable[[], bool]
    committed: StreamPosition = field(init=False)
    committed_rollbacks: int = field(init=False)
    failure: Exception | None = None
    problem: str | None = None
    commit_problem: str | None = None
    snapshot_problem: str | None = None
    missed: Missed = field(default_factory=Missed)
    dead_letters: int = 0
    warning: str = ""
    refused: tuple[int, ...] = field(init=False)
    lag: Lag = field(default_factory=Lag)
    verified: Verified | None = None
    passed: StreamPosition | None = None
    went_back_to: int | None = None
    stream_state: StreamState | None = None
    _read_messages: int = 0
    _committed_messages: int = 0
    _missed_before: int = field(init=False)
    _lost_before: int = field(init=False)
    _rollbacks_before: int = field(init=False)
    _is_snapshot_from_before: bool = False
    _is_new: bool = False
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _has_room: asyncio.Event = field(default_factory=asyncio.Event)
    _may_take: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.committed = self.position
        self.committed_rollbacks = self.rollbacks
        self.refused = self.held.record.refused
        self._missed_before = self.held.record.missed_messages
        self._lost_before = self.held.record.lost_bytes
        self._rollbacks_before = self.rollbacks
        self._may_take.set()

    @property
    def epoch(self) -> int:
        """The epoch in which we own the partition."""
        return self.held.record.epoch

    @property
    def begun(self) -> int:
        """The sequence up to which the group leaves the stream out."""
        return at_most(self.held.record.begun, self.went_back_to)

    @property
    def is_snapshot_old(self) -> bool:
        """Whether the newest snapshot is older than the last commit."""
        is_elsewhere = self.held.record.snapshot_at != self.committed.sequence
        return is_elsewhere or self._is_snapshot_from_before

    @property
    def is_snapshot_urgent(self) -> bool:
        """Whether a successor could not learn from the stream what the newest snapshot lacks: it
        went back.
        """
        return self._is_snapshot_from_before and self.committed_rollbacks == self.rollbacks

    def note_snapshot(self, snapshot: Snapshot) -> None:
        """Note that *snapshot* was stored."""
        if snapshot.record is not None and snapshot.record.rollbacks == self.rollbacks:
            self._is_snapshot_from_before = False

    @property
    def missed_messages(self) -> int:
        """Messages that left the stream before the group read them; *missed* counts ours."""
        return self._missed_before + self.missed.count

    @property
    def newly_lost_bytes(self) -> int:
        """Bytes named as lost that the group's record did not have when we took the partition."""
        return max(0, self.writer.lost_bytes - self._lost_before)

    @property
    def new_rollbacks(self) -> int:
        """How often the stream went back since we took the partition."""
        return self.rollbacks - self._rollbacks_before

    @property
    def uncommitted_messages(self) -> int:
        """Messages of the stream that are not committed, as of the last delivery."""
        return self.lag.pending + self._read_messages - self._committed_messages

    @property
    def is_due(self) -> bool:
        """Whether a commit has something to write, and may be made."""
        return self.failure is None and self.is_settled and not self.is_clean

    @property
    def is_clean(self) -> bool:
        """Whether everything that was read is committed."""
        is_there = (self.position, self.rollbacks) == (self.committed, self.committed_rollbacks)
        return is_there and not self._is_new

    @property
    def is_settled(self) -> bool:
        """Whether reading has passed what was read before a roll-back."""
        verified = self.verified
        return verified is None or verified.is_settled(self.position, pending=self.lag.pending)

    def begin_anew(self) -> None:
        """Let the next commit be written although nothing was read: our folder took over positions
        from another one.
        """
        self._is_new = True

    def adopt(self, verified: Verified) -> None:
        """Go on from the position that *verified* found to be in the stream still."""
        if verified.verdict is not Verdict.GOOD:
            self.rollbacks += 1
            self.passed = None
            self._is_snapshot_from_before = True
            self.verified = verified
            self.lag.pending = 1
            self.missed.go_back()
            # Other messages will get these sequences.
            last = verified.position.sequence
            self.refused = tuple(each for each in self.refused if each <= last)
            self.went_back_to = at_most(last, self.went_back_to)
        elif self.is_clean:
            # The first look yields the stream's time of creation, which is not progress.
            self.committed = verified.position
        self.position = verified.position
        self._look_at(verified.stream)

    def note_silence(
        self, pending: int, stream: StreamState | None, passed: StreamPosition | None = None
    ) -> None:
        """Note the number of pending messages while none comes, and the last known state of the
        stream; up to *passed* it holds only other partitions' messages.
        """
        self.lag.pending = pending
        if passed is not None and passed.created == self.position.created:
            self.passed = passed
        if stream is not None and stream.created == self.position.created:
            self._look_at(stream)

    @property
    def may_note_passed(self) -> bool:
        """Whether there is something to note, and all before it is committed."""
        passed = self.passed
        if passed is None or passed.sequence <= self.position.sequence:
            return False
        is_new = passed != self.held.record.passed
        return is_new and self.failure is None and self.is_settled and self.is_clean

    async def note_passed(self) -> None:
        """Write `passed` into the group's record.

        Raises:
            Fenced: the partition is no longer ours.
        """
        async with self._lock:
            if self.may_note_passed and self.passed is not None:
                await self.held.note_passed(self.passed)

    def _look_at(self, stream: StreamState) -> None:
        self.stream_state = stream
        self._note_missed(found=stream.first)

    def begin_midway(self) -> None:
        """Take each source's first message for its begin, if the group has missed no message: what
        lies before is left out on purpose.
        """
        if not self.missed_messages:
            self.writer.begin_midway()

    def _note_missed(self, *, found: int) -> None:
        before = self.missed.count
        passed = self.passed.sequence if self.passed is not None else 0
        self.missed.note(read=max(self.position.sequence, passed), found=found)
        if self.missed.count > before:
            # The first bytes of a source may be among the missed messages.
            self.writer.expect_all()

    def note_gap(self, delivered: Delivered, stream: StreamState | None = None) -> None:
        """Note what left the stream before *delivered*, the next message for us: where other
        partitions' messages may stand between, by what the *stream* is since.
        """
        if not self.subjects:
            self._note_missed(found=delivered.sequence)
        elif stream is not None:
            self._note_missed(found=min(stream.first, delivered.sequence))

    def may_begin_too_late(self, host: str, batch: Batch) -> bool:
        """Return whether *batch* would be taken for the begin of its source, though messages before
        it may have left the stream: only a look at the stream says that none has.
        """
        return bool(self.subjects) and self.writer.is_begun_by(host, batch)

    def note_read(self, delivered: Delivered) -> None:
        """Move the position behind *delivered*: it was written, known already, or a dead letter."""
        self._read_messages += 1
        self.position = StreamPosition(self.position.created, delivered.sequence, delivered.time_ns)
        self.lag.note(delivered)

    def is_covered(self, delivered: Delivered) -> bool:
        """Return whether a predecessor has taken the message: it is not behind the position, or was
        read before the stream went back.
        """
        return delivered.sequence <= self.position.sequence or self.is_known_already(delivered)

    def note_learned(self, delivered: Delivered) -> None:
        """Move the position behind *delivered*, which a predecessor has taken, if it is ahead."""
        if delivered.sequence > self.position.sequence:
            created = self.position.created
            self.position = StreamPosition(created, delivered.sequence, delivered.time_ns)
            self._read_messages += 1

    def refuse(self, sequence: int) -> None:
        """Note for a successor, which reads headers only, that the message at *sequence* is not
        what its headers say.
        """
        covered = self.held.record.snapshot_at
        listed = [each for each in self.refused if each > covered]
        self.refused = tuple([*listed, sequence][:REFUSED_MAX])

    def is_known_already(self, delivered: Delivered) -> bool:
        """Return whether the message was read before a roll-back."""
        return self.verified is not None and self.verified.is_known(delivered.time_ns)

    def is_left_out(self, delivered: Delivered) -> bool:
        """Return whether the message, which a roll-back brought again, is older than the group's
        beginning.
        """
        return self.verified is not None and delivered.time_ns <= self.held.record.begun_ns

    async def until_takes(self) -> None:
        """Return when messages may be taken: at once, unless files are being rotated."""
        await self._may_take.wait()

    async def wait_for_room(self) -> None:
        """Return when little enough is uncommitted, or when nothing more will be committed."""
        limit = self.commit_bytes * UNCOMMITTED_COMMITS_MAX
        # What is read a second time is committed only after all of it: waiting here would never
        # end.
        while self.writer.dirty_bytes > limit and self.failure is None and self.is_settled:
            self._has_room.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ROOM_POLL_S):
                    await self._has_room.wait()

    async def commit(self, executor: Executor) -> None:
        """Commit what was read so far, in the sink and in the group's record; an error sets
        *failure*.
        """
        async with self._lock:
            if not self.is_due:
                return
            began_s = time.monotonic()
            try:
                await self._commit(executor)
            except Exception as error:  # noqa: BLE001  # the owner's task raises it again
                self.failure = error
            else:
                self.committed_to(self, time.monotonic() - began_s)
            self._has_room.set()

    async def _commit(self, executor: Executor) -> None:
        position, rollbacks = self.position, self.rollbacks
        read_messages = self._read_messages
        lost_bytes, missing_bytes = self.writer.lost_bytes, self.writer.missing_bytes
        missed_messages = self.missed_messages
        refused, went_back_to = self.refused, self.went_back_to
        pending = self.writer.prepare(
            Reached(position, rollbacks),
            epoch=self.epoch,
            since=Reached(self.committed, self.committed_rollbacks),
        )
        await self._write(pending, executor)
        reach("collector.before-swap")
        with self.waiting_for_record():
            await self.held.advance(
                position,
                rollbacks=rollbacks,
                assignment=self.assignment(),
                lost_bytes=lost_bytes,
                missing_bytes=missing_bytes,
                missed_messages=missed_messages,
                refused=refused,
                went_back_to=went_back_to,
            )
        reach("collector.after-swap")
        if self.went_back_to == went_back_to:
            self.went_back_to = None
        self.writer.confirm(pending)
        self._is_new = False
        self.committed, self.committed_rollbacks = position, rollbacks
        self._committed_messages = read_messages
        self.marks.add(position)

    @contextlib.contextmanager
    def waiting_for_record(self) -> Iterator[None]:
        """Show it where a change of the record within the block waits for the state bucket."""
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        def still_waiting() -> None:
            nonlocal timer
            if self.commit_problem is None:
                log.warning(RECORD_WAITS, extra={"partition": self.partition})
            self.commit_problem = RECORD_WAITS
            self.goes_on()
            timer = loop.call_later(RECORD_WAIT_S, still_waiting)

        timer = loop.call_later(RECORD_WAIT_S, still_waiting)
        try:
            yield
        finally:
            timer.cancel()
            if self.commit_problem == RECORD_WAITS:
                self.commit_problem = None

    async def _write(self, pending: PendingCommit, executor: Executor) -> None:
        while True:
            try:
                await in_thread(executor, self.writer.write, pending)
            except SinkFull as error:
                # Nothing is committed. The same commit is made again when there is room.
                self.commit_problem = f"the disk is full: {error}"
                if not self.goes_on():
                    # The stream has all of it still, for an owner with room.
                    raise
                await asyncio.sleep(FULL_RETRY_S)
            else:
                self.commit_problem = None
                return

    async def snapshot(self, executor: Executor) -> Snapshot:
        """Return the sources' positions as the group knows them; they are written in a thread of
        *executor*.

        Raises:
            Exception: the failure, if there is one.
        """
        # Between the commit in the folder and the one in the record the two differ. A successor
        # that began at one of them with the sources of the other would skip what lies between.
        async with self._lock:
            self.raise_failure()
            return Snapshot(
                self.committed,
                self.marks.encode(),
                await in_thread(executor, self.writer.export_sources),
                self.held.record,
            )

    async def changed_since(self, commit: int) -> tuple[int, list[tuple[str, Committed]]]:
        """Return the number of the last commit, and what changed after *commit*: (host, source)."""
        async with self._lock:
            return self.writer.changed_since(commit)

    async def asked(self, host: str, question: Question) -> list[Committed]:
        """Return how far the generations that *question* asks for are committed."""
        async with self._lock:
            return self.writer.asked(host, question)

    async def maintain(self, executor: Executor, now_s: float) -> None:
        """Rotate, compress and remove what is due; an error sets *failure*."""
        async with self._lock:
            if self.failure is not None:
                return
            try:
                if self.writer.sink.is_rotation_due(now_s):
                    await self._rotate(executor, now_s)
                await in_thread(executor, self.writer.sink.maintain, now_s)
            except SinkFull as error:
                log.warning("no room to rotate or compress", extra={"reason": str(error)})
            except Exception as error:  # noqa: BLE001  # the owner's task raises it again
                self.failure = error

    async def _rotate(self, executor: Executor, now_s: float) -> None:
        # A file that is written all the time is never committed as a whole. So no message is taken
        # during one commit.
        self._may_take.clear()
        try:
            if self.is_due:
                await self._commit(executor)
            await in_thread(executor, self.writer.sink.rotate, now_s)
        finally:
            self._may_take.set()

    async def commit_all(self, executor: Executor) -> None:
        """Return when everything that was read is committed.

        Raises:
            Fenced: the partition is no longer ours.
            SinkFull: there is no room, and the partition is not wanted any more.
        """
        while self.is_due:
            await self.commit(executor)
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise *failure*, if there is one."""
        if self.failure is not None:
            raise self.failure

    async def close(self) -> None:
        """Close the partition without what is not committed."""
        async with self._lock:
            is_writable = self.failure is None or isinstance(self.failure, Fenced | SinkFull)
            if is_writable and not self.is_clean:
                close_uncommitted(self.writer)
            else:
                self.writer.close()


def close_uncommitted(writer: PartitionWriter) -> None:
    """Take back the lines of *writer* that are not committed, and close it."""
    try:
        writer.discard()
    except SinkFull as error:
        # The next opening takes it back.
        log.warning("no room to take back what is not committed", extra={"reason": str(error)})
    finally:
        writer.close()


class Committer:
    """Commits the partitions that were added, on one clock: often enough that shippers and readers
    hardly wait, and only where something was read. A commit that waits delays no other partition.
    """

    def __init__(self, executor: Executor, *, interval_s: float, commit_bytes: int) -> None:
        self.beat_s = time.monotonic()
        self._executor = executor
        self._interval_s = interval_s
        self._commit_bytes = commit_bytes
        # In order, so that a history repeats itself.
        self._owned: dict[OwnedPartition, None] = {}
        self._running: dict[OwnedPartition, asyncio.Task[None]] = {}
        self._poked = asyncio.Event()
        self._maintained_s: dict[OwnedPartition, float] = {}

    def add(self, owned: OwnedPartition) -> None:
        """Commit *owned* from now on."""
        self._owned[owned] = None

    async def remove(self, owned: OwnedPartition) -> None:
        """Stop committing *owned*; return when no commit of it is under way."""
        self._owned.pop(owned, None)
        self._maintained_s.pop(owned, None)
        task = self._running.get(owned)
        if task is not None:
            await asyncio.wait([task])

    def grown(self, owned: OwnedPartition) -> None:
        """Commit at once if *owned* has as many uncommitted bytes as one commit may have."""
        if owned.writer.dirty_bytes >= self._commit_bytes:
            self._poked.set()

    async def run(self) -> None:
        """Commit until cancelled."""
        try:
            while True:
                self._poked.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._interval_s):
                        await self._poked.wait()
                self.beat_s = time.monotonic()
                self._start_work()
        finally:
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _start_work(self) -> None:
        now_s = time.monotonic()
        for owned in self._owned:
            if owned in self._running:
                continue
            # Maintenance comes first: a partition that always has something to commit would never
            # get it.
            if now_s - self._maintained_s.get(owned, 0.0) >= MAINTAIN_EVERY_S:
                self._maintained_s[owned] = now_s
                self._start(owned, owned.maintain(self._executor, time.time()))
            elif owned.is_due:
                self._start(owned, owned.commit(self._executor))

    def _start(self, owned: OwnedPartition, work: asyncio._CoroutineLike[None]) -> None:
        task = asyncio.get_running_loop().create_task(work)  # kept until done, in *_running*
        self._running[owned] = task
        task.add_done_callback(lambda done: self._ended(owned, done))

    def _ended(self, owned: OwnedPartition, done: asyncio.Task[None]) -> None:
        self._running.pop(owned, None)
        # An error that the work itself does not expect: without this the partition would be read
        # on, and its owner would never hear of it.
        error = None if done.cancelled() else done.exception()
        if isinstance(error, Exception) and owned.failure is None:
            owned.failure = error
