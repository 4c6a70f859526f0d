"""`logpipeline sink`: killed wherever it may be, each line is in the other system once."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from components.consuming import HOSTS, Streams, in_order
from components.sink_servers import ClickHouse, Loki, OtlpReceiver, Receiver, Search, StandIn
from ports import free_port
from waiting import eventually

# Between two of: written, said to be processed, position kept, acknowledged.
POINTS = ("sink.written", "consume.processed", "consume.saved")
ROUNDS = 6
SEED = 7


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A server that looks at `Idempotency-Key`."""
    server = Receiver()
    with server.serving():
        yield server


def arrived(receiver: Receiver) -> list[str]:
    """Return the lines that the receiver keeps."""
    return [text.decode() for text in receiver.texts()]


async def more_requests(receiver: Receiver, count: int) -> None:
    """Return once so many more have come."""
    wanted = len(receiver.requests) + count
    await eventually(lambda: len(receiver.requests) >= wanted)


async def test_lines_are_copied_in_order_and_the_next_start_goes_on(
    streams: Streams, receiver: Receiver
) -> None:
    """Each line once; what came while no sink ran is copied by the next one."""
    words = ("sink", "http", "copy", "--url", receiver.url, "--until-caught-up", "--batch", "7")
    for _ in range(2):
        await streams.write(20, lines=3)
        log = await streams.command(*words).ends(0)
        assert "60 processed" in log
    assert in_order(arrived(receiver))
    assert sorted(arrived(receiver)) == sorted(streams.written)


@pytest.mark.parametrize(
    ("kind", "server", "words"),
    [
        ("loki", Loki(), ("--label", "job=shop")),
        ("otlp", OtlpReceiver(), ()),
        ("opensearch", Search(), ("--index", "logs")),
        ("clickhouse", ClickHouse(), ("--table", "shop.logs")),
    ],
    ids=["loki", "otlp", "opensearch", "clickhouse"],
)
async def test_the_command_knows_each_kind(
    streams: Streams, kind: str, server: StandIn, words: tuple[str, ...]
) -> None:
    """Each host's lines arrive once, in their order; also after a kill, where that is promised."""
    await streams.write(10, lines=2)
    with server.serving():
        command = ("sink", kind, "copy", "--url", server.url, "--batch", "3", *words)
        if kind != "otlp":
            await streams.command(*command, point="sink.written:3").ends(-9)
        await streams.command(*command, "--until-caught-up").ends(0)
    found = [text.decode() for text in server.texts()]
    assert in_order(found)
    assert sorted(found) == sorted(streams.written)


async def test_a_system_that_is_away_at_the_start_is_waited_for(streams: Streams) -> None:
    """Its table is looked at before the first line is read; a signal ends the wait."""
    await streams.write(10, lines=2)
    port, server = free_port(), ClickHouse()
    where = ("--url", f"http://127.0.0.1:{port}", "--table", "shop.logs")
    command = ("sink", "clickhouse", "copy", *where, "--until-caught-up")
    stopped = streams.command(*command)
    await eventually(lambda: "nothing is written yet" in stopped.log)
    await stopped.stop()
    sink = streams.command(*command)
    await eventually(lambda: "nothing is written yet" in sink.log)
    with server.serving(port=port):
        await sink.ends(0)
    assert sorted(text.decode() for text in server.texts()) == sorted(streams.written)


@pytest.mark.long
async def test_a_sink_that_is_killed_after_a_write_copies_each_line_once(
    streams: Streams, receiver: Receiver
) -> None:
    """At each place between the write and the acknowledgement, and at any other moment."""
    dice = random.Random(SEED)
    words = ("sink", "http", "copy", "--url", receiver.url, "--batch", "5")
    for number in range(ROUNDS):
        await streams.write(10, lines=2)
        point = f"{POINTS[number % len(POINTS)]}:{dice.randrange(1, 5)}"
        sink = streams.command(*words, point=point)
        await sink.ends(-9)
    for _ in range(ROUNDS):
        await streams.write(10, lines=2)
        sink = streams.command(*words)
        await more_requests(receiver, dice.randrange(1, 4))
        sink.kill()
    await streams.command(*words, "--until-caught-up").ends(0)
    keys = [request.headers["idempotency-key"] for request in receiver.requests]
    assert len(keys) > len(set(keys)), "no batch was sent twice: the test shows nothing"
    assert in_order(arrived(receiver))
    assert sorted(arrived(receiver)) == sorted(streams.written)


async def test_a_group_loses_a_member_and_copies_each_line_once(
    streams: Streams, receiver: Receiver
) -> None:
    """Others write its batch again, under its name."""
    words = ("sink", "http", "copy", "--url", receiver.url, "--group", "--batch", "5")
    await streams.write(20)
    dying = streams.command(*words, point="sink.written:2")
    await eventually(lambda: len(receiver.requests) > 0)
    others = [streams.command(*words), streams.command(*words)]
    await eventually(lambda: dying.has_ended, what=dying.log)
    await eventually(lambda: len(arrived(receiver)) == len(streams.written), within_s=60)
    await streams.caught_up("copy")
    for other in others:
        await other.stop()
    assert sorted(arrived(receiver)) == sorted(streams.written)


async def test_a_server_that_is_busy_is_waited_for_and_named(
    streams: Streams, receiver: Receiver
) -> None:
    """The log says why; the lines arrive, in order."""
    receiver.faults.extend(["cut", "taken-and-cut", "cut"])
    await streams.write(3)
    words = ("sink", "http", "copy", "--url", receiver.url, "--until-caught-up")
    log = await streams.command(*words).ends(0)
    assert f"not written yet: {receiver.url} did not answer" in log
    assert sorted(arrived(receiver)) == sorted(streams.written)


async def test_a_wrong_login_ends_it_and_blames_no_message(
    streams: Streams, receiver: Receiver
) -> None:
    """Also where refused messages become dead letters: none does."""
    receiver.faults.extend(["login"])
    await streams.write(3)
    words = ("sink", "http", "copy", "--url", receiver.url, "--on-error", "dead-letter")
    log = await streams.command(*words).ends(1)
    assert "answered 401" in log
    assert "dead letters" not in log
    await streams.command(*words, "--until-caught-up").ends(0)
    assert sorted(arrived(receiver)) == sorted(streams.written)


async def test_what_is_refused_stops_it_or_becomes_a_dead_letter(
    streams: Streams, receiver: Receiver
) -> None:
    """As --on-error says; of a batch only the message that is refused by itself."""
    for _ in range(5):
        await streams.send(HOSTS[0])
    # How many of them come in one batch is for the network to say.
    receiver.refused = f"{HOSTS[0]} 1".encode()
    words = ("sink", "http", "copy", "--url", receiver.url, "--partitions", "0")
    log = await streams.command(*words, "--until-caught-up").ends(1)
    assert re.search(r"messages? [\d to]+ of stream LOGS_0 could not be processed", log)
    assert "answered 400" in log
    log = await streams.command(*words, "--until-caught-up", "--on-error", "dead-letter").ends(0)
    assert "1 dead letters" in log
    assert arrived(receiver) == [text for text in streams.written if not text.endswith(" 1")]
