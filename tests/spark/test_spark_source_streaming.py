"""Queries that go on: each line once, over restarts, and what happens when a stream is not the one
any more that was read.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from logpipeline_spark.errors import sentence_of
from tables.local_spark import lines_in, run_available, start
from tables.streams import Streams, running_streams
from waiting import eventually

EARLIEST = {"startingOffsets": "earliest"}


@pytest.fixture
def streams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Streams]:
    """A server of this test alone."""
    with running_streams(tmp_path_factory.mktemp("nats")) as streams:
        yield streams


@pytest.mark.smoke
@pytest.mark.spark43
def test_what_is_available_is_read_once_each_run(streams: Streams, tmp_path: Path) -> None:
    """In batches of about the bytes that are asked for; the next run goes on behind it."""
    for number in range(40):
        streams.send("node-b" if number % 4 else "node-a", f"{number:04d} " + "x" * 1000)
    options = streams.options(**EARLIEST, maxBytesPerTrigger="8000", minPartitions="3")

    first = run_available(options, tmp_path)
    lines = lines_in(tmp_path)
    assert [int(line[:4]) for line in lines] == list(range(40))
    assert len(first.recentProgress) >= 5

    streams.send("node-a", "0040")
    run_available(options, tmp_path)
    assert lines_in(tmp_path) == [*lines, "0040"]
    run_available(options, tmp_path)
    assert lines_in(tmp_path) == [*lines, "0040"]


def test_latest_is_resolved_once_and_kept(streams: Streams, tmp_path: Path) -> None:
    """A query that saw nothing remembers where it began; what comes while it is down is read."""
    streams.send("node-b", "before")
    run_available(streams.options(), tmp_path)
    streams.send("node-b", "while it was down")

    run_available(streams.options(), tmp_path)
    assert lines_in(tmp_path) == ["while it was down"]


def test_the_first_batch_of_a_query_that_died_is_repeated_as_it_was(
    streams: Streams, tmp_path: Path
) -> None:
    """Its end is written down before it runs, and holds its start: latest is not asked again."""
    streams.send("node-b", "before")
    run_available(streams.options(), tmp_path)
    streams.send("node-b", "one")
    run_available(streams.options(), tmp_path)
    # As if it had died in its first batch, which by then had come to hold a line: the batch that
    # is written down ends at "one", and nothing says that any was done.
    offsets = tmp_path / "checkpoint" / "offsets"
    first, second = (offsets / name for name in "01")
    end = json.loads(second.read_text().splitlines()[2])
    assert end["streams"]["LOGS_0"]["after"] == 1
    first.write_text(second.read_text())
    for path in (second, *offsets.glob(".*.crc")):
        path.unlink()
    shutil.rmtree(tmp_path / "table")
    shutil.rmtree(tmp_path / "checkpoint" / "commits")

    run_available(streams.options(), tmp_path)
    assert lines_in(tmp_path) == ["one"]


@pytest.mark.spark43
async def test_a_running_query_takes_what_comes(streams: Streams, tmp_path: Path) -> None:
    """Of all streams, also over a restart of the server."""
    query = start(streams.options(**EARLIEST), tmp_path)

    async def send(*lines: str) -> None:
        await asyncio.to_thread(lambda: [streams.send("node-a", line) for line in lines])

    async def arrived(*lines: str) -> None:
        await eventually(
            lambda: asyncio.to_thread(lambda: lines_in(tmp_path) == sorted(lines)), within_s=240
        )

    try:
        await send("one", "two")
        await arrived("one", "two")
        await asyncio.to_thread(streams.stop)
        await asyncio.to_thread(streams.start)
        await send("three")
        await arrived("one", "two", "three")
    finally:
        await asyncio.to_thread(query.stop)


def refusal(options: dict[str, str], folder: Path) -> str:
    """Return why a run is refused."""
    with pytest.raises(PySparkException) as caught:
        run_available(options, folder)
    return sentence_of(caught.value)


def roll_back(streams: Streams, folder: Path) -> None:
    """Bring the server's store back to *folder*, as a power cut does."""
    streams.stop()
    shutil.rmtree(streams.server.store)
    shutil.copytree(folder, streams.server.store)
    streams.start()


def test_a_roll_back_is_noticed(streams: Streams, tmp_path: Path) -> None:
    """Sequences are used again: refused, or read on from the last message that both have."""
    options = streams.options(**EARLIEST)
    streams.send("node-b", "one")
    streams.send("node-b", "two")
    streams.stop()
    shutil.copytree(streams.server.store, tmp_path / "then")
    streams.start()
    streams.send("node-b", "three, lost by the server")
    streams.send("node-b", "four, lost by the server")
    run_available(options, tmp_path)
    before = lines_in(tmp_path)
    roll_back(streams, tmp_path / "then")
    streams.send("node-b", "five")
    streams.send("node-b", "six")
    streams.send("node-b", "seven")

    assert refusal(options, tmp_path).startswith("stream LOGS_0 was rolled back: its message 4")
    run_available(options | {"failOnDataLoss": "false"}, tmp_path)
    assert lines_in(tmp_path) == sorted([*before, "five", "six", "seven"])
    run_available(options, tmp_path)
    assert len(lines_in(tmp_path)) == 7


def test_a_stream_that_was_made_anew_is_noticed(streams: Streams, tmp_path: Path) -> None:
    """Its sequences begin again, and all of it is new."""
    options = streams.options(**EARLIEST)
    streams.send("node-b", "one")
    run_available(options, tmp_path)
    streams.call("STREAM.DELETE.LOGS_0")
    streams.create("LOGS_0")
    streams.send("node-b", "two", source="/other")

    assert refusal(options, tmp_path).startswith("stream LOGS_0 was created again")
    run_available(options | {"failOnDataLoss": "false"}, tmp_path)
    assert lines_in(tmp_path) == ["one", "two"]


def test_what_was_purged_unread_is_noticed(streams: Streams, tmp_path: Path) -> None:
    """Retention that overtakes a reader is not passed over in silence."""
    options = streams.options(**EARLIEST)
    streams.send("node-b", "one")
    run_available(options, tmp_path)
    for line in ("two", "three"):
        streams.send("node-b", line)
    streams.call("STREAM.PURGE.LOGS_0", {"seq": 3})

    assert refusal(options, tmp_path).startswith("stream LOGS_0 begins at 3 and was read up to 1")
    run_available(options | {"failOnDataLoss": "false"}, tmp_path)
    assert lines_in(tmp_path) == ["one", "three"]


def test_other_streams_on_an_old_checkpoint_are_refused(streams: Streams, tmp_path: Path) -> None:
    """What of them was read is known to nobody."""
    streams.send("node-b", "one")
    run_available(streams.options(**EARLIEST), tmp_path)

    said = refusal(streams.options(stream="LOGS_0,", **EARLIEST), tmp_path)
    assert said.startswith("the checkpoint was made for the streams LOGS_0, LOGS_1")


def test_a_stream_has_no_end(streams: Streams, tmp_path: Path) -> None:
    """An option that only a table has is refused."""
    said = refusal(streams.options(endingOffsets="latest"), tmp_path)
    assert said.startswith("jetstream: a streaming query has no end")
