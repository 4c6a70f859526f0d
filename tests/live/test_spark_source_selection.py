"""Streams are found by a pipeline's name or by a pattern, and their subjects' root by what they
store; a query takes in what is added while it runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from logpipeline_spark.errors import Refused
from logpipeline_spark.source import planning
from logpipeline_spark.source.client import Client
from logpipeline_spark.source.datasource import JetStreamReader, JetStreamStreamReader
from logpipeline_spark.source.options import parse
from tables.streams import Streams, running_streams

ALL = ReadAllAvailable()
ROOT = "lp.default.prod"


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Streams]:
    """A server of this test alone, with two streams of a pipeline beside those called LOGS."""
    with running_streams(tmp_path / "nats") as streams:
        for number in range(2):
            create(streams, number)
        yield streams


def create(streams: Streams, number: int, root: str = ROOT, base: str = "LP_default_prod") -> None:
    """Make one more stream of a pipeline."""
    streams.create(f"{base}_{number}", subjects=[f"{root}.p{number}.>"])


def options_of(streams: Streams, **changes: str) -> dict[str, str]:
    """Return options that name a server, and *changes*."""
    return {"servers": streams.server.url, "startingOffsets": "earliest", **changes}


def refusal(streams: Streams, **changes: str) -> str:
    """Return why the streams that *changes* name are refused."""
    options = parse(options_of(streams, **changes))
    with pytest.raises(Refused) as caught, Client(options) as client:
        planning.look(client, options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def found(streams: Streams, **changes: str) -> list[str]:
    """Return the streams that are found."""
    options = parse(options_of(streams, **changes))
    with Client(options) as client:
        return list(planning.look(client, options))


def rows(batches: Iterator[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    """Return stream, host, level and line of each row."""
    found = [row for batch in batches for row in batch.to_pylist()]
    return [(row["stream"], row["host"], row["level"], row["line"]) for row in found]


def table(streams: Streams, **changes: str) -> list[tuple[Any, ...]]:
    """Return the rows that are read once."""
    reader = JetStreamReader(parse(options_of(streams, **changes)))
    return [row for task in reader.partitions() for row in rows(reader.read(task))]


@contextmanager
def reading(options: dict[str, str]) -> Iterator[JetStreamStreamReader]:
    """A query's reader, as long as a process of it lives."""
    reader = JetStreamStreamReader(parse(options))
    try:
        yield reader
    finally:
        reader.stop()


def batch(reader: JetStreamStreamReader, start: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the rows of the next batch, and its end."""
    end = reader.latestOffset(start, ALL)
    tasks = reader.partitions(start, end)
    return [row for task in tasks for row in rows(reader.read(task))], end


def test_a_pipeline_is_read_by_its_name_alone(streams: Streams) -> None:
    """Streams, their number and their subjects follow; its namespace is default unless named."""
    streams.publish(f"{ROOT}.p1.web1", b"ERROR one")
    create(streams, 0, "lp.logging.prod", "LP_logging_prod")

    assert table(streams, pipeline="prod") == [("LP_default_prod_1", "web1", "error", "ERROR one")]
    assert found(streams, pipeline="default/prod") == ["LP_default_prod_0", "LP_default_prod_1"]
    assert found(streams, pipeline="logging/prod") == ["LP_logging_prod_0"]
    assert found(streams, pipeline="logging/prod", partitions="0") == ["LP_logging_prod_0"]


def test_a_pipeline_that_is_not_there(streams: Streams) -> None:
    """Its name may be wrong, or its streams may be called otherwise."""
    said = refusal(streams, pipeline="logging/test")

    assert said.startswith("stream LP_logging_test_0 does not exist at nats://")
    assert "`logpipeline stream options`" in said


def test_a_root_of_the_pipeline_s_own_is_found(streams: Streams) -> None:
    """`spec.subject` is nowhere in the streams' names, but in what they store."""
    create(streams, 0, "app.logs", "LP_default_own")
    streams.publish("app.logs.p0.web1", b"one")

    assert table(streams, pipeline="own") == [("LP_default_own_0", "web1", None, "one")]


def test_a_subject_that_no_stream_has_is_refused(streams: Streams) -> None:
    """Instead of rows that nobody can decode; what the stream stores is named."""
    said = refusal(streams, stream="LOGS", partitions="2", subject="LOGS")
    assert said.startswith(
        "stream LOGS_0 stores logs.p0.>, and no subject that begins with the option 'subject'"
    )
    assert said.endswith("write 'logs', or leave the option out")
    for wrong in ("log", "logs.p0", "lp.default"):
        assert "and no subject that begins with the option" in refusal(
            streams, stream="LOGS_1", subject=wrong
        )
    assert found(streams, stream="LOGS", partitions="2", subject="logs") == ["LOGS_0", "LOGS_1"]
    assert found(streams, stream="LOGS", partitions="2", subject="LOGS", format="messages")


def test_a_stream_that_does_not_say_its_root_needs_a_subject(streams: Streams) -> None:
    """As one that stores everything, or what another one has."""
    streams.create("WIDE", subjects=["wide.>"])
    streams.create("MIRROR", subjects=None, mirror={"name": "LOGS_0"})

    assert "set the option 'subject'" in refusal(streams, stream="WIDE")
    assert "stores messages of other streams" in refusal(streams, stream="MIRROR")
    assert "and no subject that begins" in refusal(streams, stream="WIDE", subject="logs")
    assert found(streams, stream="WIDE", subject="wide.logs") == ["WIDE"]
    assert found(streams, stream="MIRROR", subject="logs") == ["MIRROR"]


def test_a_pattern_finds_streams_of_several_pipelines(streams: Streams) -> None:
    """The whole name has to match; each stream has the root of its own subjects."""
    streams.publish(f"{ROOT}.p0.web1", b"one")
    streams.send("node-a", "two")

    assert table(streams, subscribePattern="LOGS_.*|LP_.*_[01]") == [
        ("LOGS_1", "node-a", None, "two"),
        ("LP_default_prod_0", "web1", None, "one"),
    ]
    said = refusal(streams, subscribePattern="LOGS")
    assert "'LOGS' matches the whole name of no stream" in said
    assert "LOGS_0, LOGS_1, LP_default_prod_0" in said


@pytest.mark.parametrize(
    "choice", [{"pipeline": "prod"}, {"subscribePattern": "LP_default_prod_.*"}]
)
def test_a_stream_that_is_added_is_read_from_its_beginning(
    streams: Streams, choice: dict[str, str]
) -> None:
    """By a query that runs, whatever its own start was; and by one that was started again."""
    options = options_of(streams, **{**choice, "startingOffsets": "latest"})
    with reading(options) as reader:
        start = reader.initialOffset()
        create(streams, 2)
        streams.publish(f"{ROOT}.p2.web9", b"one")
        came, end = batch(reader, start)
    create(streams, 3)
    streams.publish(f"{ROOT}.p3.web7", b"two")
    with reading(options) as again:
        later, last = batch(again, end)
        assert batch(again, last) == ([], last)

    assert came == [("LP_default_prod_2", "web9", None, "one")]
    assert later == [("LP_default_prod_3", "web7", None, "two")]
    # A batch that is repeated is the same, in a process that has not looked yet.
    with reading(options) as fresh:
        tasks = fresh.partitions(end, last)
        assert [row for task in tasks for row in rows(fresh.read(task))] == later


def test_a_stream_that_goes_is_a_loss(streams: Streams) -> None:
    """Refused, or read on without it."""
    options = options_of(streams, subscribePattern="LP_default_prod_.*")
    with reading(options) as reader:
        _, end = batch(reader, reader.initialOffset())
        streams.call("STREAM.DELETE.LP_default_prod_1")
        with pytest.raises(Refused, match="LP_default_prod_1, which were read, are gone"):
            reader.latestOffset(end, ALL)
    with reading({**options, "failOnDataLoss": "false"}) as careless:
        assert list(careless.latestOffset(end, ALL)["streams"]) == ["LP_default_prod_0"]


def test_a_batch_is_repeated_without_a_stream_that_went_meanwhile(streams: Streams) -> None:
    """Its end is in the checkpoint: the query would be refused at each start."""
    options = options_of(streams, subscribePattern="LP_default_prod_.*", failOnDataLoss="false")
    for number in range(2):
        streams.publish(f"{ROOT}.p{number}.web1", b"one")
    with reading(options) as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        streams.call("STREAM.DELETE.LP_default_prod_1")
    with reading(options) as again:
        read = [row for task in again.partitions(start, end) for row in rows(again.read(task))]
        assert list(again.latestOffset(end, ALL)["streams"]) == ["LP_default_prod_0"]

    assert read == [("LP_default_prod_0", "web1", None, "one")]


def test_json_names_each_stream_that_is_found(streams: Streams) -> None:
    """When the options are read the streams are not known."""
    options = options_of(streams, pipeline="prod", startingOffsets='{"LP_default_prod_0": 1}')
    with reading(options) as reader, pytest.raises(Refused) as caught:
        reader.initialOffset()

    assert str(caught.value) == (
        "option 'startingOffsets': JSON names LP_default_prod_0; it must name each of "
        "LP_default_prod_0, LP_default_prod_1"
    )


def test_a_table_begins_and_ends_at_times_of_each_stream(streams: Streams) -> None:
    """The first message of that time or later, and none of the end's or later."""
    for number in range(4):
        for partition in range(2):
            streams.publish(f"{ROOT}.p{partition}.web1", b"%d" % number)
    with Client(parse(options_of(streams, pipeline="prod"))) as client:
        times = {
            name: [client.time_at(name, client.state(name), n) or 0 for n in range(1, 5)]
            for name in ("LP_default_prod_0", "LP_default_prod_1")
        }

    def at(*, first: int, second: int) -> str:
        moments = (times["LP_default_prod_0"][first], times["LP_default_prod_1"][second])
        # Whole milliseconds would not tell these messages apart.
        texts = [pa.scalar(ns, pa.timestamp("ns")).as_py().isoformat() for ns in moments]
        return json.dumps(dict(zip(times, texts, strict=True)))

    read = table(
        streams,
        pipeline="prod",
        startingOffsets="",
        startingOffsetsByTimestamp=at(first=1, second=0),
        endingOffsetsByTimestamp=at(first=3, second=2),
    )
    assert [(row[0][-1], row[3]) for row in read] == [
        ("0", "1"),
        ("0", "2"),
        ("1", "0"),
        ("1", "1"),
    ]
