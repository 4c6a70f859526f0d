"""Members that share the work message by message: whatever one of them does not finish, another one
gets, or it is named.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from components import pulls
from components.consuming import COMMAND_S, HOSTS, Streams, streams_on
from logpipeline import open_reader
from logpipeline.consuming.message import Batch
from logpipeline.consuming.options import Stopped
from logpipeline.consuming.reader import Reader
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.session import RawMessage
from waiting import eventually

LISTED: list[dict[str, Any]] = [
    {"name": "once", "maxDeliver": 1},
    {"name": "twice", "maxDeliver": 2},
    {"name": "listed"},
    {"name": "slow", "ackWait": "1s"},
]


@pytest.fixture
async def streams(nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Streams]:
    """Three empty streams, and consumers that the resource lists."""
    async with streams_on(nats_server, tmp_path / "pipeline", consumers=LISTED) as made:
        yield made


def sharing(streams: Streams, name: str, **options: Any) -> Any:
    """A member of a group that shares the first partition."""
    given = {"group": True, "partitions": "0", "on_error": "retry", **options}
    return open_reader(name, pipeline=streams.file, nats=streams.server.url, **given)


async def upcoming(reader: Reader) -> Batch:
    """The next batch."""
    async with asyncio.timeout(COMMAND_S):
        batch = await reader.next()
    assert batch is not None
    return batch


async def rest_of(streams: Streams, name: str, **options: Any) -> list[str]:
    """The lines that one more member gets until nothing is left."""
    lines: list[str] = []
    async with (
        asyncio.timeout(COMMAND_S),
        sharing(streams, name, until_caught_up=True, **options) as reader,
    ):
        async for batch in reader:
            lines += [line.text.decode() for line in batch.lines]
    return lines


async def deliveries(streams: Streams, name: str) -> int:
    """How many deliveries the consumer of the first partition has made."""
    return int((await streams.consumer(name))["delivered"]["consumer_seq"])


async def take_without_asking(streams: Streams, name: str, **options: Any) -> None:
    """Let a member get something, and end before it asks for it."""
    async with sharing(streams, name, **options):

        async def was_delivered() -> bool:
            return await deliveries(streams, name) > before

        before = await deliveries(streams, name) if await is_there(streams, name) else 0
        await eventually(lambda: is_there(streams, name))
        await eventually(was_delivered)


async def is_there(streams: Streams, name: str) -> bool:
    """Whether the first partition has the consumer."""
    return name in (await streams.js.call("CONSUMER.NAMES.LOGS_0"))["consumers"]


async def test_what_was_not_handed_out_was_not_tried(streams: Streams) -> None:
    """However often members end before they ask for it."""
    for _ in range(4):
        await streams.send(HOSTS[0])
    for _ in range(3):
        await take_without_asking(streams, "own", tries=3)

    assert sorted(await rest_of(streams, "own", tries=3)) == sorted(streams.written)


async def test_a_last_delivery_that_is_given_back_is_a_dead_letter(streams: Streams) -> None:
    """The server would deliver it to nobody any more; sent again, it is read."""
    for _ in range(3):
        await streams.send(HOSTS[0])
    await take_without_asking(streams, "once")
    rest = await rest_of(streams, "once")

    assert len(rest) < len(streams.written)
    assert "rejected" in streams.run("dlq", "ls")
    streams.run("dlq", "retry", "--consumer", "once")
    assert sorted(rest + await rest_of(streams, "once")) == streams.written


async def test_more_tries_than_deliveries_end_with_the_last_delivery(streams: Streams) -> None:
    """By a dead letter that says why, and not by the server's silence."""
    await streams.send(HOSTS[0])
    async with sharing(streams, "twice", tries=5) as reader:
        for _ in range(2):
            (await upcoming(reader)).reject("no such book")
        await reader.settle()

    assert "rejected" in streams.run("dlq", "ls")
    assert "no such book" in streams.run("dlq", "show", "1")


async def test_a_reader_that_stops_at_a_last_delivery_says_where_the_message_is(
    streams: Streams,
) -> None:
    """It cannot go on there: the server delivers it to nobody any more."""
    await streams.send(HOSTS[0])
    async with sharing(streams, "once", on_error="stop") as reader:
        (await upcoming(reader)).reject("no such book")
        with pytest.raises(Stopped, match="is among the dead letters"):
            await reader.settle()

    streams.run("dlq", "retry", "--consumer", "once")
    assert await rest_of(streams, "once") == streams.written


async def test_what_was_fetched_stays_with_its_member(streams: Streams) -> None:
    """The server hears that it is in progress, like what is in hand, however long that takes."""
    signs: set[int] = set()

    def note(message: RawMessage) -> None:
        if message.data == b"+WPI":
            signs.add(int(message.subject.split(b".")[5]))

    await streams.js.connection.listen("$JS.ACK.LOGS_0.slow.>", note)
    for _ in range(2):
        await streams.send(HOSTS[0])
    async with sharing(streams, "slow") as reader:
        await upcoming(reader)
        await eventually(lambda: signs == {1, 2})


async def make_anew(streams: Streams) -> None:
    """Delete the first partition's stream, and make it again, with its consumers."""
    await streams.js.call("STREAM.DELETE.LOGS_0")
    await asyncio.to_thread(streams.run, "apply")


async def go_back(streams: Streams) -> None:
    """Put the first partition's stream back to what it was when it was made."""
    server, connection = streams.server, streams.js.connection
    await server.stop()
    await eventually(lambda: not connection.is_connected)
    [now] = server.store.rglob("streams/LOGS_0")
    shutil.rmtree(now)
    shutil.copytree(streams.folder / "LOGS_0", now)
    await server.start()
    await connection.wait_connected()


@pytest.mark.parametrize("lose", [make_anew, go_back])
async def test_what_a_lost_stream_held_is_handed_out_when_it_is_sent_again(
    streams: Streams, lose: Callable[[Streams], Awaitable[None]]
) -> None:
    """What a member learned of that stream says nothing of the new one."""
    [made] = streams.server.store.rglob("streams/LOGS_0")
    shutil.copytree(made, streams.folder / "LOGS_0")
    host, lines = HOSTS[0], [b"one\n", b"two\n"]
    async with sharing(streams, "listed") as reader:
        for number, line in enumerate(lines):
            await streams.store(host, 4 * number, line)
        await streams.store(host, 0, lines[0], again=True)
        await streams.js.publish(streams.subject(host), b"in hand")
        while (await upcoming(reader)).messages[0].payload != b"in hand":
            pass
        await lose(streams)
        # Behind the numbers that the member has seen.
        for _ in range(5):
            await streams.js.publish(streams.subject(host), b"another")
        for number, line in enumerate(lines):
            await streams.store(host, 4 * number, line, again=True)

        found = [(await upcoming(reader)).messages[0].payload for _ in range(7)]

    assert sorted(found) == sorted([b"another"] * 5 + lines)


@pytest.fixture(params=["told", "not-told"])
def hears_of_deletion(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the server tells members that their stream was deleted: only those whose pull waits,
    and a pull that a batch outlasts has ended.
    """
    is_told: bool = request.param == "told"
    if not is_told:
        pulls.end_soon(monkeypatch)
    return is_told


async def lose_while_in_hand(streams: Streams, reader: Reader, is_told: bool) -> Batch:
    """Hand out a message, which has the only number of its stream, and lose that stream."""
    await streams.send(HOSTS[0])
    batch = await upcoming(reader)
    if not is_told:
        await pulls.ended(streams.js, "LOGS_0", "listed")
    await make_anew(streams)
    return batch


@asynccontextmanager
async def with_same_number(streams: Streams) -> AsyncIterator[None]:
    """Another member, that has a message of the new stream in hand."""
    await streams.send(HOSTS[0])
    async with sharing(streams, "listed", member="second") as second:
        assert (await upcoming(second)).first == 1
        yield
        assert (await streams.consumer("listed"))["num_ack_pending"] == 1


async def test_a_message_of_a_lost_stream_acknowledges_no_other(
    streams: Streams, hears_of_deletion: bool
) -> None:
    """Though another member has one with the same number in hand."""
    async with sharing(streams, "listed") as first:
        await lose_while_in_hand(streams, first, hears_of_deletion)
        async with with_same_number(streams):
            await first.settle()

        assert [line.text.decode() for line in (await upcoming(first)).lines] == streams.written[1:]


async def test_a_message_of_a_lost_stream_that_fails_is_a_dead_letter(
    streams: Streams, hears_of_deletion: bool
) -> None:
    """It is in nobody's stream any more, so it cannot come again."""
    async with sharing(streams, "listed") as first:
        batch = await lose_while_in_hand(streams, first, hears_of_deletion)
        async with with_same_number(streams):
            batch.retry("not now")
            await first.settle()

        new = await upcoming(first)
        assert [line.text.decode() for line in new.lines] == streams.written[1:]
        assert new.messages[0].delivery == 2

    streams.run("dlq", "retry", "--consumer", "listed")
    assert sorted(await rest_of(streams, "listed")) == streams.written


async def test_a_message_of_a_lost_stream_is_a_dead_letter_when_its_member_ends(
    streams: Streams, hears_of_deletion: bool
) -> None:
    """What it gives back is no other member's message."""
    async with AsyncExitStack() as opened:
        first = await opened.enter_async_context(sharing(streams, "listed"))
        await lose_while_in_hand(streams, first, hears_of_deletion)
        async with with_same_number(streams):
            await opened.aclose()

    streams.run("dlq", "retry", "--consumer", "listed")
    assert sorted(await rest_of(streams, "listed")) == streams.written


async def test_what_was_fetched_is_kept_over_a_cut(streams: Streams) -> None:
    """The server would deliver it again only when the time for its acknowledgement is over."""
    for _ in range(2):
        await streams.send(HOSTS[0])
    async with sharing(streams, "own") as reader:
        await upcoming(reader)

        async def is_fetched() -> bool:
            return await deliveries(streams, "own") == 2

        await eventually(is_fetched)
        await streams.server.stop()
        await eventually(lambda: not streams.js.connection.is_connected)
        await streams.server.start()
        await streams.js.connection.wait_connected()
        (second,) = (await upcoming(reader)).messages

    assert (second.sequence, second.delivery) == (2, 1)
