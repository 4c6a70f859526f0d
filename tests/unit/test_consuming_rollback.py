"""A reader that is never idle notices, by what is delivered, that its stream went back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest

from logpipeline.consuming.consumer import Consumer
from logpipeline.consuming.message import Batch
from logpipeline.consuming.options import Acks, ConsumeOptions, StateForeign
from logpipeline.consuming.ordered import OrderedReader
from logpipeline.consuming.partition_reader import Reading
from logpipeline.nats.connection import NotSent
from logpipeline.nats.jetstream import JetStream, StoredMessage
from logpipeline.nats.pull import Delivered
from logpipeline.nats.session import RawMessage
from logpipeline.spec import parse

SUBJECT = "logs.p0.web1"
PIPELINE = parse(
    {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": "demo"},
        "spec": {"partitions": 1},
    }
)
CREATED = "2026-11-25T00:00:00Z"


class Connection:
    """A connection that always is there, and keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def publish(self, subject: str, payload: bytes) -> None:
        """Keep the subject."""
        self.sent.append(subject)

    async def wait_connected(self) -> None:
        """Return at once."""


class Stream:
    """A stream whose messages have *times* by their sequences; its server does not answer some
    *asked_in_vain* times.
    """

    wait_after = JetStream.wait_after

    def __init__(self) -> None:
        self.connection = Connection()
        self.calls: list[str] = []
        self.times = {number: number for number in range(1, 5)}
        self.asked = 0
        self.asked_in_vain = 0

    async def stream_info(self, name: str) -> dict[str, Any]:
        """Return its state."""
        self.asked += 1
        if self.asked_in_vain:
            self.asked_in_vain -= 1
            raise NotSent("no leader")
        state = {
            "first_seq": 1,
            "last_seq": max(self.times),
            "messages": len(self.times),
            "bytes": len(self.times),
            "last_ts": "2026-11-25T00:00:01Z",
        }
        return {"created": CREATED, "state": state, "config": {}}

    async def call(self, request: str) -> dict[str, Any]:
        """Describe the consumer."""
        self.calls.append(request)
        return {
            "stream_name": "LOGS_0",
            "name": "own",
            "created": CREATED,
            "config": {},
            "delivered": {},
            "ack_floor": {},
        }

    async def message(self, name: str, sequence: int) -> StoredMessage | None:
        """Return a message."""
        time_ns = self.times.get(sequence)
        return None if time_ns is None else StoredMessage(SUBJECT, sequence, time_ns, b"", b"line")

    async def next_from_leader(
        self, name: str, sequence: int, subject: str = ">"
    ) -> StoredMessage | None:
        """Return the first message from *sequence* on."""
        there = [each for each in sorted(self.times) if each >= sequence]
        return await self.message(name, there[0]) if there else None

    def deliver(self, sequences: Iterable[int]) -> list[Delivered]:
        """Return messages as a consumer delivers them."""
        return [
            Delivered(
                RawMessage(SUBJECT.encode(), b"ack.%d" % each, b"", b"line"),
                *(each, each, self.times[each], 0, 1),
            )
            for each in sequences
        ]


async def reader_of(stream: Stream, *, batch: int) -> OrderedReader:
    options = ConsumeOptions(name="own", acks=Acks("each"), batch=batch, ephemeral=True)
    reader = OrderedReader(
        Reading(cast(JetStream, stream), PIPELINE, options, 1), 0, claim=None, file=None
    )
    reader.consumer = Consumer("LOGS_0", "own", CREATED, {"ack_policy": "none"}, 0, 0, 0, 0)
    await reader.prepare()
    return reader


async def processed(reader: OrderedReader) -> Batch:
    """Return the next batch, which is processed."""
    batch = await reader.next()
    await reader.begin(batch)
    batch.processed()
    await reader.settle(batch)
    return batch


async def test_new_messages_with_the_numbers_of_processed_ones_end_a_reader() -> None:
    """They would be skipped as if they had been processed, up to the first number behind."""
    stream = Stream()
    reader = await reader_of(stream, batch=4)
    reader.queue.extend(stream.deliver(range(1, 5)))
    assert (await processed(reader)).last == 4

    stream.times |= {number: 10 + number for number in range(3, 8)}
    stream.asked_in_vain = 1
    reader.queue.extend(stream.deliver(range(3, 8)))

    with pytest.raises(StateForeign, match="went back"):
        await reader.next()
    assert reader.sequence == 4


async def test_new_messages_with_the_numbers_of_a_batch_end_a_reader() -> None:
    """Those of the batch were not handed out yet, and the position is before both."""
    stream = Stream()
    reader = await reader_of(stream, batch=10)
    former = stream.deliver(range(1, 5))
    stream.times |= {number: 10 + number for number in range(3, 8)}
    reader.queue.extend([*former, *stream.deliver(range(3, 8))])

    with pytest.raises(StateForeign, match="went back"):
        await reader.next()
    assert reader.sequence == 0


async def test_what_is_delivered_again_is_no_reason_to_ask_the_server() -> None:
    """As it is in thousands, after a reader died."""
    stream = Stream()
    reader = await reader_of(stream, batch=4)
    reader.queue.extend(stream.deliver(range(1, 5)))
    await processed(reader)
    asked = stream.asked

    stream.times[5] = 5
    reader.queue.extend(stream.deliver(range(1, 6)))

    assert (await processed(reader)).first == 5
    assert (stream.asked, reader.reading.counts.redelivered) == (asked, 4)


async def test_what_is_delivered_again_is_acknowledged_by_one_question() -> None:
    """To ask the server for each of thousands would take as long as to process them."""
    stream = Stream()
    reader = await reader_of(stream, batch=4)
    reader.queue.extend(stream.deliver(range(1, 5)))
    await processed(reader)
    reader.book.policy = "explicit"

    stream.times[5] = 5
    reader.queue.extend(stream.deliver(range(1, 6)))
    await reader.next()

    assert len(stream.calls) == 1
    assert stream.connection.sent == ["ack.1", "ack.2", "ack.3", "ack.4"]
