"""`logpipeline consume`: what a command on a batch does decides what becomes of its messages."""

from __future__ import annotations

import json

import pytest

from components.consuming import HOSTS, PARTITIONS, Streams, in_order


async def test_lines_are_printed_as_they_were_written(streams: Streams) -> None:
    """All that is stored, each line once, each host's in order; then it ends."""
    await streams.write(5, lines=3)
    reading = streams.read("reader", "--until-caught-up")
    await reading.ends(0)
    assert sorted(reading.lines) == sorted(streams.written)
    assert in_order(reading.lines)


async def test_lines_are_printed_with_the_time_that_they_name(streams: Streams) -> None:
    """As JSON; by the first rule that finds one, and null where none does."""
    data = b"2020-11-20 09:00:00.25 hot\nI1120 09:00:00 1 x\nnone\n"
    await streams.store(HOSTS[0], 0, data)
    rules = ("--event-time", "iso8601", "--event-time", "%Y-%m-%d %H", "--zone", "+01:00")
    reading = streams.read("reader", "-o", "json", *rules, "--until-caught-up")
    await reading.ends(0)
    found = [json.loads(each)["event_time"] for each in reading.lines]
    assert found == ["2020-11-20T08:00:00.250000Z", None, None]


async def test_a_durable_consumer_goes_on_where_it_was(streams: Streams) -> None:
    """What was acknowledged does not come again, what was written meanwhile does."""
    await streams.write(2)
    await streams.read("reader", "--until-caught-up").ends(0)
    before = len(streams.written)
    await streams.write(2)
    reading = streams.read("reader", "--until-caught-up")
    await reading.ends(0)
    assert sorted(reading.lines) == sorted(streams.written[before:])


async def test_a_command_that_fails_stops_the_reader_there(streams: Streams) -> None:
    """It says which message, and the next start goes on with that one."""
    await streams.write(3)
    words = ("--exec", "grep -v 'web0 1'", "--partitions", "0")
    log = await streams.read("reader", *words).ends(1)
    assert "message 2 of stream LOGS_0 could not be processed: the command ended with 1" in log
    again = streams.read("reader", "--partitions", "0", "--exec", "cat", "--until-caught-up")
    await again.ends(0)
    assert again.lines == [f"{HOSTS[0]} 1", f"{HOSTS[0]} 2"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("kill -9 $$", "ended by SIGKILL"),
        ("sleep 600", "did not end in 0.5 s"),
        ("exit 75", "asks for another try"),
    ],
)
async def test_what_may_go_away_is_tried_again_and_then_given_up(
    streams: Streams, command: str, said: str
) -> None:
    """A signal, a hang, and the code that asks for it; nothing is acknowledged."""
    await streams.send(HOSTS[0])
    log = await streams.read(
        "reader", "--exec", command, "--timeout", "500ms", "--tries", "2"
    ).ends(1)
    assert said in log
    assert "could not be processed" in log
    assert (await streams.consumer("reader"))["ack_floor"]["stream_seq"] == 0


async def test_a_command_that_reads_nothing_did_not_process_anything(streams: Streams) -> None:
    """Its 0 is not believed, unless that is said to be right."""
    await streams.send(HOSTS[0])
    log = await streams.read("reader", "--exec", "true").ends(1)
    assert "of its input unread" in log
    await streams.read("reader", "--exec", "true", "--allow-unread", "--until-caught-up").ends(0)


async def test_what_can_never_be_processed_goes_among_the_dead_letters(streams: Streams) -> None:
    """Of a whole batch only that one, and the others are processed."""
    await streams.write(5)
    reading = streams.read(
        "reader", "--batch", "5", "--exec", "tee /dev/stderr | (! grep -q ' 3$') && cat",
        "--on-error", "dead-letter", "--until-caught-up", "--allow-unread",
    )  # fmt: skip
    log = await reading.ends(0)
    info = await streams.js.stream_info("LOGS_dead")
    assert info is not None
    assert info["state"]["messages"] == PARTITIONS
    assert "3 dead letters" in log


@pytest.mark.parametrize("words", [("--in-order",), ("--group",)])
async def test_on_error_retry_tries_as_often_as_was_said(
    streams: Streams, words: tuple[str, ...]
) -> None:
    """Also what can never be processed, whether or not an order is kept; then it is put aside."""
    await streams.send(HOSTS[0])
    tried = streams.folder / "tried"
    log = await streams.read(
        "reader", *words, "--on-error", "retry", "--tries", "3", "--partitions", "0",
        "--exec", f"cat >> {tried}; exit 1", "--until-caught-up",
    ).ends(0)  # fmt: skip
    assert tried.read_text().splitlines() == [f"{HOSTS[0]} 0"] * 3
    assert "1 dead letters" in log


async def test_a_second_reader_is_told_of_the_first(streams: Streams) -> None:
    """And the first one goes on."""
    await streams.write(1)
    first = streams.read("reader")
    await first.until(PARTITIONS)
    log = await streams.read("reader").ends(1)
    assert "consumer reader is being read by" in log
    await streams.write(1)
    await first.until(2 * PARTITIONS)
    await first.stop()


async def test_old_messages_are_skipped_and_counted(streams: Streams) -> None:
    """With --max-age, and not again later."""
    await streams.write(2)
    log = await streams.read("reader", "--max-age", "1ms", "--until-caught-up").ends(0)
    assert f"{2 * PARTITIONS} expired" in log
    reading = streams.read("reader", "--until-caught-up")
    await reading.ends(0)
    assert reading.lines == []
