"""With a state each message is processed once, whatever is delivered again and whoever dies."""

from __future__ import annotations

import json
import os
import random
import signal
from functools import partial
from pathlib import Path

import pytest

from components.consuming import HOSTS, PARTITIONS, Streams, in_order, streams_on
from logpipeline.embedded import EmbeddedServer
from logpipeline.statefile import write_state
from waiting import eventually

# A result appears under the batch's name in one step, as a table or an object store has it.
STORE = 'cat > "$OUT/.$$" && mv "$OUT/.$$" "$OUT/$LOGPIPELINE_BATCH"'


@pytest.fixture
async def streams(streams: Streams) -> Streams:
    """Three streams with lines."""
    await streams.write(20)
    return streams


def where(state: str, folder: Path) -> tuple[str, ...]:
    """The words that name a state."""
    if state == "none":
        return ()
    return ("--state", str(folder / "reader.state") if state == "file" else "kv")


def has(folder: Path, count: int) -> bool:
    """Whether so many lines are there."""
    return len(stored(folder)) >= count


def stored(folder: Path) -> list[str]:
    """The lines of all results, in the order of their streams."""
    files = [path for path in folder.iterdir() if not path.name.startswith(".")]
    files.sort(key=lambda path: (path.name.split("-")[0], int(path.name.split("-")[1])))
    return [line for path in files for line in path.read_text().splitlines()]


@pytest.mark.parametrize("state", ["file", "kv", "none"])
async def test_what_was_processed_is_not_processed_again(
    streams: Streams, tmp_path: Path, state: str
) -> None:
    """A reader that dies before it can acknowledge; without a state it is done twice."""
    out = tmp_path / "out"
    words = (*where(state, tmp_path), "--batch", "7", "--ack", "every=50", "--until-caught-up")
    append = ("--exec", 'cat >> "$OUT"')
    await streams.read("reader", *words, *append, point="consume.saved:4", OUT=str(out)).ends(-9)
    await streams.write(3)
    await streams.read("reader", *words, *append, OUT=str(out)).ends(0)
    lines = out.read_text().splitlines()
    assert set(lines) == set(streams.written)
    assert (len(lines) == len(streams.written)) == (state != "none")
    assert in_order(lines) == (state != "none")


@pytest.mark.parametrize("state", ["file", "kv", "none"])
async def test_a_batch_that_was_begun_is_handed_out_again_as_it_was(
    streams: Streams, tmp_path: Path, state: str
) -> None:
    """A reader that dies before it can note that a batch is processed: under the batch's name the
    result is one, though batches are smaller now. Without a state it would be another batch.
    """
    out = tmp_path / "out"
    out.mkdir()
    words = (*where(state, tmp_path), "--exec", STORE, "--until-caught-up", "--batch")
    await streams.read("reader", *words, "7", point="consume.processed:4", OUT=str(out)).ends(-9)
    await streams.read("reader", *words, "5", OUT=str(out)).ends(0)
    lines = stored(out)
    assert set(lines) == set(streams.written)
    assert (len(lines) == len(streams.written)) == (state != "none")


@pytest.mark.parametrize(("before", "after"), [("7", "7"), ("1", "7"), ("7", "1")])
async def test_a_batch_of_one_message_is_not_joined_with_later_ones(
    nats_server: EmbeddedServer, tmp_path: Path, before: str, after: str
) -> None:
    """Though more have come until the next reader looks, whatever its batches are."""
    out = tmp_path / "out"
    out.mkdir()
    words = ("--state", "kv", "--exec", STORE, "--until-caught-up", "--batch")
    async with streams_on(nats_server, tmp_path / "pipeline") as streams:
        await streams.write(1)
        dying = streams.read("reader", *words, before, point="consume.processed:1", OUT=str(out))
        await dying.ends(-9)
        await streams.write(5)
        await streams.read("reader", *words, after, OUT=str(out)).ends(0)
        assert sorted(stored(out)) == sorted(streams.written)


async def test_a_group_that_loses_members_processes_each_line_once(
    streams: Streams, tmp_path: Path
) -> None:
    """Three members, of which one after the other is killed and replaced."""
    out = tmp_path / "out"
    out.mkdir()
    words = ("--group", "--state", "kv", "--batch", "5", "--exec", STORE)
    chance = random.Random(7)
    living = [streams.read("reader", *words, OUT=str(out)) for _ in range(3)]
    for _ in range(6):
        await streams.write(10)
        goal = len(streams.written) - chance.randrange(20)
        await eventually(partial(has, out, goal), within_s=60)
        victim = living.pop(chance.randrange(3))
        victim.kill()
        living.append(streams.read("reader", *words, OUT=str(out)))
    await eventually(lambda: len(stored(out)) >= len(streams.written), within_s=60)
    lines = stored(out)
    assert sorted(lines) == sorted(streams.written)
    assert in_order(lines)


async def test_a_member_that_was_frozen_does_not_write_on(streams: Streams, tmp_path: Path) -> None:
    """Its partition was taken over meanwhile: what it had in hand is not its own any more."""
    out = tmp_path / "out"
    out.mkdir()
    words = ("--group", "--state", "kv", "--exec", STORE)
    frozen = streams.read("reader", *words, "--member", "frozen", OUT=str(out))
    await eventually(lambda: len(stored(out)) >= len(streams.written), within_s=60)
    os.kill(frozen.process.pid, signal.SIGSTOP)
    other = streams.read("reader", *words, "--member", "other", OUT=str(out))
    await streams.write(5)
    await eventually(lambda: len(stored(out)) >= len(streams.written), within_s=60)
    os.kill(frozen.process.pid, signal.SIGCONT)
    await streams.write(5)
    await eventually(lambda: len(stored(out)) >= len(streams.written), within_s=60)
    await frozen.stop()
    await other.stop()
    lines = stored(out)
    assert sorted(lines) == sorted(streams.written)


@pytest.mark.parametrize("state", ["kv", "none"])
async def test_a_lone_reader_that_was_frozen_ends(
    streams: Streams, tmp_path: Path, state: str
) -> None:
    """Another one took it for dead and reads on, alone."""
    words = where(state, tmp_path)
    frozen = streams.read("reader", *words, "--member", "frozen")
    await streams.caught_up("reader")
    os.kill(frozen.process.pid, signal.SIGSTOP)
    other = streams.read("reader", *words, "--member", "other")
    await streams.write(1)
    await other.until(PARTITIONS)
    os.kill(frozen.process.pid, signal.SIGCONT)
    await streams.write(1)
    assert "other reads as consumer reader now" in await frozen.ends(1)
    await streams.write(1)
    await other.until(3 * PARTITIONS)
    await other.stop()
    assert sorted(frozen.lines + other.lines) == sorted(streams.written)


async def test_the_state_of_another_stream_is_refused(streams: Streams, tmp_path: Path) -> None:
    """A stream that was made anew is not the one that was read; --reset begins anew."""
    state = tmp_path / "reader.state"
    words = ("--state", str(state), "--until-caught-up")
    await streams.read("reader", *words).ends(0)
    await streams.js.call("STREAM.DELETE.LOGS_1")
    streams.run("apply")
    log = await streams.read("reader", *words).ends(1)
    assert "stream LOGS_1 was made anew" in log
    assert "--reset" in log
    streams.written.clear()
    await streams.send(HOSTS[1])
    again = streams.read("reader", *words, "--reset", "--yes")
    await again.ends(0)
    assert f"{HOSTS[1]} 0" in again.lines


async def test_the_state_of_another_consumer_is_refused(streams: Streams, tmp_path: Path) -> None:
    """And so is one that is damaged."""
    state = tmp_path / "reader.state"
    await streams.read("reader", "--state", str(state), "--until-caught-up").ends(0)
    log = await streams.read("other", "--state", str(state)).ends(1)
    assert "is the state of consumer reader, not of other" in log
    state.write_text(state.read_text()[:-5])
    log = await streams.read("reader", "--state", str(state)).ends(1)
    assert "cannot be read as a state" in log


async def test_a_server_that_lost_its_tail_is_noticed(streams: Streams, tmp_path: Path) -> None:
    """The sequence is there again, with another message: nothing is skipped for it."""
    state = tmp_path / "reader.state"
    await streams.read("reader", "--state", str(state), "--until-caught-up").ends(0)
    text = state.read_text()
    data = json.loads(text.split("\n", 1)[1])
    data["streams"]["LOGS_0"]["position"]["time_ns"] -= 1
    write_state(state, "logpipeline-consume", 1, data)
    log = await streams.read("reader", "--state", str(state)).ends(1)
    assert "stream LOGS_0 went back" in log
