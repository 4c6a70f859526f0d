"""A reader whose consumer, stream or rivals are not as they should be says so; nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from components.consuming import GENERATION, HOSTS, PARTITIONS, Streams, streams_on
from logpipeline import consume
from logpipeline.consuming.membership import ALONE, Members
from logpipeline.consuming.options import Stopped
from logpipeline.embedded import EmbeddedServer
from logpipeline.group.membership import HEARTBEATS_PER_TAKEOVER
from logpipeline.nats.bucket import Bucket
from logpipeline.wire import Batch, encode_headers, message_id, source_key
from waiting import eventually

LISTED: list[dict[str, Any]] = [
    {"name": "listed"},
    {"name": "quiet", "ackPolicy": "none"},
    {"name": "whole", "ackPolicy": "all"},
]
# Readers that end, each at another moment around its first heartbeat.
ENDS = 400
BEAT_S = 0.005
# Far more than reading a few messages takes.
ALL_READ_S = 5.0


@pytest.fixture
async def streams(nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Streams]:
    """Three streams with lines, and consumers that the resource lists."""
    async with streams_on(nats_server, tmp_path / "pipeline", consumers=LISTED) as made:
        await made.write(2)
        yield made


async def delete(streams: Streams, name: str) -> None:
    for number in range(PARTITIONS):
        await streams.js.consumer_delete(f"LOGS_{number}", name)


async def test_a_listed_consumer_that_is_deleted_ends_its_reader(streams: Streams) -> None:
    """It is the resource's to make; made again, it goes on, and nothing is left out."""
    first = streams.read("listed")
    await first.until(2 * PARTITIONS)
    await delete(streams, "listed")
    assert "was deleted while it was read" in await first.ends(1)
    assert "is not there; the resource names it" in await streams.read("listed").ends(1)
    streams.run("apply")
    await streams.write(1)
    second = streams.read("listed", "--until-caught-up")
    await second.ends(0)
    assert set(second.lines) == set(streams.written)


async def test_a_readers_own_consumer_is_made_again_behind_its_position(streams: Streams) -> None:
    """Also with lines that came while there was none."""
    reading = streams.read("own")
    await reading.until(2 * PARTITIONS)
    await delete(streams, "own")
    await streams.write(2)
    await reading.until(4 * PARTITIONS)
    await reading.stop()
    assert sorted(reading.lines) == sorted(streams.written)
    assert "a new one goes on behind 2" in reading.log


async def test_a_shared_consumer_that_is_deleted_ends_its_readers(streams: Streams) -> None:
    """Nobody but the server knew what was acknowledged."""
    reading = streams.read("own", "--group")
    await reading.until(2 * PARTITIONS)
    await delete(streams, "own")
    assert "and with it what was acknowledged" in await reading.ends(1)


async def test_a_consumer_that_somebody_changes_is_followed(streams: Streams) -> None:
    """The reader says what was changed, and goes on."""
    reading = streams.read("own", "--partitions", "0")
    await reading.until(2)
    config = (await streams.consumer("own"))["config"]
    config["max_ack_pending"] = 7
    await streams.js.consumer_create("LOGS_0", config, action="update")
    await eventually(lambda: "was changed while it is read: max_ack_pending" in reading.log)
    await streams.send(HOSTS[0])
    await reading.until(3)
    await reading.stop()


async def test_members_that_read_in_different_ways_do_not_meet(streams: Streams) -> None:
    """One that keeps the order would miss what one that does not takes away."""
    first = streams.read("own", "--group", "--state", "kv")
    await first.until(2 * PARTITIONS)
    log = await streams.read("own", "--group").ends(1)
    assert "one member keeps the order and the other does not" in log
    log = await streams.read("own").ends(1)
    assert "start all of them with --group" in log
    await streams.write(1)
    await first.until(3 * PARTITIONS)
    await first.stop()


async def test_two_members_of_one_name_do_not_meet(streams: Streams) -> None:
    """The second one is told."""
    words = ("--group", "--state", "kv", "--member", "one")
    first = streams.read("own", *words)
    await first.until(2 * PARTITIONS)
    log = await streams.read("own", *words).ends(1)
    assert "give each member a name of its own" in log
    await first.stop()


async def test_nothing_is_forgotten_while_somebody_reads(streams: Streams) -> None:
    """A reset waits for nobody, and takes nothing from anybody."""
    first = streams.read("own", "--state", "kv")
    await first.until(2 * PARTITIONS)
    log = await streams.read("own", "--state", "kv", "--reset", "--yes").ends(1)
    assert "consumer own is being read by" in log
    await first.stop()
    again = streams.read("own", "--state", "kv", "--until-caught-up")
    await again.ends(0)
    assert again.lines == []


async def test_a_stream_that_is_not_there_is_named(streams: Streams) -> None:
    """And what to do."""
    await streams.js.call("STREAM.DELETE.LOGS_1")
    log = await streams.read("own").ends(1)
    assert "there is no stream LOGS_1; make it with `logpipeline apply`" in log


async def test_a_state_makes_up_for_a_consumer_that_wants_no_acknowledgements(
    streams: Streams, tmp_path: Path
) -> None:
    """What its server forgot at the delivery, the reader still knows."""
    state = ("--state", str(tmp_path / "state"), "--batch", "2", "--partitions", "0")
    await streams.write(4)
    await streams.read("quiet", *state, point="consume.begun:2").ends(-9)
    again = streams.read("quiet", *state, "--until-caught-up")
    await again.ends(0)
    assert again.lines == [f"{HOSTS[0]} {number}" for number in range(2, 6)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("quiet",), "has ackPolicy none: what its reader has in hand"),
        (("quiet", "--group"), "has ackPolicy none: what its reader has in hand"),
        (("quiet", "--group", "--in-order"), "has ackPolicy none: what its reader has in hand"),
        (("whole", "--group"), "has ackPolicy all: one member would acknowledge"),
    ],
)
async def test_a_consumer_whose_acknowledgements_lose_messages_is_refused(
    streams: Streams, words: tuple[str, ...], said: str
) -> None:
    """Before anything is read: a reader that ended would have lost what it had in hand."""
    assert said in await streams.read(*words, "--until-caught-up").ends(1)
    assert (await streams.consumer(words[0]))["delivered"]["stream_seq"] == 0


@pytest.mark.parametrize(
    "words",
    [("quiet", "--ack", "none"), ("quiet", "--ack", "none", "--group"), ("whole",)],
)
async def test_a_consumer_whose_acknowledgements_are_enough_is_read(
    streams: Streams, words: tuple[str, ...]
) -> None:
    """Handed out is done where that was said, and one reader may acknowledge all before."""
    reading = streams.read(*words, "--until-caught-up")
    await reading.ends(0)
    assert sorted(reading.lines) == sorted(streams.written)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--ack", "sometimes"), "is not an acknowledgement mode"),
        (("--ack", "every=0"), "is not an acknowledgement mode"),
        (("--ack", "interval=0s"), "interval must be longer than 0"),
        (("--group", "--state", "file"), "a state file is for one reader"),
        (("--in-order", "--batch", "5"), "in order means one message at a time"),
        (("--ephemeral", "--group"), "an ephemeral consumer goes with its reader"),
        (("--retry-on", "many"), "give exit codes such as 75"),
        (("--timeout", "soon"), "--timeout:"),
        (("--max-age", "-1s"), "--max-age"),
        (("--since", "yesterday"), "give a span such as 10m or 2h, or a time such as"),
        (("--partitions", "7"), "there is no partition 7"),
        (("--partitions", "a"), "is not a list of partitions"),
    ],
)
async def test_words_that_mean_nothing_are_refused(
    streams: Streams, words: tuple[str, ...], said: str
) -> None:
    """In one sentence that says what to give."""
    reading = streams.read("own", *words)
    await eventually(lambda: reading.process.poll() is not None)
    assert reading.process.returncode in (1, 64)
    assert said in reading.log
    assert reading.log.count("\n") <= 3


async def test_readers_that_left_leave_nothing_behind(streams: Streams) -> None:
    """A bucket does not fill up with those who were there, well ended or killed."""
    for _ in range(2):
        await streams.read("own", "--until-caught-up").ends(0)
    killed = streams.read("own")
    await eventually(lambda: members(streams, 1))
    killed.kill()
    assert await members(streams, 1)
    await streams.read("own", "--until-caught-up").ends(0)
    assert await members(streams, 0)


async def test_a_heartbeat_under_way_does_not_outlive_its_reader(streams: Streams) -> None:
    """The server may write it behind the removal that was asked for later."""
    bucket = Bucket(streams.js, streams.pipeline.names.state_bucket)
    for number in range(ENDS):
        leaving = Members(
            streams.js,
            bucket,
            consumer="own",
            member=f"member-{number}",
            incarnation="test",
            kind=ALONE,
            takeover_after_s=BEAT_S * HEARTBEATS_PER_TAKEOVER,
        )
        await leaving.enter()
        # From before the first heartbeat is due to behind it.
        await asyncio.sleep(2 * BEAT_S * number / ENDS)
        await leaving.leave()
        assert await members(streams, 0), f"member-{number} is still there"


async def members(streams: Streams, count: int) -> bool:
    """Whether so many members of the consumer stand in the bucket."""
    bucket = streams.pipeline.names.state_bucket
    below = f"$KV.{bucket}.consume.own.member.>"
    info = await streams.js.call(f"STREAM.INFO.KV_{bucket}", {"subjects_filter": below})
    return len(info["state"].get("subjects") or {}) == count


async def test_a_message_that_cannot_be_decoded_stops_a_python_reader(streams: Streams) -> None:
    """By the same error as the command, at the message, and not out of the user's own loop."""
    await _store_damaged(streams)
    seen: list[bytes] = []
    with pytest.raises(Stopped, match="cannot be decoded"):
        await _read_all(streams, seen, partitions="0")
    assert len(seen) == 2


@pytest.mark.parametrize("words", [{}, {"group": True}, {"ack": "every=10"}, {"state": "kv"}])
async def test_a_message_that_cannot_be_decoded_becomes_a_dead_letter_in_python(
    streams: Streams, words: dict[str, Any]
) -> None:
    """The lines before and behind it are handed out, also of the same batch."""
    await _store_damaged(streams)
    await streams.write(1)
    seen: list[bytes] = []
    with pytest.raises(TimeoutError):
        await _read_all(streams, seen, on_error="dead-letter", **words)
    assert sorted(line.decode() for line in seen) == sorted(streams.written)
    assert "unreadable" in streams.run("dlq", "ls")


async def _store_damaged(streams: Streams, number: int = 0, data: bytes = b"short\n") -> None:
    """Store a message in partition 0 whose payload is shorter than its headers say."""
    start, end = number * 5000, (number + 1) * 5000
    batch = Batch(
        source="/var/log/bad.log", generation=GENERATION, start=start, end=end, lines=1,
        format="plain",
    )  # fmt: skip
    name = message_id(source_key("test", HOSTS[0], batch.source), batch)
    await streams.js.publish(streams.subject(HOSTS[0]), data, encode_headers(batch, name))


async def test_a_reader_leaves_room_for_the_letters_of_others(streams: Streams) -> None:
    """It takes half of what is free, and ends as where the stream is full. What the server says of
    other consumers' messages is still stored, and a host's letter.
    """
    most, size = 70_000, 1000
    info = await streams.js.stream_info("LOGS_dead")
    assert info is not None
    await streams.js.call("STREAM.UPDATE.LOGS_dead", {**info["config"], "max_bytes": most})
    for number in range(100):
        await _store_damaged(streams, number, b"x" * size)
    words = ("--partitions", "0", "--on-error", "dead-letter")

    kept = []
    for name in ("first", "second", "second"):
        log = await streams.read(name, *words).ends(1)
        assert "has no room left" in log
        info = await streams.js.stream_info("LOGS_dead")
        assert info is not None
        kept.append(info["state"]["bytes"])

    assert most / 3 < kept[0] < most / 2
    assert kept[0] < kept[1] < kept[2] < most * 7 / 8


async def _read_all(streams: Streams, seen: list[bytes], **options: Any) -> None:
    """Read into *seen* until all that was written has come, and then for a moment longer."""
    async with asyncio.timeout(None) as ending:
        url = streams.server.url
        loop = asyncio.get_running_loop()
        ending.reschedule(loop.time() + ALL_READ_S)
        async for read in consume("python", pipeline=streams.file, nats=url, **options):
            seen += [line.text for line in read.lines]
