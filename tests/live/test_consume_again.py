"""What stands in a stream again, and for whom: lines that a shipper sent twice, and messages that
one consumer had given up.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import logpipeline
from components.consuming import HOSTS, PARTITIONS, Streams, in_order
from waiting import eventually

# A net for hangs, wide enough for a machine that runs other tests beside.
READ_S = 60


@pytest.fixture
async def streams(streams: Streams) -> Streams:
    """Three streams with lines."""
    await streams.write(4, lines=2)
    return streams


@pytest.mark.parametrize("words", [(), ("--group",), ("--state", "kv")])
async def test_lines_that_a_shipper_sent_again_are_handed_out_once(
    streams: Streams, words: tuple[str, ...]
) -> None:
    """A message that was there before is passed by; of one that goes on further, only the rest is
    handed out.
    """
    for host in HOSTS:
        lines = [line for line in streams.written if line.startswith(f"{host} ")]
        first = "".join(f"{line}\n" for line in lines[:4]).encode()
        await streams.store(host, 0, first, again=True)
        more = [f"{host} {number}" for number in (8, 9)]
        longer = "".join(f"{line}\n" for line in (*lines[6:], *more)).encode()
        start = len("".join(f"{line}\n" for line in lines[:6]))
        await streams.store(host, start, longer, again=True)
        streams.written += more
    reading = streams.read("reader", *words, "--until-caught-up")
    log = await reading.ends(0)
    assert sorted(reading.lines) == sorted(streams.written)
    assert f"{PARTITIONS} sent again" in log


@pytest.mark.parametrize("batch", [1, 3, 100])
async def test_all_that_is_skipped_is_acknowledged(streams: Streams, batch: int) -> None:
    """Runs of it before, between and behind what is handed out; none is delivered once more."""
    for start in range(3):
        for host in HOSTS:
            lines = [f"{line}\n" for line in streams.written if line.startswith(f"{host} ")]
            for end in range(start + 1, start + 6):
                data = "".join(lines[start:end]).encode()
                await streams.store(host, len("".join(lines[:start])), data, again=True)
        if start < 2:
            await streams.write(1)
    options: Any = {"pipeline": streams.file, "nats": streams.server.url, "batch": batch}
    found: list[str] = []
    async with (
        asyncio.timeout(READ_S),
        logpipeline.open_reader("reader", **options) as reader,
    ):
        while len(found) < len(streams.written):
            found += [line.text.decode() for line in (await anext(reader)).lines]
        await reader.settle()
        await eventually(lambda: streams.is_caught_up("reader"), within_s=READ_S)
        counts = reader.counts

    assert in_order(found)
    assert sorted(found) == sorted(streams.written)
    assert (counts.sent_again, counts.redelivered) == (15 * PARTITIONS, 0)


@pytest.mark.parametrize(
    "words",
    [
        ("--group", "--ack", "each", "--on-error", "retry"),
        ("--state", "kv", "--on-error", "dead-letter", "--tries", "1"),
    ],
    ids=["shared", "in-order"],
)
async def test_what_was_sent_again_is_handed_out_again_where_it_failed(
    streams: Streams, words: tuple[str, ...]
) -> None:
    """A restarted shipper marks all that was under way. Such a message that comes a second time is
    not what its stream held before.
    """
    await streams.read("reader", "--until-caught-up", "--group", "--ack", "each").ends(0)
    for host in HOSTS:
        start = len("".join(f"{line}\n" for line in streams.written if line.startswith(f"{host} ")))
        for number in (8, 9):
            line = f"{host} {number}\n"
            await streams.store(host, start, line.encode(), again=True)
            start += len(line)
    wanted = [f"{host} {number}" for host in HOSTS for number in (8, 9)]
    # Each partition's first batch fails, once.
    once = streams.folder / "failed"
    fails = f'mkdir -p {once}; mkdir "{once}/$1" && exit 1'
    script = f'read -r line; set -- $line; {fails}; echo "$line"; cat'
    name = "reader" if words[0] == "--group" else "ordered"

    reading = streams.read(name, *words, "--until-caught-up", "--exec", script)
    await reading.ends(0)

    assert sorted(set(reading.lines) - set(streams.written)) == sorted(wanted)


async def test_the_good_copy_of_a_broken_message_is_handed_out(streams: Streams) -> None:
    """Its shipper is told that it could not be decoded, and sends it again, marked."""
    for host in HOSTS:
        await streams.store(host, 1000, f"{host} 8\n".encode(), broken=True)
        await streams.store(host, 1000, f"{host} 8\n".encode(), again=True)
    reading = streams.read("reader", "--on-error", "dead-letter", "--until-caught-up")
    log = await reading.ends(0)

    assert sorted(reading.lines) == sorted([*streams.written, *(f"{host} 8" for host in HOSTS)])
    assert f"{len(HOSTS)} dead letters" in log


@pytest.mark.parametrize("words", [(), ("--group",), ("--state", "kv")])
async def test_the_good_copy_is_handed_out_by_another_reader_than_the_one_that_met_the_broken(
    streams: Streams, words: tuple[str, ...]
) -> None:
    """It learns of the broken one from its headers, which are right. Of a third copy it knows that
    the second one is good.
    """
    rules = (*words, "--on-error", "dead-letter", "--until-caught-up")
    start = {host: length_of(streams, host) for host in HOSTS}
    for host in HOSTS:
        await streams.store(host, start[host], f"{host} 8\n".encode(), broken=True)
    log = await streams.read("reader", *rules).ends(0)
    assert f"{len(HOSTS)} dead letters" in log
    for host in HOSTS:
        for _ in range(2):
            await streams.store(host, start[host], f"{host} 8\n".encode(), again=True)

    reading = streams.read("reader", *rules)
    log = await reading.ends(0)

    assert sorted(reading.lines) == sorted(f"{host} 8" for host in HOSTS)
    assert f"{len(HOSTS)} sent again" in log


def length_of(streams: Streams, host: str) -> int:
    """How many bytes of the host's file were written."""
    return len("".join(f"{line}\n" for line in streams.written if line.startswith(f"{host} ")))


async def test_what_is_new_behind_what_came_before_is_handed_out(streams: Streams) -> None:
    """Also where the message begins at no end of a message whose sum is still known."""
    host = HOSTS[0]
    for _ in range(8):
        await streams.send(host)
    lines = [f"{line}\n" for line in streams.written if line.startswith(f"{host} ")]
    more = [f"{host} {number}" for number in (16, 17)]
    data = "".join([*lines[2:], *(f"{line}\n" for line in more)]).encode()
    await streams.store(host, len("".join(lines[:2])), data, again=True)

    reading = streams.read("reader", "--until-caught-up")
    await reading.ends(0)

    assert sorted(reading.lines) == sorted([*streams.written, *more])


async def test_what_does_not_continue_its_file_is_handed_out(streams: Streams) -> None:
    """It says that it was sent again, and its bytes are none that came before."""
    await streams.store(HOSTS[0], 0, b"something else\n", again=True)

    reading = streams.read("reader", "--until-caught-up")
    await reading.ends(0)

    assert sorted(reading.lines) == sorted([*streams.written, "something else"])


async def test_what_may_have_left_the_stream_before_it_was_sent_again_is_counted(
    streams: Streams,
) -> None:
    """A shipper sends again what no collector has got; a reader may have had it. What goes on
    behind such lines may have come before as well, and what goes on behind others is new.
    """
    host, rules = HOSTS[0], ("--state", "kv", "--until-caught-up", "--partitions", "0")
    await streams.read("reader", *rules).ends(0)
    lines = [f"{line}\n" for line in streams.written if line.startswith(f"{host} ")]
    await streams.js.call("STREAM.PURGE.LOGS_0")
    for at in (0, 4):
        start, data = len("".join(lines[:at])), "".join(lines[at : at + 4])
        await streams.store(host, start, data.encode(), again=True)

    reading = streams.read("reader", *rules)
    log = await reading.ends(0)

    assert reading.lines == [line.strip() for line in lines]
    assert "2 possible repeats" in log
    assert "the stream no longer holds what was before" in log

    await streams.send(host)
    more = f"{host} 9\n".encode()
    await streams.store(host, length_of(streams, host), more, again=True)
    log = await streams.read("reader", *rules).ends(0)
    assert "possible repeats" not in log


async def test_what_was_given_up_comes_again_only_for_who_gave_it_up(streams: Streams) -> None:
    """After `dlq retry` the consumer that had rejected a message gets it; the other one had it."""
    rules = ("--on-error", "dead-letter", "--until-caught-up", "--exec")
    await streams.read("strict", *rules, "cat > /dev/null").ends(0)
    await streams.write(1)
    log = await streams.read("strict", *rules, "cat >&2; exit 1").ends(0)
    assert f"{PARTITIONS} dead letters" in log
    other = streams.read("other", "--until-caught-up")
    await other.ends(0)
    streams.run("dlq", "retry", "--reason", "rejected", "--again")
    again = streams.read("strict", "--until-caught-up")
    await again.ends(0)
    assert sorted(again.lines) == sorted(streams.written[-PARTITIONS:])
    later = streams.read("other", "--until-caught-up")
    log = await later.ends(0)
    assert later.lines == []
    assert f"{PARTITIONS} for others" in log
