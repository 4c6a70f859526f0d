"""Ranges of a stream are read by direct gets: exactly, whatever was deleted from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from logpipeline_spark.errors import Refused
from logpipeline_spark.lines.messages import Message
from logpipeline_spark.source.options import parse
from logpipeline_spark.source.ranges import fetch
from tables.streams import Streams, running_streams

SUBJECT = "logs.p0.node-b"


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Streams]:
    """A server of this test alone."""
    with running_streams(tmp_path) as streams:
        yield streams


def read(streams: Streams, first: int, last: int, chunk: int = 4_000_000) -> list[Message]:
    """Return the messages of a range of LOGS_0."""
    lists = fetch(parse(streams.options()), "LOGS_0", first, last, chunk_bytes_max=chunk)
    return [message for messages in lists for message in messages]


def test_a_range_is_read_exactly(streams: Streams) -> None:
    """From its first message to its last, in many small answers."""
    for number in range(1, 51):
        streams.publish(SUBJECT, b"%d" % number * 100)

    messages = read(streams, 7, 41, chunk=1000)
    assert [m.sequence for m in messages] == list(range(7, 42))
    assert [m.data for m in messages] == [b"%d" % n * 100 for n in range(7, 42)]
    assert {m.subject for m in messages} == {SUBJECT}
    assert [m.time_ns for m in messages] == sorted(m.time_ns for m in messages)


@pytest.mark.parametrize("gone", [[1, 2], [4, 5, 6], [9, 10], [7, 8, 9, 10, 11], range(1, 13)])
def test_deleted_messages_end_no_range(streams: Streams, gone: list[int]) -> None:
    """At its beginning, inside, at its end and beyond it, or all of it; nobody waits for them."""
    for number in range(1, 13):
        streams.publish(SUBJECT, b"%d" % number)
    for sequence in gone:
        streams.call("STREAM.MSG.DELETE.LOGS_0", {"seq": sequence})

    expected = [n for n in range(1, 11) if n not in gone]
    assert [m.sequence for m in read(streams, 1, 10)] == expected
    assert [m.sequence for m in read(streams, 1, 10, chunk=1)] == expected


def test_an_empty_range_asks_nobody(streams: Streams) -> None:
    """A batch may hold nothing of a stream."""
    streams.publish(SUBJECT, b"1")

    assert read(streams, 2, 1) == []


def test_what_a_publisher_writes_cannot_pretend_to_be_the_servers(streams: Streams) -> None:
    """Headers with the names of the server's own are the publisher's, and come back as such."""
    given = {"Nats-Stream": "OTHER", "Nats-Sequence": "77", "Nats-Time-Stamp": "never"}
    streams.publish(SUBJECT, b"x", given)
    streams.publish(SUBJECT, b"y")

    first, second = read(streams, 1, 2)
    assert (first.sequence, second.sequence) == (1, 2)
    assert first.headers == (
        b"NATS/1.0\r\nNats-Stream: OTHER\r\nNats-Sequence: 77\r\nNats-Time-Stamp: never\r\n\r\n"
    )
    assert second.headers == b""


def test_a_message_larger_than_an_answer_comes_alone(streams: Streams) -> None:
    """Otherwise reading would stand still before it."""
    streams.publish(SUBJECT, bytes(900_000))
    streams.publish(SUBJECT, b"small")

    assert [len(m.data) for m in read(streams, 1, 2, chunk=1000)] == [900_000, 5]


def test_a_server_that_restarts_in_between_is_waited_for(streams: Streams) -> None:
    """The rest of the range is asked for again; nothing comes twice."""
    for number in range(20):
        streams.publish(SUBJECT, b"%d" % number * 1000)
    lists = fetch(parse(streams.options()), "LOGS_0", 1, 20, chunk_bytes_max=3000)
    messages = list(next(lists))
    streams.stop()
    streams.start()

    messages += [message for part in lists for message in part]
    assert [m.sequence for m in messages] == list(range(1, 21))


def test_a_server_that_stays_away_is_given_up(streams: Streams) -> None:
    """In one sentence that names it."""
    streams.publish(SUBJECT, bytes(5000))
    streams.publish(SUBJECT, bytes(5000))
    options = parse(streams.options(patienceSeconds="1"))
    lists = fetch(options, "LOGS_0", 1, 2, chunk_bytes_max=3000)
    next(lists)
    streams.stop()

    with pytest.raises(Refused, match=f"{streams.server.url}.*start") as caught:
        next(lists)
    assert "\n" not in str(caught.value)
    with pytest.raises(Refused, match="cannot connect to NATS"):
        next(fetch(options, "LOGS_0", 1, 2))
