"""A scan gives what a stream holds, each message once and in order, to an end that is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from logpipeline.embedded import EmbeddedServer
from logpipeline.nats import scan
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.nats.scan import Range, Scan, StreamChanged
from waiting import WITHIN_S

COUNT = 30


@pytest.fixture
async def js(nats_server: EmbeddedServer) -> AsyncIterator[JetStream]:
    """A connection to a server with a stream of messages of two subjects."""
    connection = Connection(NatsOptions(servers=(nats_server.url,)))
    await connection.start(patience_s=WITHIN_S)
    js = JetStream(connection)
    await make(js)
    yield js
    await connection.close()


async def make(js: JetStream) -> None:
    """Make the stream, and fill it."""
    await js.call("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_direct": True})
    for number in range(COUNT):
        await js.publish(f"s.{number % 2}", b"x" * 100)


async def sequences(reading: Scan) -> list[int]:
    """What *reading* gives."""
    async with aclosing(reading.batches()) as batches:
        return [delivered.sequence async for batch in batches for delivered in batch]


@pytest.mark.parametrize(
    ("wanted", "subject", "expected"),
    [
        (Range(last=COUNT), None, [*range(1, COUNT + 1)]),
        (Range(first=5, last=8), None, [5, 6, 7, 8]),
        (Range(last=COUNT), "s.1", [*range(2, COUNT + 1, 2)]),
        (Range(last=9), "s.1", [2, 4, 6, 8]),
        (Range(last=COUNT), "s.none", []),
        (Range(last=0), None, []),
        (Range(since_ns=1 << 62, last=COUNT), None, []),
    ],
)
async def test_a_scan_ends_where_it_was_told(
    js: JetStream, wanted: Range, subject: str | None, expected: list[int]
) -> None:
    """Also where nothing, or nothing more, of its subject is there."""
    assert await sequences(Scan(js, "S", wanted, subject=subject)) == expected
    info = await js.stream_info("S")
    assert info is not None
    assert info["state"]["consumer_count"] == 0


async def test_a_scan_goes_on_behind_the_last_message_after_the_server_was_killed(
    js: JetStream, nats_server: EmbeddedServer
) -> None:
    """Nothing comes twice, nothing is left out."""
    seen: list[int] = []
    async with aclosing(Scan(js, "S", Range()).batches()) as batches:
        async for batch in batches:
            seen += [delivered.sequence for delivered in batch]
            if seen and seen[-1] == COUNT and batch:
                nats_server.kill()
                await nats_server.start()
                await js.connection.wait_connected()
                await js.publish("s.0", b"later")
            if seen and seen[-1] == COUNT + 1:
                break

    assert seen == [*range(1, COUNT + 2)]


async def test_messages_that_are_deleted_meanwhile_are_not_waited_for(js: JetStream) -> None:
    """What was still to come when the scan began may go before it does."""
    for _ in range(40):
        await js.publish("s.0", b"x" * 500_000)
    seen: list[int] = []
    async with aclosing(Scan(js, "S", Range(last=COUNT + 40)).batches()) as batches:
        async for batch in batches:
            if not seen:
                await js.call("STREAM.PURGE.S")
            seen += [delivered.sequence for delivered in batch]

    # How much of it came before is the server's pace.
    assert seen == [*range(1, len(seen) + 1)]
    assert 0 < len(seen) < COUNT + 40


async def test_what_is_on_its_way_for_long_is_waited_for(
    js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has sent all of it, and nothing has come yet: that is not the end."""
    for _ in range(10):
        await js.publish("s.0", b"x" * 900_000)
    monkeypatch.setattr(scan, "TAKE_TIMEOUT_S", 0.0)
    monkeypatch.setattr(scan, "SILENT_MAX", 1 << 30)
    wanted = Range(last=COUNT + 10)
    for _ in range(5):
        assert await sequences(Scan(js, "S", wanted)) == [*range(1, COUNT + 11)]


async def test_a_stream_that_was_made_anew_is_no_continuation(js: JetStream) -> None:
    """Its numbers are others'."""
    info = await js.stream_info("S")
    assert info is not None
    await js.call("STREAM.DELETE.S")
    await make(js)

    with pytest.raises(StreamChanged, match="made anew"):
        await sequences(Scan(js, "S", Range(last=COUNT), created=info["created"]))
    await js.call("STREAM.DELETE.S")
    with pytest.raises(StreamChanged, match="gone"):
        await sequences(Scan(js, "S", Range(last=COUNT)))


async def test_scans_of_one_name_wait_for_each_other(js: JetStream) -> None:
    """Two readers may look through one stream at once, with rights for one consumer."""
    reading = [Scan(js, "S", Range(last=COUNT), name="own-scan") for _ in range(3)]

    found = await asyncio.gather(*map(sequences, reading))

    assert found == [[*range(1, COUNT + 1)]] * 3


async def test_a_scan_does_not_wait_for_a_consumer_that_stays(js: JetStream) -> None:
    """It is another program's, which goes on to read it."""
    durable = {"name": "own-scan", "durable_name": "own-scan", "ack_policy": "explicit"}
    await js.consumer_create("S", durable)

    with pytest.raises(ApiError, match="consumer own-scan is in the way"):
        await sequences(Scan(js, "S", Range(last=COUNT), name="own-scan"))

    assert await js.call("CONSUMER.INFO.S.own-scan")
