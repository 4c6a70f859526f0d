"""JetStream over raw JSON: what is stored, refused, swapped, and read in order."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator

import pytest

from components import pulls
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.bucket import Bucket, Conflict, bucket_stream_config
from logpipeline.nats.connection import Connection, NatsOptions, NotSent
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.nats.pull import Delivered, PullReader, ReaderClosed
from logpipeline.subjects import key_value_subject
from waiting import WITHIN_S, eventually

STREAM = {"name": "LOGS_0", "subjects": ["logs.p0.>"], "storage": "file", "allow_direct": True}


@pytest.fixture
async def js(nats_server: EmbeddedServer) -> AsyncIterator[JetStream]:
    """JetStream with the stream LOGS_0."""
    connection = Connection(NatsOptions(servers=(nats_server.url,)))
    await connection.start(patience_s=WITHIN_S)
    js = JetStream(connection)
    await js.call("STREAM.CREATE.LOGS_0", STREAM)
    yield js
    await connection.close()


async def consumer(js: JetStream, name: str, start: int = 1) -> None:
    """Create a consumer as collectors do."""
    config = {
        "name": name,
        "ack_policy": "none",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": start,
        "mem_storage": True,
    }
    await js.consumer_create("LOGS_0", config, action="create")


async def test_the_same_id_is_stored_once(js: JetStream) -> None:
    """A repeated publish after an unknown outcome does no harm."""
    first = await js.publish("logs.p0.a", b"x", {"Nats-Msg-Id": "1"})
    second = await js.publish("logs.p0.a", b"x", {"Nats-Msg-Id": "1"})

    assert (first.sequence, first.duplicate) == (1, False)
    assert (second.sequence, second.duplicate) == (1, True)


async def test_a_message_is_read_with_the_servers_time(js: JetStream) -> None:
    """It is what a position is verified with; the two ways to ask agree."""
    ack = await js.publish("logs.p0.a", b"one", {"Log-Source": "/x"})
    message = await js.message("LOGS_0", ack.sequence)

    assert message is not None
    assert (message.data, message.subject) == (b"one", "logs.p0.a")
    assert message.time_ns > 1_700_000_000_000_000_000
    assert await js.last_message("LOGS_0", "logs.p0.a") == message
    assert await js.message("LOGS_0", 99) is None


async def test_a_stored_header_cannot_pretend_to_be_the_servers(js: JetStream) -> None:
    """A stranger stores fields with the names of the server's own."""
    await js.publish("logs.p0.a", b"x", {"Nats-Sequence": "77", "Nats-Time-Stamp": "never"})
    message = await js.message("LOGS_0", 1)

    assert message is not None
    assert message.sequence == 1


async def test_what_is_refused_carries_the_servers_code(js: JetStream) -> None:
    """A stream that overlaps another one."""
    with pytest.raises(ApiError) as caught:
        await js.call("STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": ["logs.p0.x"]})
    assert caught.value.err_code == 10065


@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_a_message_that_is_gone_is_deleted(js: JetStream, storage: str) -> None:
    """A second deletion, as after a lost answer, is no error: of a message in the middle, of the
    first one, and of one that never was. A server answers these in different ways.
    """
    await js.call(
        "STREAM.CREATE.GONE",
        {"name": "GONE", "subjects": ["gone.>"], "storage": storage, "allow_direct": True},
    )
    for _ in range(4):
        await js.publish("gone.a", b"a line")

    assert [await js.message_delete("GONE", sequence) for sequence in (2, 2, 1, 1, 9)] == [
        *(True, False),
        *(True, False),
        False,
    ]


async def make_bucket(js: JetStream) -> Bucket:
    """Return a new bucket."""
    config = bucket_stream_config("state", replicas=1, storage="file", max_bytes=1 << 20)
    await js.call("STREAM.CREATE.KV_state", config)
    return Bucket(js, "state")


@pytest.mark.parametrize("operation", ["DEL", "PURGE"])
async def test_a_key_that_another_program_deleted_can_be_written_again(
    js: JetStream, operation: str
) -> None:
    """`nats kv del` and `nats kv purge` leave a marker in its place."""
    bucket = await make_bucket(js)
    await bucket.put("epoch.main.0", b"before")
    subject = key_value_subject(bucket.name, "epoch.main.0")
    marker = {"KV-Operation": operation} | ({"Nats-Rollup": "sub"} if operation == "PURGE" else {})
    await js.publish(subject, b"", marker)
    assert await bucket.get("epoch.main.0") is None

    revision = await bucket.swap("epoch.main.0", b"again", revision=0)

    entry = await bucket.get("epoch.main.0")
    assert entry is not None
    assert (entry.value, entry.revision) == (b"again", revision)
    with pytest.raises(Conflict):
        await bucket.swap("epoch.main.0", b"twice", revision=0)


async def test_a_key_is_swapped_only_at_the_expected_revision(js: JetStream) -> None:
    """Of two owners one loses."""
    bucket = await make_bucket(js)
    first = await bucket.swap("epoch.main.0", b"1", revision=0)
    second = await bucket.swap("epoch.main.0", b"2", revision=first)
    with pytest.raises(Conflict):
        await bucket.swap("epoch.main.0", b"3", revision=first)
    with pytest.raises(Conflict):
        await bucket.swap("epoch.main.0", b"3", revision=0)
    entry = await bucket.get("epoch.main.0")

    assert entry is not None
    assert (entry.value, entry.revision) == (b"2", second)
    assert await bucket.get("epoch.main.1") is None


async def read_all(reader: PullReader, count: int) -> list[Delivered]:
    """Take until *count* messages came; the end of a pull brings none, and more come after it."""
    taken: list[Delivered] = []
    async with asyncio.timeout(20):
        while len(taken) < count:
            taken += await reader.take(timeout_s=5)
    return taken


async def test_every_message_is_delivered_once_and_in_order(js: JetStream) -> None:
    """Over many pulls: the pulls are far smaller than the stream."""
    payload = bytes(100_000)
    for _ in range(60):
        await js.publish("logs.p0.a", payload)
    await consumer(js, "e1")
    reader = PullReader(js, "LOGS_0", "e1", pull_bytes=1)
    await reader.open()
    taken = await read_all(reader, 60)
    await reader.close()

    assert [m.sequence for m in taken] == list(range(1, 61))
    assert [m.delivery for m in taken] == list(range(1, 61))
    assert taken[-1].pending == 0
    assert taken[0].message.data == payload


async def test_a_take_that_is_cancelled_leaves_all_where_it_was(
    js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits while it asks for more; what came is still to be taken, or to be given back."""
    await js.publish("logs.p0.a", b"one")
    await consumer(js, "e1")
    reader = PullReader(js, "LOGS_0", "e1", pull_bytes=1, pull_messages=1, pulls=1)
    await reader.open()
    await eventually(lambda: reader.held)
    asks = asyncio.Event()

    async def never(*_: object, **__: object) -> None:
        asks.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(js.connection, "publish", never)
        taking = asyncio.create_task(reader.take(timeout_s=5))
        await asks.wait()
        taking.cancel()
        await asyncio.wait([taking])

    assert [each.message.data for each in await reader.drain()] == [b"one"]


async def test_a_reader_that_is_drained_has_all_that_was_delivered(
    js: JetStream, nats_server: EmbeddedServer
) -> None:
    """Also what is under way: the server counts it as delivered."""
    await consumer(js, "e1")
    reader = PullReader(js, "LOGS_0", "e1", pull_bytes=1)
    await reader.open()
    await js.publish("logs.p0.a", b"one")
    # Our loop stands still meanwhile, so nothing that the server sends arrives.
    while delivered_of(nats_server) < 1:
        pass

    assert [each.message.data for each in await reader.drain()] == [b"one"]


def delivered_of(server: EmbeddedServer) -> int:
    """How many messages the only consumer of the only stream has delivered."""
    url = f"{server.monitor_url}/jsz?streams=true&consumers=true"
    with urllib.request.urlopen(url) as answer:
        (account,) = json.load(answer)["account_details"]
    (stream,) = account["stream_detail"]
    return int(stream["consumer_detail"][0]["delivered"]["consumer_seq"])


async def test_more_messages_than_a_pull_may_bring_all_come(
    js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server says nothing when a pull's number of messages is used up."""
    monkeypatch.setattr("logpipeline.nats.pull.PULL_MESSAGES_MAX", 7)
    await consumer(js, "e1")
    reader = PullReader(js, "LOGS_0", "e1", pull_bytes=1)
    await reader.open()
    for number in range(100):
        await js.publish("logs.p0.a", b"%d" % number)
    taken = await read_all(reader, 100)
    await reader.close()

    assert [m.message.data for m in taken] == [b"%d" % number for number in range(100)]


async def test_a_consumer_that_was_made_anew_ends_its_reader(
    js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server did not announce the deletion, since no pull waited."""
    pulls.end_soon(monkeypatch)
    await consumer(js, "e1")
    reader = PullReader(js, "LOGS_0", "e1", pull_bytes=1)
    await reader.open()
    await js.publish("logs.p0.a", b"one")
    await read_all(reader, 1)
    await pulls.ended(js, "LOGS_0", "e1")
    await js.consumer_delete("LOGS_0", "e1")
    await consumer(js, "e1")

    with pytest.raises(ReaderClosed, match="went back"):
        await read_all(reader, 2)


async def test_a_deleted_consumer_ends_its_reader_at_once(js: JetStream) -> None:
    """This is how a successor fences its predecessor."""
    await consumer(js, "e1")
    reader = PullReader(js, "LOGS_0", "e1", pull_bytes=1)
    await reader.open()
    await js.publish("logs.p0.a", b"the pulls stand")
    assert len(await read_all(reader, 1)) == 1
    await js.consumer_delete("LOGS_0", "e1")

    with pytest.raises(ReaderClosed, match="Deleted"):
        await reader.take(timeout_s=10)


async def test_a_reader_does_not_outlive_its_connection(
    js: JetStream, nats_server: EmbeddedServer
) -> None:
    """After a reconnect the position has to be verified before anything else is read."""
    await consumer(js, "e1")
    reader = PullReader(js, "LOGS_0", "e1", pull_bytes=1)
    await reader.open()
    await nats_server.stop()
    await nats_server.start()
    await js.connection.wait_connected()

    with pytest.raises((NotSent, ReaderClosed)):
        await reader.take(timeout_s=5)
