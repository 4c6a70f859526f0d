"""What a stream holds, read once as a table by a real Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException

from logpipeline_spark.errors import sentence_of
from tables.local_spark import read
from tables.streams import Streams, running_streams


@pytest.fixture
def streams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Streams]:
    """A server of this test alone."""
    with running_streams(tmp_path_factory.mktemp("nats")) as streams:
        yield streams


@pytest.mark.spark43
def test_lines_of_all_streams_are_one_table(streams: Streams) -> None:
    """Found without registration; each line once, with its place, and nothing deleted."""
    streams.send("node-b", "INFO one", "two")
    streams.send("node-a", "ERROR three")
    gone = streams.send("node-b", "gone")
    streams.send("node-b", "four")
    streams.call("STREAM.MSG.DELETE.LOGS_0", {"seq": gone})
    streams.publish("logs.p1.node-a", b"foreign\nlines")

    rows = read(streams.options()).orderBy("stream", "seq", "idx").collect()
    assert [(r.stream, r.seq, r.idx, r.host, r.level, r.line, r.offset) for r in rows] == [
        ("LOGS_0", 1, 0, "node-b", "info", "INFO one", 0),
        ("LOGS_0", 1, 1, "node-b", None, "two", 9),
        ("LOGS_0", 3, 0, "node-b", None, "four", 18),
        ("LOGS_1", 1, 0, "node-a", "error", "ERROR three", 0),
        ("LOGS_1", 2, 0, "node-a", None, "foreign", None),
        ("LOGS_1", 2, 1, "node-a", None, "lines", None),
    ]


def test_messages_come_as_they_are(streams: Streams) -> None:
    """With their headers, where they are asked for."""
    streams.publish("logs.p0.node-b", b"\x00\xff", {"A": "1", "B": "2"})
    options = streams.options(format="messages", includeHeaders="true")

    (row,) = read(options).collect()
    assert (row.subject, bytes(row.value), row.headers) == (
        "logs.p0.node-b",
        b"\x00\xff",
        {"A": "1", "B": "2"},
    )


def test_headers_stand_beside_lines_where_they_are_asked_for(streams: Streams) -> None:
    """Labels of pods are among them."""
    streams.send("node-b", "one", "two", labels=(("app", "web"),))

    rows = read(streams.options(includeHeaders="true")).collect()
    assert [row.headers["Log-Label-app"] for row in rows] == ["web", "web"]


def test_a_table_begins_and_ends_where_the_options_say(streams: Streams) -> None:
    """By sequence, both ends included, and by time."""
    for number in range(1, 7):
        streams.publish("logs.p0.node-b", b"%d" % number)
    offsets = {
        "startingOffsets": '{"LOGS_0": 2, "LOGS_1": -2}',
        "endingOffsets": '{"LOGS_0": 4, "LOGS_1": -1}',
    }
    messages = streams.options(format="messages")
    ts = {row.seq: row.ts.astimezone(UTC) for row in read(messages).collect()}

    assert [row.line for row in read(streams.options(**offsets)).collect()] == ["2", "3", "4"]
    times = {"startingTimestamp": iso(ts[3]), "endingTimestamp": iso(ts[5])}
    assert [row.line for row in read(streams.options(**times)).collect()] == ["3", "4"]


def iso(moment: datetime) -> str:
    """Return *moment* as a user writes it."""
    return moment.isoformat()


def test_tasks_share_the_streams(streams: Streams) -> None:
    """At least as many as are asked for, and together all of it."""
    for number in range(20):
        streams.publish("logs.p0.node-b", b"%d" % number)
    frame = read(streams.options(minPartitions="5"))

    assert frame.rdd.getNumPartitions() == 5
    assert frame.count() == 20


def test_empty_streams_are_an_empty_table(streams: Streams) -> None:
    """Also where all that was there is gone."""
    assert read(streams.options()).count() == 0
    streams.publish("logs.p0.node-b", b"x")
    streams.call("STREAM.PURGE.LOGS_0")
    assert read(streams.options()).count() == 0


@pytest.mark.spark43
def test_a_mistake_is_one_sentence(streams: Streams) -> None:
    """Whatever trace Spark makes of it."""
    with pytest.raises(PySparkException) as caught:
        read({"servers": streams.server.url, "strem": "LOGS"}).count()
    assert sentence_of(caught.value).startswith("jetstream: option 'strem' is not known: did you ")
    assert "option 'stream' is missing" in sentence_of(caught.value)

    with pytest.raises(PySparkException) as caught:
        read(streams.options(subject="lp.default.prod")).count()
    assert sentence_of(caught.value).startswith("stream LOGS_0 stores logs.p0.>, and no subject")

    with pytest.raises(PySparkException) as caught:
        read(streams.options(partitions="3")).count()
    assert sentence_of(caught.value).startswith("stream LOGS_2 does not exist")

    streams.stop()
    with pytest.raises(PySparkException) as caught:
        read(streams.options(patienceSeconds="1")).count()
    assert sentence_of(caught.value).startswith("cannot connect to NATS at nats://127.0.0.1")
