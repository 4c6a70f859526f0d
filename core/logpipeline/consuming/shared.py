"""A partition whose messages any member of a group may take: there is no order and no position, and
the server keeps the account.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from logpipeline.consuming.message import PROCESSED, Batch, Message, Outcome
from logpipeline.consuming.missed import Misses
from logpipeline.consuming.options import Stopped
from logpipeline.consuming.partition_reader import (
    ACK,
    NS,
    PartitionReader,
    Reading,
    replies_of,
)
from logpipeline.failpoints import reach
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
from logpipeline.nats.pull import Delivered
from logpipeline.records import StreamPosition
from logpipeline.streamstate import StreamState, Verdict, judge, state_of, time_at

# What a dead letter says of a last delivery that was given back.
ENDED = "its reader ended before it was processed, and maxDeliver allows no other delivery"

log = logging.getLogger(__name__)


class LastDelivery(NamedTuple):
    """The last delivery that is known, to any member, and the highest message that was delivered;
    0 where none is known.
    """

    delivery: int
    sequence: int

    def followed_by(self, delivered: Delivered) -> LastDelivery:
        """Return this after *delivered*, which may have come before."""
        return LastDelivery(delivered.delivery, max(self.sequence, delivered.sequence))


NO_DELIVERY = LastDelivery(0, 0)


class SharedReader(PartitionReader):
    """The reading of *partition* beside others."""

    def __init__(self, reading: Reading, partition: int) -> None:
        super().__init__(reading, partition)
        self._in_hand: list[Message] = []
        self._singles: deque[Message] = deque()
        # Whether the message in hand was one of these.
        self._is_single = False
        # The stream of those in hand that cannot be acknowledged any more.
        self._former = ""
        # The last message that we saw, and the stream.
        self._seen = StreamPosition("", 0, 0)
        self._delivered = NO_DELIVERY
        self._misses = Misses(reading, self.stream, partition)

    @property
    def _created(self) -> str:
        return self._seen.created

    def last_read(self) -> int | None:
        """Return None: there is no position."""
        return None

    async def prepare(self) -> None:
        """Get ready to read `consumer`, maybe of a stream that is no longer the one it was."""
        stream = await self._stream()
        if stream is None:
            return
        if self._created and not await self._is_same(stream):
            self._lose_stream()
        self._seen = replace(self._seen, created=stream.created)
        if not self._delivered.delivery:
            self._delivered = LastDelivery(self.consumer.deliveries, self.consumer.delivered)

    async def _stream(self) -> StreamState | None:
        info = await self.reading.js.stream_info(self.stream)
        return None if info is None else state_of(info)

    async def _is_same(self, stream: StreamState) -> bool:
        found = await time_at(self.reading.js, self.stream, stream, self._seen.sequence)
        return judge(self._seen, stream, found) is Verdict.GOOD

    async def is_same_stream(self) -> bool:
        """Return whether the stream is the one that was read until now. True also where there is no
        stream: an acknowledgement reaches nobody then.
        """
        stream = await self._stream()
        return stream is None or await self._is_same(stream)

    def _lose_stream(self) -> None:
        """Forget what is true of the former stream only: another one gives the same numbers to
        other messages.
        """
        log.warning(
            "the stream was made anew or went back; the group reads what it holds now",
            extra={"stream": self.stream},
        )
        self._former, self._seen = self._created, StreamPosition("", 0, 0)
        self._resends = self._new_resends()
        self._delivered = NO_DELIVERY
        self.queue.clear()
        for message in (*self._in_hand, *self._singles):
            # There is nothing to be acknowledged any more.
            unanswered = message.delivered.message._replace(reply=b"")
            message.delivered = replace(message.delivered, message=unanswered)

    async def _look_again(self) -> None:
        """Begin again where the consumer or the connection is gone, before anything is said of
        what they brought: maybe it stands for something else now.
        """
        if self.reading.js.connection.is_connected and self.has_ended:
            await self.open()

    async def _next(self) -> Batch:
        if self._singles:
            self._in_hand, self._is_single = [self._singles.popleft()], True
            tries = self._in_hand[0].delivery - 1
            return Batch(self._in_hand, created=self._created, may_repeat=True, tries=tries)
        while True:
            # Always in the queue or in hand, so that whoever cancels this can give it back.
            messages = self._in_hand = []
            while self.queue and len(messages) < self.options.batch_max:
                delivered = self.queue[0]
                await self._look_for_missed(delivered)
                self._delivered = self._delivered.followed_by(delivered)
                if delivered.sequence > self._seen.sequence:
                    place = (delivered.sequence, delivered.time_ns)
                    self._seen = StreamPosition(self._created, *place)
                message = await self.admit(delivered, self._created)
                if message is None:
                    await self.book.add(replies_of([delivered]), 1)
                else:
                    messages.append(message)
                self.queue.popleft()
            if messages:
                tries = max(each.delivery for each in messages) - 1
                self.reading.counts.redelivered += sum(each.delivery > 1 for each in messages)
                is_again = tries > 0
                return Batch(messages, created=self._created, may_repeat=is_again, tries=tries)
            await self.fill_queue()

    async def _look_for_missed(self, delivered: Delivered) -> None:
        """Note what the server deleted before it was delivered to any member."""
        left_out = self._left_out(delivered)
        if left_out <= 0 or not self.consumer.is_whole:
            return
        while True:
            try:
                stored = await self.first_stored(self._created)
            except (NotSent, OutcomeUnknown, ApiError) as error:
                await self.reading.js.wait_after(error)
            else:
                break
        last = min(stored, delivered.sequence) - 1
        first = last - min(left_out, last - self._delivered.sequence) + 1
        if first <= last:
            await self._misses.note(
                self._created, first, last, after=self._seen.time_ns, before=delivered.time_ns
            )

    def _left_out(self, delivered: Delivered) -> int:
        """Return how many messages no member got between the last delivery that came here and this
        one: the numbers of deliveries have no gap. What came to others again may hide some of them.
        """
        known = self._delivered
        if not known.delivery or delivered.sequence <= known.sequence:
            return 0
        return (delivered.sequence - known.sequence) - (delivered.delivery - known.delivery)

    async def begin(self, batch: Batch) -> None:
        """Acknowledge what is not waited for: fire and forget."""
        if self.options.acks.mode == "none":
            await self._look_again()
            self._in_hand = []
            await self.book.add(replies_of(batch.deliveries), len(batch.messages))

    @property
    def owes(self) -> bool:
        """Whether a batch was split, and not all of it was tried alone. What is given back to the
        server may come to any member.
        """
        return self._is_single or bool(self._singles)

    async def settle(self, batch: Batch) -> bool:
        """Do what the batch's outcome asks for; see `PartitionReader.settle`."""
        outcome = batch.outcome or PROCESSED
        if outcome.kind != "processed":
            # Of a stream that is gone nothing comes again: what fails becomes a dead letter. For
            # what was processed, the acknowledgement asks.
            await self.may_answer()
        await self._look_again()
        self._is_single = False
        messages = list(batch.messages)
        self._in_hand = []
        if outcome.kind == "processed":
            self.reading.counts.processed += len(messages)
            reach("consume.processed")
            if self.options.acks.mode != "none":
                await self.book.add(replies_of(batch.deliveries), len(messages))
            return True
        may_come = all(each.message.reply for each in batch.deliveries)
        if may_come and self.is_again(outcome, batch.tries + 1):
            self.reading.counts.retried += 1
            delay_ns = int(self.backoff_s(batch.tries + 1) * NS)
            await self.book.send(replies_of(batch.deliveries), b'-NAK {"delay": %d}' % delay_ns)
        elif self.options.on_error == "stop":
            await self._stop(batch, outcome)
        elif len(messages) > 1:
            # One by one, to find the one that cannot be processed.
            self._singles.extend(messages)
        else:
            await self._reject(messages[0], outcome)
            return True
        return False

    def tries_max(self) -> int:
        """Return how often a message is tried; 0: for ever. Only the server knows what all members
        tried, and it counts deliveries: beyond its own limit there is none.
        """
        limits = (self.options.tries_max, self.consumer.max_deliver)
        return min((limit for limit in limits if limit), default=0)

    async def _reject(self, message: Message, outcome: Outcome) -> None:
        created = self._created if message.delivered.message.reply else self._former
        await self.put_aside(message, created, outcome)
        await self.book.send(replies_of([message.delivered]), ACK)

    async def _stop(self, batch: Batch, outcome: Outcome) -> None:
        """End over *batch*: its messages come again, or are dead letters where they cannot."""
        if not await self._give_back(batch.deliveries, outcome):
            raise self.stopped(batch, outcome.reason)
        raise Stopped(
            f"{self.named(batch)} could not be processed: {outcome.reason}; what the server does "
            f"not deliver again, by maxDeliver of consumer {self.consumer.name} or since the "
            "stream was made anew, is among the dead letters: mend the cause, send it again with "
            "`logpipeline dlq retry`, and start again"
        )

    async def _give_back(self, deliveries: Iterable[Delivered], outcome: Outcome) -> int:
        """Let others have messages at once. One that the server would deliver to nobody any more
        becomes a dead letter; return how many did.

        Raises:
            Stopped: that is not possible.
        """
        most, given = self.consumer.max_deliver, list(deliveries)
        last = [each for each in given if 0 < most <= each.deliveries or not each.message.reply]
        others = [each for each in given if each not in last] if last else given
        await self.book.send(replies_of(others), b"-NAK")
        for delivered in last:
            message = Message(self.reading.subjects, self.stream, self.partition, delivered)
            await self._reject(message, outcome)
        return len(last)

    async def close(self) -> None:
        """Acknowledge what was processed, and let others have the rest at once."""
        if self._was_open and self.reading.js.connection.is_connected:
            await self.may_answer()
        if self._reader is not None:
            # First, or the server delivers to us again what we give back.
            self.queue.extend(await self._reader.drain())
        if self._is_other_stream:
            self._lose_stream()
        if self._was_open and self.reading.js.connection.is_connected:
            begun = [each.delivered for each in (*self._in_hand, *self._singles)]
            try:
                await self._give_back([*begun, *self.queue], Outcome("reject", ENDED))
            except Stopped as error:
                # The server gives it up when its time is over, and says so.
                extra = {"stream": self.stream, "reason": str(error)}
                log.error("a last delivery was not kept", extra=extra)
        await super().close()

    async def close_reader(self) -> None:
        """Stop reading. What was fetched is kept: for the server it is ours, also after a cut."""
        held = [*self.queue, *(self._reader.held if self._reader is not None else [])]
        await super().close_reader()
        self.queue.extend(held)

    def in_hand(self) -> list[str]:
        """Return the replies of the messages that were handed out, or wait to be once more."""
        return replies_of(each.delivered for each in (*self._in_hand, *self._singles))
