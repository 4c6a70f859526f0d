"""What a query of Spark's promises of its batches, and says of its progress."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tables.each_batch import KILLED, run, run_and_die, written
from tables.local_spark import lines_in, run_available
from tables.streams import Streams, running_streams


@pytest.fixture
def streams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Streams]:
    """A server of this test alone."""
    with running_streams(tmp_path_factory.mktemp("nats")) as streams:
        yield streams


def test_a_batch_that_is_repeated_after_a_kill_has_the_same_rows(
    streams: Streams, tmp_path: Path
) -> None:
    """Its number names it: who overwrites what it wrote under that has each line once."""
    for number in range(30):
        streams.send("node-b" if number % 3 else "node-a", f"{number:02d}")
    options = streams.options(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    assert run_and_die(options, tmp_path, dies_in=1) == KILLED
    before = written(tmp_path / "copy")
    lacking = json.loads((tmp_path / "checkpoint" / "offsets" / "1").read_text().splitlines()[-1])
    assert sum(stream["sequence"] for stream in lacking["streams"].values()) < 30
    for number in range(30, 40):
        streams.send("node-a", f"{number:02d}")

    # Other limits count from the next batch on.
    run(options | {"maxOffsetsPerTrigger": "1000"}, tmp_path)
    after = written(tmp_path / "copy")
    assert sorted(before) == [0, 1]
    assert {number: after[number] for number in before} == before
    assert sorted(line for lines in after.values() for line in lines) == [
        f"{number:02d}" for number in range(40)
    ]


def test_progress_says_how_far_behind_a_query_is(streams: Streams, tmp_path: Path) -> None:
    """For each stream, in what Spark tells of the source; its limits pass Spark unchanged."""
    for number in range(20):
        streams.send("node-b" if number % 2 else "node-a", f"{number:02d}")
    options = streams.options(startingOffsets="earliest", maxOffsetsPerTrigger="8")
    progress = run_available(options, tmp_path).recentProgress

    told = [json.loads(each["sources"][0]["latestOffset"]) for each in progress]
    assert [each["lag"] for each in told][:3] == [12, 4, 0]
    assert told[0]["streams"]["LOGS_0"] == {"sequence": 10, "lag": 6}
    assert [each["numInputRows"] for each in progress][:3] == [8, 8, 4]

    streams.send("node-a", "20")
    run_available(streams.options(minOffsetsPerTrigger="1000"), tmp_path)
    assert len(lines_in(tmp_path)) == 21
