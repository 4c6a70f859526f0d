"""What cannot be collected is kept aside with its reason, and stops nothing behind it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from components.collecting import (
    HOSTS,
    PARTITIONS,
    Pipeline,
    Source,
    collecting,
    config_for,
    pipeline,
)
from logpipeline.dead_letters import DEADLINE_S, Letter, keep
from logpipeline.embedded import EmbeddedServer
from logpipeline.subjects import Subjects
from logpipeline.wire import encode_headers
from waiting import eventually

HOST = HOSTS[0]
SUBJECT = Subjects("logs", PARTITIONS).of_host(HOST)


async def test_garbage_is_kept_aside_and_the_pipeline_moves_on(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Each bad message becomes one dead letter that names reason and position."""
    source = Source(HOST)
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        async with collecting(config_for(nats_server, tmp_path / "c")):
            await source.send(made.js, "before")
            reasons = await publish_garbage(made, source)
            last = await source.send(made.js, "after")
            await made.until_committed(last.sequence)
        letters = await made.dead_letters()

    assert source.collected(tmp_path / "c") == source.sent
    assert [letter["Dead-Reason"] for letter in letters] == reasons
    assert [int(letter["Dead-Sequence"]) for letter in letters] == [*range(2, last.sequence)]
    assert all(letter["Dead-Stream"] == "LOGS_0" for letter in letters)


async def test_a_bad_message_that_is_read_twice_makes_one_letter(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """A restart before the commit reads it again; the server knows the letter's id."""
    async with pipeline(nats_server) as made:
        await made.assign("collector-0")
        slow = config_for(nats_server, tmp_path / "a", commit_interval_s=3600.0)
        async with collecting(slow) as first:
            await made.js.publish(SUBJECT, b"x", {"Log-Version": "9", "Log-Source": "x"})
            await until_letters(made, 1)
            first.cancel()
        async with collecting(config_for(nats_server, tmp_path / "a")):
            await made.until_committed(1)

        assert len(await made.dead_letters()) == 1


BAD = {"Log-Version": "9", "Log-Source": "x"}


async def test_a_flood_of_one_host_gets_half_of_the_room_and_the_rest_is_named(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The position moves on all the same; nothing goes in silence, and another host finds room."""
    count, other = 100, Subjects("logs", PARTITIONS).of_host(HOSTS[1])
    async with pipeline(nats_server) as made:
        await made.js.call("STREAM.UPDATE.DEAD", BOUNDED)
        await made.assign("collector-0")
        for _ in range(count):
            await made.js.publish(SUBJECT, b"x" * 1000, BAD)
        async with collecting(config_for(nats_server, tmp_path / "c")):
            await made.until_committed(count)
            flood = len(await made.dead_letters())
            await made.js.publish(other, b"x" * 1000, BAD)
            await made.until_committed(1, partition=1)
            rows = await not_kept(made)
            kept = len(await made.dead_letters())

    # A letter of 1,000 bytes takes some 1,500; of 70,000 bytes letters get 7/8, one host half.
    assert 15 <= flood <= 21
    assert kept == flood + 1
    gone = count - flood
    assert rows == [{"host": HOST, "messages": gone, "bytes": 1000 * gone}]


@pytest.mark.parametrize("padding", [0, 20_000])
async def test_a_restart_gives_a_flood_no_further_room(
    nats_server: EmbeddedServer, tmp_path: Path, padding: int
) -> None:
    """What counts is what stands in the stream, also where it is headers."""
    count, bad = 100, BAD | {"Log-Pod": "x" * padding}
    async with pipeline(nats_server) as made:
        room = BOUNDED | {"max_bytes": 50 * (1500 + padding)}
        await made.js.call("STREAM.UPDATE.DEAD", room)
        await made.assign("collector-0")
        kept = []
        for number in range(1, 4):
            for _ in range(count):
                await made.js.publish(SUBJECT, b"x" * 1000, bad)
            async with collecting(config_for(nats_server, tmp_path / "c")):
                await made.until_committed(count * number)
            kept.append(len(await made.dead_letters()))

    assert kept[0] > 0
    assert kept == [kept[0]] * 3


async def test_a_full_stream_drops_no_letter_and_holds_nothing_up(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The server refuses, at once; what is refused is named."""
    source = Source(HOST)
    async with pipeline(nats_server) as made:
        await made.js.call("STREAM.UPDATE.DEAD", BOUNDED | {"max_msgs": 3})
        for number in range(3):
            await made.js.publish(f"_lp-dead.p0.old.{number}", b"old")
        await made.assign("collector-0")
        async with collecting(config_for(nats_server, tmp_path / "c")), asyncio.timeout(10):
            for _ in range(20):
                await made.js.publish(SUBJECT, b"x" * 10, BAD)
            last = await source.send(made.js, "after")
            await made.until_committed(last.sequence)
            rows = await not_kept(made)
        info = await made.js.stream_info("DEAD")

    assert info is not None
    assert (info["state"]["first_seq"], info["state"]["messages"]) == (1, 3)
    assert rows == [{"host": HOST, "messages": 20, "bytes": 200}]
    assert source.collected(tmp_path / "c") == source.sent


async def test_the_server_s_refusal_of_a_letter_is_final_where_its_stream_is_full(
    nats_server: EmbeddedServer,
) -> None:
    """It has the code of a stream without a leader, for which one waits."""
    letter = Letter(reason="r", detail="", stream="LOGS_0", created="", sequence=1, time_ns=1)
    async with pipeline(nats_server) as made:
        await made.js.call("STREAM.UPDATE.DEAD", BOUNDED | {"max_msgs": 1})
        assert await keep(made.js, "_lp-dead", 0, letter)
        async with asyncio.timeout(DEADLINE_S / 2):
            assert not await keep(made.js, "_lp-dead", 0, replace(letter, sequence=2))


async def not_kept(made: Pipeline) -> list[dict[str, object]]:
    """What the collector names as not kept."""
    answer = await made.js.connection.request("_lp.logs.status.collector", b"")
    rows = json.loads(answer.data)["dead_letters_not_kept"]
    assert isinstance(rows, list)
    return rows


async def test_without_a_place_for_dead_letters_the_pipeline_moves_on(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The stream for them is full of refusals, or gone: the message is counted, and passed."""
    source = Source(HOST)
    async with pipeline(nats_server) as made:
        await made.js.call("STREAM.UPDATE.DEAD", {**DEAD, "sealed": True})
        await made.assign("collector-0")
        async with collecting(config_for(nats_server, tmp_path / "c")):
            await made.js.publish(SUBJECT, b"x", {"Log-Version": "9", "Log-Source": "x"})
            await source.send(made.js, "after")
            await made.until_committed(2)

    assert source.collected(tmp_path / "c") == source.sent


BOUNDED = {
    "name": "DEAD",
    "subjects": ["_lp-dead.>"],
    "allow_direct": True,
    "discard": "new",
    "max_bytes": 70_000,
}
DEAD = {"name": "DEAD", "subjects": ["_lp-dead.>"], "allow_direct": True, "discard": "old"}


async def publish_garbage(made: Pipeline, source: Source) -> list[str]:
    """Publish what a stranger, or a broken shipper, might; return the reason for each."""
    good = source.batch(b"x" * 100)
    headers = encode_headers(good, "")
    del headers["Nats-Msg-Id"]
    bomb = zstandard.ZstdCompressor().compress(b"\0" * (64 * 1024 * 1024))
    packed = encode_headers(replace(good, compressed=True), "")
    del packed["Nats-Msg-Id"]
    tries: list[tuple[str, str, bytes, dict[str, str]]] = [
        ("bad-version", SUBJECT, b"x" * 100, headers | {"Log-Version": "2"}),
        ("bad-range", SUBJECT, b"x" * 100, headers | {"Log-Range": "9-3"}),
        ("bad-range", SUBJECT, b"x" * 100, headers | {"Log-Range": "0-99999999999"}),
        ("bad-length", SUBJECT, b"x" * 99, headers),
        ("bad-generation", SUBJECT, b"x" * 100, headers | {"Log-Generation": "../../etc"}),
        ("bad-format", SUBJECT, b"x" * 100, headers | {"Log-Format": "xml"}),
        ("bad-encoding", SUBJECT, b"x" * 100, headers | {"Content-Encoding": "gzip"}),
        ("bad-length", SUBJECT, bomb, packed),
        ("bad-compression", SUBJECT, b"no frame", packed),
        ("bad-host", "logs.p0.a%2Fb", b"a line", {}),
        ("headers-too-large", SUBJECT, b"x", headers | {"Log-Pod": "x" * 20_000}),
    ]
    for _, subject, payload, fields in tries:
        await made.js.publish(subject, payload, fields)
    return [reason for reason, *_ in tries]


async def until_letters(made: Pipeline, count: int) -> None:
    async def are_there() -> bool:
        return len(await made.dead_letters()) >= count

    await eventually(are_there, what=f"{count} dead letters")
