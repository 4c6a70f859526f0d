"""How much a batch holds, when it is put off, and what a query's progress says of the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from logpipeline_spark.source.datasource import JetStreamStreamReader
from logpipeline_spark.source.options import parse
from tables.streams import Streams, running_streams

DELAY_S = 90.0


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Streams]:
    """A server of this test alone."""
    with running_streams(tmp_path / "nats") as streams:
        yield streams


class Query:
    """What Spark asks of a reader, batch after batch; *now_s* is its clock."""

    def __init__(self, streams: Streams, **changes: str) -> None:
        self.now_s = 1000.0
        options = parse(streams.options(**{"startingOffsets": "earliest", **changes}))
        self.reader = JetStreamStreamReader(options, clock=lambda: self.now_s)
        self.offset: dict[str, Any] = self.reader.initialOffset()

    def batch(self, limit: ReadLimit | None = None) -> int | None:
        """Return how many messages the next batch has, None where there is none."""
        limit = self.reader.getDefaultReadLimit() if limit is None else limit
        end = self.reader.latestOffset(self.offset, limit)
        if end == self.offset:
            return None
        tasks = self.reader.partitions(self.offset, end)
        self.offset = end
        return sum(task.last - task.first + 1 for task in tasks)


@contextmanager
def running(streams: Streams, **changes: str) -> Iterator[Query]:
    """A query as long as a process of it lives."""
    query = Query(streams, **changes)
    try:
        yield query
    finally:
        query.reader.stop()


def send(streams: Streams, count: int) -> None:
    """Store *count* messages in each of the two streams."""
    for _ in range(count):
        for partition in range(2):
            streams.publish(f"logs.p{partition}.web1", b"x" * 100)


def test_a_batch_has_so_many_messages_at_most(streams: Streams) -> None:
    """Together, from all streams; where the bytes are less, it is these."""
    send(streams, 20)
    with running(streams, maxOffsetsPerTrigger="10") as query:
        assert [query.batch() for _ in range(5)] == [10, 10, 10, 10, None]
    with running(streams, maxOffsetsPerTrigger="10", maxBytesPerTrigger="1Gi") as query:
        assert query.batch() == 10
    with running(streams, maxOffsetsPerTrigger="10", maxBytesPerTrigger="1") as query:
        assert query.batch() == 2


def test_a_trigger_that_wants_everything_gets_it(streams: Streams) -> None:
    """`Trigger.Once` has no limit, whatever the options say."""
    send(streams, 20)
    with running(streams, maxOffsetsPerTrigger="10", minOffsetsPerTrigger="5") as query:
        assert query.batch(ReadAllAvailable()) == 40
        send(streams, 1)
        assert query.batch(ReadAllAvailable()) == 2


def test_a_batch_waits_for_so_many_messages(streams: Streams) -> None:
    """But the first, which keeps the start, and one that waited for the longest delay."""
    with running(streams, minOffsetsPerTrigger="8", maxTriggerDelay=f"{DELAY_S:g}s") as query:
        assert query.batch() == 0
        send(streams, 3)
        assert query.batch() is None
        send(streams, 1)
        assert query.batch() == 8
        send(streams, 1)
        query.now_s += DELAY_S - 1
        assert query.batch() is None
        query.now_s += 1
        assert query.batch() == 2
        send(streams, 1)
        assert query.batch() is None


def test_all_that_is_available_is_read_however_little_it_is(streams: Streams) -> None:
    """It ends there: nothing that comes later is waited for, or read."""
    with running(streams, minOffsetsPerTrigger="100", maxOffsetsPerTrigger="100") as query:
        query.batch()
        send(streams, 2)
        query.reader.prepareForTriggerAvailableNow()
        send(streams, 3)
        assert [query.batch(), query.batch()] == [4, None]


def test_progress_says_what_a_batch_leaves_behind_it(streams: Streams) -> None:
    """For each stream, and all of them; also while a batch waits."""
    send(streams, 10)
    streams.publish("logs.p1.web1", b"x" * 100)
    with running(streams, maxOffsetsPerTrigger="7", minOffsetsPerTrigger="7") as query:
        query.batch()
        assert query.reader.reportLatestOffset() == {
            "streams": {"LOGS_0": {"sequence": 10, "lag": 7}, "LOGS_1": {"sequence": 11, "lag": 8}},
            "lag": 15,
        }
        # Each stream's share is whole messages, rounded down.
        assert [query.batch(), query.batch()] == [6, 6]
        assert query.batch() is None
        assert query.reader.reportLatestOffset()["lag"] == 3
