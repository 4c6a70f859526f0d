"""A partition that one reader has for itself, in the order of its stream, from a position.

The consumer's deliveries only show that there are messages: one at or before the position is
skipped and acknowledged, and one that the consumer leaves out (it waits for a dead reader's
acknowledgement) is fetched from the stream. So a redelivery causes no message to be processed twice
or out of order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from logpipeline.consuming.claims import HeldClaim
from logpipeline.consuming.consumer import find, wind
from logpipeline.consuming.message import PROCESSED, Batch, Message, Outcome
from logpipeline.consuming.missed import Misses
from logpipeline.consuming.options import KV, ConsumeError, ReaderBusy, StateForeign
from logpipeline.consuming.partition_reader import NS, PartitionReader, Reading, replies_of
from logpipeline.consuming.records import NEXT_ALONE, ReadProgress, position_of
from logpipeline.failpoints import reach
from logpipeline.filelock import FileLock, FileLocked
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import (
    CONSUMER_NOT_FOUND,
    STREAM_NOT_FOUND,
    ApiError,
    StoredMessage,
)
from logpipeline.nats.pull import Delivered
from logpipeline.nats.session import RawMessage
from logpipeline.records import BadRecord, StreamPosition
from logpipeline.statefile import StateBroken, read_state, write_state
from logpipeline.streamstate import StreamState, Verdict, judge, state_of, time_at

KIND = "logpipeline-consume"
VERSION = 1

log = logging.getLogger(__name__)

# An idle reader asks the server so often how far the consumer is.
LOOK_S = 3.0
# So many skipped messages are kept until a message behind them is processed.
PASSED_MAX = 100
# A reader without a group makes sure so often that no other one took it for dead.
CHECKS_PER_TAKEOVER = 4
# Errors that say that the consumer, or all of the stream, is not there.
GONE = (CONSUMER_NOT_FOUND, STREAM_NOT_FOUND)


class StateFile:
    """The file *path* of the reader *consumer*."""

    def __init__(self, path: Path, consumer: str) -> None:
        self.path = path
        self._consumer = consumer
        self._lock = _locked(path)
        # Partitions write side by side, in threads.
        self._writing = threading.Lock()
        try:
            self._streams = _read(path, consumer)
        except BaseException:
            self.close()
            raise

    @property
    def streams(self) -> list[str]:
        """The streams of which something is known."""
        return list(self._streams)

    def get(self, stream: str) -> ReadProgress | None:
        """Return how far *stream* was processed, or None where nothing is known."""
        return self._streams.get(stream)

    def put(self, stream: str, progress: ReadProgress) -> None:
        """Store *progress* of *stream*, durably.

        Raises:
            OSError: the disk is full or failing; the former state is kept.
        """
        with self._writing:
            streams = self._streams | {stream: progress}
            data = {name: known.as_json() for name, known in streams.items()}
            write_state(self.path, KIND, VERSION, {"consumer": self._consumer, "streams": data})
            self._streams = streams

    def close(self) -> None:
        """Unlock the file for another process, once nothing is being written to it."""
        with self._writing:
            self._lock.close()


def _locked(path: Path) -> FileLock:
    """Return the lock of *path*: a file beside it, since the file itself is replaced with each
    change.
    """
    try:
        return FileLock.take(path.with_name(path.name + ".lock"))
    except FileLocked:
        raise ReaderBusy(
            f"{path} is the state of another process that runs now; give each reader a file of its "
            "own"
        ) from None


def _read(path: Path, consumer: str) -> dict[str, ReadProgress]:
    try:
        data = read_state(path, KIND, VERSION)
        if data is None:
            return {}
        streams = {str(name): ReadProgress.of_json(each) for name, each in data["streams"].items()}
        whose = str(data["consumer"])
    except (StateBroken, BadRecord, TypeError, KeyError, AttributeError) as error:
        raise StateForeign(
            f"{path} cannot be read as a state ({error}); restore it, or give another file to "
            "begin anew"
        ) from error
    if whose != consumer:
        raise StateForeign(f"{path} is the state of consumer {whose}, not of {consumer}")
    return streams


class OrderedReader(PartitionReader):
    """The reading of *partition* under *claim*, which an ephemeral consumer needs none of; *file*
    keeps the state where it is a file.
    """

    def __init__(
        self, reading: Reading, partition: int, claim: HeldClaim | None, file: StateFile | None
    ) -> None:
        super().__init__(reading, partition)
        self.claim = claim
        self._file = file
        self._progress: ReadProgress | None = None
        self._in_hand: list[Message] = []
        # Messages up to here were delivered to some reader: the consumer may not bring them again.
        self._fill_until = 0
        # Skipped messages after the position. They are acknowledged together with the next message
        # that is processed.
        self._passed: dict[int, Delivered] = {}
        self._looked_at_s = 0.0
        self._checked_at_s = 0.0
        # Until here messages are handed out one by one, to find the one that cannot be processed.
        self._single_until = 0
        # The last message of a batch that failed, and is tried again or split.
        self._owed_until = 0
        # The last message of the batch during which a former reader died, or `NEXT_ALONE`.
        self._resume_until = 0
        # The last message of the batch that is handed out again for that, and how many readers
        # died over it, as far as it is known.
        self._resumed, self._deaths = 0, 0
        # Former readers may have processed what is handed out up to here.
        self._may_repeat_until = 0
        self._redo: Batch | None = None
        self._misses = Misses(reading, self.stream, partition)

    # --- Where it stands

    @property
    def sequence(self) -> int:
        """The last message that is done with."""
        return self._progress.position.sequence if self._progress else 0

    @property
    def _created(self) -> str:
        return self._progress.position.created if self._progress else ""

    def last_read(self) -> int | None:
        """Return the last sequence that was processed, None before the first look."""
        return self._progress.position.sequence if self._progress else None

    async def prepare(self) -> None:
        """Check that the stream still is the one of our position, and wind the consumer."""
        if self._progress is None:
            self._progress = self._stored()
            if self._progress is not None:
                self._resume_until, self._deaths = self._progress.working, self._progress.begun
        stream = await self._stream()
        if self._progress is None:
            done = self.consumer.done
            if not self.consumer.deliveries:
                # Nobody reads yet what is deleted before its first reader begins.
                done = max(done, stream.first - 1)
            time_ns = await time_at(self.reading.js, self.stream, stream, done)
            position = StreamPosition(stream.created, done, time_ns or 0)
            await self._save(ReadProgress(position))
        await self._look_for_all_missed(stream)
        self.consumer = await wind(self.reading.js, self.consumer, self.sequence)
        self._fill_until = self.consumer.delivered if self.consumer.is_contiguous else 0

    async def _stream(self, read: StreamPosition | None = None) -> StreamState:
        """Return the stream as it is now.

        Raises:
            StateForeign: it is not the one of our position, or of what was *read* behind it, any
                more.
            NotSent, OutcomeUnknown, ApiError: the server could not be asked.
        """
        info = await self.reading.js.stream_info(self.stream)
        if info is None:
            raise StateForeign(f"there is no stream {self.stream}; see `logpipeline plan`")
        stream = state_of(info)
        if self._progress is not None:
            position = read or self._progress.position
            found = await time_at(self.reading.js, self.stream, stream, position.sequence)
            self._judge(judge(position, stream, found), position)
        return stream

    async def is_same_stream(self) -> bool:
        """Return whether the stream is the one of our position."""
        try:
            await self._stream()
        except StateForeign:
            return False
        return True

    def _judge(self, verdict: Verdict, position: StreamPosition) -> None:
        if verdict is Verdict.GOOD:
            return
        what = (
            "was made anew"
            if verdict is Verdict.RECREATED
            else "went back: its server lost messages that had been processed"
        )
        raise StateForeign(
            f"stream {self.stream} {what} since message {position.sequence} was processed "
            f"(stream of {position.created}); nothing was read: " + self._way_out()
        )

    def _way_out(self) -> str:
        if self.options.positions is not None:
            return "begin anew under another name, and without positions"
        return "begin anew with --reset, or another state" if self.options.state else "start again"

    def _stored(self) -> ReadProgress | None:
        if self.options.positions is not None:
            text = self.options.positions.get(self.stream)
            return None if text is None else ReadProgress(position_of(text))
        if self._file is not None:
            return self._file.get(self.stream)
        return self.claim.progress if self.claim and self.options.state == KV else None

    async def _save(self, progress: ReadProgress) -> None:
        """Keep *progress*, however long the server is away.

        Raises:
            Fenced: another member has the partition.
            ConsumeError: the state file cannot be written.
        """
        if self._file is not None:
            await self._save_in(self._file, progress)
        elif self.claim is not None and self.options.state == KV:
            await self.claim.save(progress)
        self._progress = progress

    async def _save_in(self, file: StateFile, progress: ReadProgress) -> None:
        try:
            await asyncio.to_thread(file.put, self.stream, progress)
        except OSError as error:
            raise ConsumeError(
                f"the state {file.path} cannot be written: {error.strerror or error}; nothing of "
                "the batch in hand is acknowledged: make room or mend the disk, and start again, "
                "which goes on there"
            ) from error

    # --- What comes next

    async def _next(self) -> Batch:
        if self._redo is not None:
            await asyncio.sleep(self.backoff_s(self._redo.tries))
            again, self._redo = self._redo, None
            return again
        assert self._progress is not None
        is_open = self._resume_until == NEXT_ALONE or self._resume_until > self.sequence
        if is_open and (batch := await self._same_again()):
            if not self._is_spent(batch):
                return batch
            await self._spare(batch)
        while True:
            messages = await self._collect()
            if messages:
                self._in_hand = messages
                may_repeat = messages[0].sequence <= self._may_repeat_until
                return self._batch(messages, may_repeat=may_repeat)
            await self.fill_queue()
            if not self.queue:
                await self._look_at_server()

    def _batch(self, messages: Sequence[Message], *, may_repeat: bool, tries: int = 0) -> Batch:
        assert self._progress is not None
        created = self._progress.position.created
        return Batch(messages, created=created, may_repeat=may_repeat, tries=tries)

    async def _look_at_server(self) -> None:
        """Notice what no delivery tells: a stream that is another one now, a push consumer that is
        gone, and messages that were delivered to a reader that is gone. A pull of a reader that
        hangs, or whose machine is gone, waits at the server for a while yet.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s - self._looked_at_s < LOOK_S:
            return
        self._looked_at_s = now_s
        try:
            found = await find(self.reading.js, self.stream, self.consumer.name)
            stream = await self._stream()
            await self._look_for_all_missed(stream)
        except (NotSent, OutcomeUnknown, ApiError) as error:
            log.debug("not looked", extra={"stream": self.stream, "reason": str(error)})
            if isinstance(error, ApiError) and error.err_code in GONE:
                await self.open()
            return
        if changed := self.consumer.differs(found):
            log.warning(
                f"consumer {found.name} of stream {self.stream} was changed while it is read: "
                f"{', '.join(changed)}; what is read follows it"
            )
        self.consumer, self._fill_until = found, found.delivered

    async def _same_again(self) -> Batch | None:
        """Return the batch over which a reader before died, message by message the same."""
        messages: list[Message] = []
        until, after = self._resume_until, self.sequence
        self._resume_until = 0
        while found := await self._stored_behind(after):
            if messages if until == NEXT_ALONE else found.sequence > until:
                break
            await self._look_for_missed(after, found)
            after = found.sequence
            message = await self.admit(found, self._created, was_begun=True)
            if message is not None:
                messages.append(message)
        self._in_hand = messages
        if not messages:
            return None
        self._resumed = messages[-1].sequence
        # Who stops at a message that fails begins to count anew, as after any end.
        tries = 0 if self.options.on_error == "stop" else self._deaths
        return self._batch(messages, may_repeat=True, tries=tries)

    def _is_spent(self, batch: Batch) -> bool:
        """Return whether so many readers died over *batch* that no other one is to try it."""
        return 0 < self.tries_max() <= batch.tries

    async def _spare(self, batch: Batch) -> None:
        """Have each message of a batch over which readers died tried alone, and put one aside that
        was alone.
        """
        reason = f"its reader ended {batch.tries} times over it"
        self._resumed, self._may_repeat_until = 0, batch.last
        if len(batch.messages) > 1:
            log.warning(f"{self.named(batch)} are tried one by one: {reason}")
            self._single_until = self._owed_until = batch.last
            self._again(batch)
            return
        await self.put_aside(batch.messages[0], self._created, Outcome("reject", reason))
        await self._done(batch)

    async def _collect(self) -> list[Message]:
        """Return messages that are there, in order and without a gap, as many as make a batch."""
        messages: list[Message] = []
        assert self._progress is not None
        read, most = self._progress.position, self.options.batch_max
        last = read.sequence
        while len(messages) < most:
            delivered = await self._following(read)
            if delivered is None:
                break
            last = delivered.sequence
            read = replace(read, sequence=last, time_ns=delivered.time_ns)
            message = None
            if last not in self._passed:
                message = await self.admit(delivered, self._created)
            if message is None:
                if delivered.message.reply or last not in self._passed:
                    self._passed[last] = delivered
                if len(self._passed) < PASSED_MAX:
                    continue
                if messages:
                    break
                await self._advance([delivered])
                continue
            messages.append(message)
            if last <= self._single_until:
                break
        if messages:
            # Those behind the batch stay where they are: it may be split, or come again.
            behind = [n for n in sorted(self._passed, reverse=True) if n > messages[-1].sequence]
            self.queue.extendleft(self._passed[number] for number in behind)
        elif last > self.sequence:
            await self._advance([self._passed[last]])
        return messages

    async def _following(self, read: StreamPosition) -> Delivered | None:
        """Return the message behind what was *read*, or None where none is there yet."""
        last, again = read.sequence, []
        while self.queue and self.queue[0].sequence <= last:
            known = self.queue.popleft()
            if 0 < read.time_ns < known.time_ns:
                # Stored later, with a number that was given before: the server may have lost its
                # end, and a reader that is never idle would not look.
                await self._check(read)
            again.append(known)
        self.reading.counts.redelivered += len(again)
        await self.book.add(replies_of(again), 0)
        upcoming = self.queue[0].sequence if self.queue else 0
        if upcoming == last + 1:
            return self.queue.popleft()
        is_gap = self.consumer.is_contiguous and (upcoming or last < self._fill_until)
        if is_gap:
            stored = await self._stored_behind(last)
            if stored is not None and (not upcoming or stored.sequence < upcoming):
                await self._look_for_missed(last, stored)
                return stored
            self._fill_until = 0 if stored is None else self._fill_until
        if not self.queue:
            return None
        await self._look_for_missed(last, self.queue[0])
        return self.queue.popleft()

    async def _check(self, read: StreamPosition) -> None:
        """Raise `StateForeign` where the stream is not the one of what was *read* any more."""
        while True:
            try:
                await self._stream(read)
            except (NotSent, OutcomeUnknown, ApiError) as error:
                await self.reading.js.wait_after(error)
            else:
                return

    async def _look_for_missed(self, last: int, found: Delivered) -> None:
        """Note what the server deleted of the messages between *last* and *found*, the next one
        that there is. What a person took out of the stream's midst is not meant.
        """
        while self.consumer.is_whole and found.sequence > last + 1:
            try:
                first = min(await self.first_stored(self._created), found.sequence)
                await self._note_missed(last, first, found.time_ns)
            except (NotSent, OutcomeUnknown, ApiError) as error:
                await self.reading.js.wait_after(error)
            else:
                return

    async def _look_for_all_missed(self, stream: StreamState) -> None:
        """Note what the server deleted where no message is left to show it."""
        if not stream.messages:
            await self._note_missed(self.sequence, stream.last + 1)

    async def _note_missed(self, last: int, first: int, before_ns: int = 0) -> None:
        """Note that the messages between *last* and *first*, of which none was read, are gone."""
        if not self.consumer.is_whole or first <= last + 1:
            return
        if self.claim is not None:
            # One that was frozen would name what its successor has read.
            await self.claim.check()
        assert self._progress is not None
        await self._misses.note(
            self._progress.position.created,
            last + 1,
            first - 1,
            after=self._progress.position.time_ns,
            before=before_ns,
        )

    async def _stored_behind(self, sequence: int) -> Delivered | None:
        """Return the first message behind *sequence* as it stands in the stream."""
        while True:
            try:
                stored = await self.reading.js.next_from_leader(
                    self.stream, sequence + 1, self.consumer.filter
                )
            except (NotSent, OutcomeUnknown, ApiError) as error:
                await self.reading.js.wait_after(error)
            else:
                headers_only = bool(self.consumer.config.get("headers_only"))
                return _delivered(stored, headers_only=headers_only) if stored else None

    # --- What became of it

    async def begin(self, batch: Batch) -> None:
        """Note which messages are handed out, so that a successor hands out the same."""
        assert self._progress is not None
        # After a death also a message that is alone is noted: whether it was begun then, is open.
        is_resumed = batch.last == self._resumed
        is_noted = self.options.batch_max > 1 or is_resumed
        working = batch.last if is_noted else NEXT_ALONE
        begun = self._deaths * is_resumed + 1 if is_noted else 0
        progress = ReadProgress(self._progress.position, working, begun=begun)
        if self.options.state is not None and progress != self._progress:
            await self._save(progress)
        await self.claim_is_ours()

    async def claim_is_ours(self) -> None:
        """Raise `Fenced` where another reader took the partition over meanwhile; a server that is
        away is waited for.
        """
        is_group = self.options.group
        if self.claim is None or (is_group and self.options.state == KV):
            # No claim, or one that each batch writes.
            return
        takeover_after_s = self.reading.pipeline.spec.collectors.takeover_after_ns / NS
        now_s = asyncio.get_running_loop().time()
        is_fresh = now_s - self._checked_at_s < takeover_after_s / CHECKS_PER_TAKEOVER
        if is_fresh and not is_group:
            # A reader alone is followed only by one that saw no sign of it for so long.
            return
        while True:
            try:
                await self.claim.check()
            except (NotSent, OutcomeUnknown, ApiError) as error:
                await self.reading.js.wait_after(error)
            else:
                self._checked_at_s = now_s
                return

    @property
    def owes(self) -> bool:
        """Whether the batch that failed is not done with yet."""
        return self._owed_until > self.sequence

    async def settle(self, batch: Batch) -> bool:
        """Do what the batch's outcome asks for; see `PartitionReader.settle`."""
        outcome = batch.outcome or PROCESSED
        if outcome.kind == "processed":
            self.reading.counts.processed += len(batch.messages)
            await self._done(batch)
            return True
        tries = batch.tries + 1
        if self.is_again(outcome, tries):
            self.reading.counts.retried += 1
            reason = {"stream": self.stream, "first": batch.first, "reason": outcome.reason}
            log.warning("a batch is tried again", extra=reason)
            self._redo = self._batch(batch.messages, may_repeat=True, tries=tries)
        elif self.options.on_error == "stop":
            raise self.stopped(batch, outcome.reason)
        elif len(batch.messages) > 1:
            self._single_until = batch.last
            self._again(batch)
        else:
            await self.put_aside(batch.messages[0], self._created, outcome)
            await self._done(batch)
            return True
        self._owed_until = max(self._owed_until, batch.last)
        return False

    def _again(self, batch: Batch) -> None:
        self._in_hand = []
        self.queue.extendleft(each.delivered for each in reversed(batch.messages))

    async def _done(self, batch: Batch) -> None:
        self._in_hand = []
        reach("consume.processed")
        await self._advance(batch.deliveries)

    async def _advance(self, done: Sequence[Delivered]) -> None:
        working, last = NEXT_ALONE if self.options.batch_max == 1 else 0, done[-1]
        position = StreamPosition(self._created, last.sequence, last.time_ns)
        await self._save(ReadProgress(position, working))
        # The position is kept, the server does not know yet: what it delivers again is skipped.
        reach("consume.saved")
        over = [number for number in sorted(self._passed) if number <= last.sequence]
        passed = [self._passed.pop(number) for number in over]
        # One may be among both; with the policy all, the last reply counts.
        await self.book.add(list(dict.fromkeys(replies_of([*passed, *done]))), len(done))

    def in_hand(self) -> list[str]:
        """Return the replies of the messages that were handed out, and of those skipped before."""
        return replies_of([*self._passed.values(), *(each.delivered for each in self._in_hand)])

    async def close(self) -> None:
        """Acknowledge what was processed, stop reading, and let another one have the partition."""
        await super().close()
        progress = self._progress
        if progress is not None and progress.begun:
            # We end in peace over the batch in hand, and so it was not tried.
            progress = replace(progress, begun=progress.begun - 1)
            if self._file is not None:
                with contextlib.suppress(ConsumeError):
                    # Then it counts as a try.
                    await self._save(progress)
        if self.claim is not None:
            is_kept = self.options.state == KV
            await self.claim.release(progress if is_kept else self.claim.progress)


def _delivered(stored: StoredMessage, *, headers_only: bool) -> Delivered:
    data = b"" if headers_only else stored.data
    message = RawMessage(stored.subject.encode(), b"", stored.headers, data)
    return Delivered(message, stored.sequence, 0, stored.time_ns, 0)
