"""A message over which its readers die is not handed out for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import logpipeline
from components.consuming import HOSTS, Streams
from waiting import eventually

MESSAGES = 6
KILLER = f"{HOSTS[0]} 3"
# As a library would that fails within its reader's process.
DIES = f"cat > all; grep -q '^{KILLER}$' all && kill -9 $PPID && sleep 60; cat all"
TRIES = 2
# Those of the batch, those of the message alone, and one that could not be noted.
DEATHS_MAX = 2 * TRIES + 1
# A net for hangs, wide enough for a machine that runs other tests beside.
READ_S = 60


@pytest.fixture
async def streams(streams: Streams) -> Streams:
    """Three streams with messages."""
    await streams.write(MESSAGES)
    return streams


@pytest.mark.parametrize("batch", ["1", "4"])
@pytest.mark.parametrize("state", ["file", "kv"])
async def test_a_message_that_kills_its_readers_becomes_a_dead_letter(
    streams: Streams, tmp_path: Path, state: str, batch: str
) -> None:
    """Once the tries are over, and it alone."""
    where = str(tmp_path / "own.state") if state == "file" else "kv"
    words = ("--state", where, "--batch", batch, "--partitions", "0", "--until-caught-up")
    rules = ("--on-error", "dead-letter", "--tries", str(TRIES), "--exec", DIES, "--allow-unread")
    found: list[str] = []
    codes: list[int | None] = []
    while len(codes) <= DEATHS_MAX and 0 not in codes:
        reading = streams.read("own", *words, *rules)
        await eventually(lambda: reading.has_ended, within_s=READ_S)  # noqa: B023  # awaited here
        codes.append(reading.process.returncode)
        found += reading.lines

    assert codes[-1] == 0, reading.log
    assert set(codes[:-1]) == {-9}
    assert len(codes) > TRIES
    assert found == [line for line in streams.written if line[:-2] == HOSTS[0] and line != KILLER]
    assert f"its reader ended {TRIES} times over it" in streams.run("dlq", "show", "1")


async def test_a_reader_that_ends_in_peace_has_not_tried(streams: Streams) -> None:
    """However often it leaves the batch as it was."""
    options: Any = {"pipeline": streams.file, "nats": streams.server.url, "partitions": "0"}
    options |= {"state": "kv", "batch": 4, "tries": TRIES, "on_error": "dead-letter"}
    for _ in range(2 * TRIES):
        async with (
            asyncio.timeout(READ_S),
            logpipeline.open_reader("own", **options) as reader,
        ):
            batch = await anext(reader)
            assert (batch.first, batch.last) == (1, 4)
            assert reader.counts.dead_letters == 0
