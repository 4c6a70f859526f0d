"""A partition that a group reads together: any member gets any message, and the server keeps the
account. There is no order and no position; what a member does not acknowledge, another one gets.
"""

from __future__ import annotations

from collections import deque

from logpipeline.consuming.acks import ACK
from logpipeline.consuming.lane import Lane, Reading, replies_of
from logpipeline.consuming.message import PROCESSED, Batch, Message, Outcome
from logpipeline.failpoints import reach

NS = 1_000_000_000


class SharedLane(Lane):
    """The reading of *partition* beside others."""

    def __init__(self, reading: Reading, partition: int) -> None:
        super().__init__(reading, partition)
        self._in_hand: list[Message] = []
        self._singles: deque[Message] = deque()
        self._created = ""

    def last_read(self) -> int | None:
        """Return None: there is no position."""
        return None

    async def prepare(self) -> None:
        """Get ready to read `consumer`."""
        info = await self.reading.js.stream_info(self.stream)
        self._created = str(info["created"]) if info else ""

    async def next(self) -> Batch:
        """Return the next messages to be processed, as soon as there are some."""
        if self._singles:
            self._in_hand = [self._singles.popleft()]
            tries = self._in_hand[0].delivery - 1
            return Batch(self._in_hand, created=self._created, may_repeat=True, tries=tries)
        while True:
            messages: list[Message] = []
            while self.queue and len(messages) < self.options.batch_max:
                delivered = self.queue.popleft()
                message = await self.admit(delivered, self._created)
                if message is None:
                    await self.book.add(replies_of([delivered]), 1)
                    continue
                messages.append(message)
            if messages:
                self._in_hand = messages
                tries = max(each.delivery for each in messages) - 1
                self.reading.counts.redelivered += sum(each.delivery > 1 for each in messages)
                is_again = tries > 0
                return Batch(messages, created=self._created, may_repeat=is_again, tries=tries)
            await self.fill_queue()

    async def begin(self, batch: Batch) -> None:
        """Acknowledge what is not waited for: fire and forget."""
        if self.options.acks.mode == "none":
            await self.book.add(replies_of(batch.deliveries), len(batch.messages))

    async def settle(self, batch: Batch) -> None:
        """Do what the batch's outcome asks for; see `Lane.settle`."""
        outcome = batch.outcome or PROCESSED
        messages = list(batch.messages)
        self._in_hand = []
        if outcome.kind == "processed":
            self.reading.counts.processed += len(messages)
            reach("consume.processed")
            if self.options.acks.mode != "none":
                await self.book.add(replies_of(batch.deliveries), len(messages))
            return
        if self.is_again(outcome, batch.tries + 1):
            self.reading.counts.retried += 1
            delay_ns = int(self.backoff_s(batch.tries + 1) * NS)
            await self.book.send(replies_of(batch.deliveries), b'-NAK {"delay": %d}' % delay_ns)
        elif self.options.on_error == "stop":
            await self.book.send(replies_of(batch.deliveries), b"-NAK")
            raise self.stopped(batch, outcome.reason)
        elif len(messages) > 1:
            # One by one, to find the one that cannot be processed.
            self._singles.extend(messages)
        else:
            await self._reject(messages[0], outcome)

    async def _reject(self, message: Message, outcome: Outcome) -> None:
        await self.put_aside(message, self._created, outcome)
        await self.book.send(replies_of([message.delivered]), ACK)

    async def close(self) -> None:
        """Acknowledge what was processed, and let others have the rest at once."""
        await self.book.send(self.in_hand() + replies_of(self.queue), b"-NAK")
        await super().close()

    def in_hand(self) -> list[str]:
        """Return the replies of the messages that were handed out, or wait to be once more."""
        return replies_of(each.delivered for each in (*self._in_hand, *self._singles))
