"""One partition as it is read: its consumer, the messages that came, and what was acknowledged.

There are two kinds: `shared.SharedReader` keeps no order and no position; `ordered.OrderedReader`
keeps both.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from logpipeline.consuming.consumer import Consumer, PushReader, ensure, find
from logpipeline.consuming.message import (
    UNREADABLE,
    Batch,
    Message,
    Outcome,
    is_for_another,
)
from logpipeline.consuming.options import BYTES_MAX, Acks, ConsumeError, ConsumeOptions, Stopped
from logpipeline.consuming.resends import Resends
from logpipeline.dead_letters import Letter, keep
from logpipeline.event_times import NONE, EventTimes
from logpipeline.letter_room import LetterRoom
from logpipeline.nats.connection import Connection, Denied, NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.nats.pull import Delivered, PullReader, ReaderClosed
from logpipeline.spec import LogPipeline
from logpipeline.streamstate import state_of
from logpipeline.subjects import Subjects
from logpipeline.wire import BadMessage, decode_payload

IN_PROGRESS = b"+WPI"
ACK = b"+ACK"
# Signs that a message is in progress, for each time in which the server waits for its
# acknowledgement.
SIGNS_PER_ACK_WAIT = 3

log = logging.getLogger(__name__)

TAKE_S = 1.0
REOPEN_S = 0.2
# So often a server that is in trouble is asked whether a stream is still there.
ASKED_MAX = 3
# Waits between tries where the consumer names none; the last one repeats.
BACKOFF_S = (0.2, 1.0, 5.0, 30.0)
NS = 1_000_000_000
# Reasons of dead letters.
REJECTED = "rejected"


class AckBook:
    """The acknowledgements of one partition. *policy* is the consumer's, as soon as that is known:
    with ``all`` the last one says it of all before. So is *most*: the messages that it delivers
    before one of them is acknowledged, 0 where it has no limit.

    A lost one costs a second delivery, which is recognised, or processed again. One that reaches a
    new stream of the same name acknowledges another message there, which is lost unless its reader
    processes it. So *may_answer* is asked before each is sent.
    """

    def __init__(
        self, connection: Connection, acks: Acks, may_answer: Callable[[], Awaitable[bool]]
    ) -> None:
        self.policy = "none"
        self.most = 0
        self._connection = connection
        self._acks = acks
        self._may_answer = may_answer
        # Replies that wait, in order.
        self._due: list[str] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    async def add(self, replies: list[str], count: int) -> None:
        """Note that *count* more messages were processed; *replies* are those of them that can be
        acknowledged. They are, once enough have come.
        """
        if self.policy == "none":
            return
        self._due += replies
        self._count += count
        # With all that it may deliver waiting here, the consumer would stop for ever.
        is_full = 0 < self.most <= 2 * len(self._due)
        if self._acks.mode != "spaced" or 0 < self._acks.every <= self._count or is_full:
            await self.flush()
        elif self._acks.interval_s and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._acks.interval_s, self._time_is_up)

    async def flush(self) -> None:
        """Acknowledge all that waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due, self._due, self._count = self._due, [], 0
        await self.send(due[-1:] if self.policy == "all" else due, ACK)

    async def send(self, replies: list[str], word: bytes) -> None:
        """Send *word* to each of *replies*, unless their stream is gone."""
        if not replies or not await self._may_answer():
            return
        # Without a connection the server delivers again.
        with contextlib.suppress(NotSent):
            for reply in replies:
                await self._connection.publish(reply, word)

    @property
    def waiting(self) -> list[str]:
        """The replies of what was processed and is not acknowledged yet."""
        return self._due

    def _time_is_up(self) -> None:
        self._timer = None
        self._flushing = asyncio.create_task(self.flush(), name="consume-acks")


@dataclass(slots=True)
class Counts:
    """Outcomes of messages, over all partitions.

    Handed out and *processed*; *retried* batches; put aside as *dead_letters*. Passed over since
    they were processed before (*redelivered*; where work is shared: handed out again), are older
    than the option max_age (*expired*), hold only lines that came before (*sent_again*), or are for
    another consumer (*for_others*). *missed* are those that the server deleted before they were
    read; *possible_repeats* were handed out although a shipper had sent them again, since the
    stream no longer held what was before them.
    """

    processed: int = 0
    redelivered: int = 0
    expired: int = 0
    sent_again: int = 0
    for_others: int = 0
    retried: int = 0
    dead_letters: int = 0
    missed: int = 0
    possible_repeats: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """What the readers of all partitions share; there are *partitions* of them at most."""

    js: JetStream
    pipeline: LogPipeline
    options: ConsumeOptions
    partitions: int
    event_times: EventTimes = NONE
    counts: Counts = field(default_factory=Counts)

    @property
    def subjects(self) -> Subjects:
        """The subjects of the streams, each of which is read as one partition."""
        return self.pipeline.stream_subjects


class PartitionReader(ABC):
    """The reading of *partition*."""

    def __init__(self, reading: Reading, partition: int) -> None:
        self.reading = reading
        self.partition = partition
        self.stream = reading.pipeline.names.stream(partition)
        self.options = reading.options
        self.queue: deque[Delivered] = deque()
        self.consumer: Consumer
        self.book = AckBook(reading.js.connection, reading.options.acks, self.may_answer)
        self._reader: PullReader | PushReader | None = None
        self._was_open = False
        # Whether our consumer is not there any more, or out of reach (to open again says why), and
        # whether its stream is another one now.
        self._is_gone = self._is_other_stream = False
        self._signs: asyncio.Task[None] | None = None
        names = reading.pipeline.names
        self._room = LetterRoom(
            reading.js,
            reading.subjects,
            stream=names.dead_letter_stream,
            root=names.dead_letter_subject,
            counts_stored=False,
        )
        self._resends = self._new_resends()

    def _new_resends(self) -> Resends:
        reading = self.reading
        return Resends(
            reading.js, reading.subjects, self.stream, self.partition, reading.options.name
        )

    async def open(self) -> None:
        """Begin to read, or begin again after a cut, as soon as the server answers.

        Raises:
            ConsumeError: it cannot be read; the message says what to do.
        """
        while True:
            await self.reading.js.connection.wait_connected()
            try:
                await self.close_reader()
                self.consumer = await ensure(
                    self.reading.js,
                    self.reading.pipeline,
                    self.stream,
                    self.options,
                    after=self.last_read(),
                    was_there=self._was_open,
                )
                await self.prepare()
                self.book.policy = self.consumer.ack_policy
                self.book.most = self.consumer.max_ack_pending
                self._start_signs()
                self._reader = self._make_reader()
                await self._reader.open()
                self._was_open = True
                self._is_gone = self._is_other_stream = False
            except Denied as error:
                # No time helps: a person has to give the right.
                raise ConsumeError(str(error)) from error
            except (NotSent, OutcomeUnknown, ReaderClosed, ApiError) as error:
                if isinstance(error, ApiError) and not error.is_trouble:
                    raise
                log.debug("not reading yet", extra={"stream": self.stream, "reason": str(error)})
                await asyncio.sleep(REOPEN_S)
            else:
                return

    @property
    def has_ended(self) -> bool:
        """Whether it is known to bring nothing more: the consumer, or the connection, is gone."""
        return self._is_gone or (self._reader is not None and self._reader.has_ended)

    async def may_answer(self) -> bool:
        """Ask the server whether the stream of our messages is still there, so that they can be
        acknowledged or given back. False also without a connection or an answer: the server
        delivers them again.

        The server announces a deletion only to pulls that wait there, and not always to them.
        """
        for _ in range(ASKED_MAX):
            try:
                found = await find(self.reading.js, self.stream, self.consumer.name)
                is_known = found.created == self.consumer.created and not self.has_ended
                if not is_known and not await self.is_same_stream():
                    self._is_gone = self._is_other_stream = True
            except Denied:
                self._is_gone = True
            except (NotSent, OutcomeUnknown):
                return False
            except ApiError as error:
                if error.is_trouble:
                    await asyncio.sleep(REOPEN_S)
                    continue
                self._is_gone = True
            return not self._is_gone
        return False

    @abstractmethod
    async def is_same_stream(self) -> bool:
        """Return whether the stream is the one that was read until now.

        Raises:
            NotSent, OutcomeUnknown, ApiError: the server could not be asked.
        """

    @abstractmethod
    def last_read(self) -> int | None:
        """Return the last sequence that was processed here, None before the first look."""

    @abstractmethod
    async def prepare(self) -> None:
        """Get ready to read `consumer` from where it is."""

    async def next(self) -> Batch:
        """Return the next messages to be processed, as soon as there are some.

        Raises:
            ConsumeError: it cannot be read on; the message says what to do.
        """
        try:
            return await self._next()
        except Denied as error:
            raise ConsumeError(str(error)) from error

    @abstractmethod
    async def _next(self) -> Batch:
        """Return the next messages to be processed, as soon as there are some."""

    @abstractmethod
    async def begin(self, batch: Batch) -> None:
        """Note that *batch* is handed out now."""

    @property
    @abstractmethod
    def owes(self) -> bool:
        """Whether messages of a batch that failed are to be handed out again here."""

    @abstractmethod
    async def settle(self, batch: Batch) -> bool:
        """Do what the batch's outcome asks for; return whether its messages are done with, and not
        to be tried again.

        Raises:
            Stopped: the reader is to end over it.
        """

    async def close(self) -> None:
        """Acknowledge what was processed, and stop reading."""
        await self.book.flush()
        await self.close_reader()
        if self.options.ephemeral:
            with contextlib.suppress(NotSent, OutcomeUnknown, ApiError):
                await self.reading.js.consumer_delete(self.stream, self.options.name)

    async def close_reader(self) -> None:
        """Stop reading, and forget what was not handed out."""
        self.queue.clear()
        if self._signs is not None:
            self._signs.cancel()
            self._signs = None
        if self._reader is not None:
            with contextlib.suppress(NotSent):
                await self._reader.close()
            self._reader = None

    async def fill_queue(self) -> None:
        """Wait a little for messages; begin again where the connection or the reader is gone."""
        assert self._reader is not None
        try:
            if self._is_gone:
                raise ReaderClosed("the consumer or its stream was deleted, or may not be read")
            self.queue.extend(await self._reader.take(timeout_s=TAKE_S))
        except Denied:
            raise
        except (NotSent, ReaderClosed) as error:
            log.info("reading again", extra={"stream": self.stream, "reason": str(error)})
            await self.open()

    def _start_signs(self) -> None:
        """Send signs of progress to the server, as long as a message is in hand."""
        if self.consumer.ack_policy == "none":
            return
        self._signs = asyncio.create_task(self._give_signs(), name=f"consume-signs-{self.stream}")

    @abstractmethod
    def in_hand(self) -> list[str]:
        """Return the replies of the messages that were handed out or wait to be."""

    async def _give_signs(self) -> None:
        while True:
            await asyncio.sleep(self.consumer.ack_wait_s / SIGNS_PER_ACK_WAIT)
            held = self._reader.held if self._reader is not None else []
            waiting = replies_of([*self.queue, *held])
            await self.book.send(self.in_hand() + self.book.waiting + waiting, IN_PROGRESS)

    def _make_reader(self) -> PullReader | PushReader:
        js, bytes_max = self.reading.js, BYTES_MAX // self.reading.partitions
        if self.consumer.deliver_subject:
            group = str(self.consumer.config.get("deliver_group", ""))
            return PushReader(js, self.consumer.deliver_subject, group, bytes_max=bytes_max)
        most = int(self.consumer.config.get("max_batch", 0)) or self.options.batch_max
        return PullReader(
            js,
            self.stream,
            self.consumer.name,
            pull_bytes=bytes_max,
            pull_messages=min(self.options.batch_max, most),
            pulls=1,
        )

    async def first_stored(self, created: str) -> int:
        """Return the first message that the stream holds; 0 where it is not the one that was
        *created* then.

        Raises:
            NotSent, OutcomeUnknown, ApiError: the server could not be asked.
        """
        info = await self.reading.js.stream_info(self.stream)
        return state_of(info).first if info is not None and info["created"] == created else 0

    # What both kinds of partition readers do with messages.

    async def admit(
        self, delivered: Delivered, created: str, *, was_begun: bool = False
    ) -> Message | None:
        """Return the message of a delivery, or None where the reader skips it: too old
        (unless it *was_begun* in time), another consumer's, or nothing but lines that the stream,
        *created* then, held before.
        """
        counts, oldest_s = self.reading.counts, self.options.max_age_s
        if oldest_s and not was_begun and time.time_ns() - delivered.time_ns > oldest_s * NS:
            counts.expired += 1
            return None
        if is_for_another(delivered, self.options.name):
            counts.for_others += 1
            return None
        reading = self.reading
        message = Message(
            reading.subjects, self.stream, self.partition, delivered, reading.event_times
        )
        if not self._can_be_decoded(message):
            self._resends.leave_out(message)
        is_again = b"Log-Resend:" in delivered.message.headers
        if is_again and not await self._resends.cut(message, created):
            counts.sent_again += 1
            return None
        if is_again and self._resends.may_repeat(message):
            counts.possible_repeats += 1
        return message

    def _can_be_decoded(self, message: Message) -> bool:
        if self.consumer.config.get("headers_only"):
            return True
        try:
            batch = message.read.batch
            if batch is not None and batch.resend:
                # Not `data`, which is kept: something may be cut off it yet.
                decode_payload(batch, message.payload)
            else:
                message.data  # noqa: B018  # decodes it, and keeps the result
        except BadMessage:
            return False
        return True

    def why_unreadable(self, batch: Batch) -> str:
        """Return why a message of *batch* cannot be decoded; empty if each can be."""
        if self.consumer.config.get("headers_only"):
            return ""
        try:
            for message in batch.messages:
                message.data  # noqa: B018  # decodes it, and keeps the result
        except BadMessage as error:
            return f"it cannot be decoded: {error}"
        return ""

    def tries_max(self) -> int:
        """Return how often a message is tried; 0: for ever."""
        return self.options.tries_max or self.consumer.max_deliver

    def is_again(self, outcome: Outcome, tries: int) -> bool:
        """Return whether what ended as *outcome*, after so many *tries*, is tried once more."""
        is_spent = 0 < self.tries_max() <= tries
        return not is_spent and (outcome.kind == "retry" or self.options.on_error == "retry")

    def backoff_s(self, tries: int) -> float:
        """Return how long to wait after so many *tries*."""
        given = [int(each) / NS for each in self.consumer.config.get("backoff") or ()]
        waits = given or BACKOFF_S
        return waits[min(tries, len(waits)) - 1]

    async def put_aside(self, message: Message, created: str, outcome: Outcome) -> None:
        """Keep a message that cannot be processed as a dead letter.

        Raises:
            Stopped: that is not possible.
        """
        letter = Letter(
            reason=UNREADABLE if outcome.kind == UNREADABLE else REJECTED,
            detail=outcome.reason,
            stream=self.stream,
            created=created,
            sequence=message.sequence,
            time_ns=message.time_ns,
            subject=message.subject,
            headers=message.headers,
            payload=message.payload,
            payload_bytes=len(message.payload),
            consumer=self.options.name,
        )
        names = self.reading.pipeline.names
        if not await self._room.admits(self.partition, 0, letter):
            raise Stopped(
                f"message {message.sequence} of stream {self.stream} could not be put among the "
                f"dead letters: stream {names.dead_letter_stream} has no room left for more of "
                f"{self.options.name}, or is not there. Nothing of it is acknowledged: look at "
                "`logpipeline dlq ls`, and start again"
            )
        root = names.dead_letter_subject
        if not await keep(self.reading.js, root, self.partition, letter):
            raise Stopped(
                f"message {message.sequence} of stream {self.stream} could not be put among the "
                "dead letters; nothing of it is acknowledged: see the log, and start again"
            )
        self.reading.counts.dead_letters += 1

    def stopped(self, batch: Batch, reason: str) -> Stopped:
        """Return the error that ends a reader over *batch*."""
        return Stopped(
            f"{self.named(batch)} could not be processed: {reason}; nothing of it is "
            "acknowledged: mend the cause and start again, which goes on there"
        )

    def named(self, batch: Batch) -> str:
        """Return the words for the messages of *batch*."""
        which = f"message {batch.first}"
        if batch.last != batch.first:
            which = f"messages {batch.first} to {batch.last}"
        return f"{which} of stream {self.stream}"


def replies_of(messages: Iterable[Delivered]) -> list[str]:
    """Return where those of *messages* can be acknowledged that came by delivery."""
    return [each.message.reply.decode() for each in messages if each.message.reply]
