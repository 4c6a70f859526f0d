"""What cannot be read is told in one sentence; what only is unusual is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from logpipeline.wire import encode_headers
from logpipeline_spark.errors import Refused
from logpipeline_spark.lines.schema import Origin
from logpipeline_spark.source import planning
from logpipeline_spark.source.client import Client
from logpipeline_spark.source.offsets import read_offsets
from logpipeline_spark.source.options import parse
from logpipeline_spark.source.ranges import fetch
from tables.messages import batch_for, lines_of
from tables.streams import BASE, STREAMS, Streams, running_streams

SUBJECT = "logs.p0.node-b"
ORIGIN = Origin("LOGS_0", "0r0", "logs", 2)


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Streams]:
    """A server of this test alone."""
    with running_streams(tmp_path / "nats") as streams:
        yield streams


def refusal(streams: Streams, **changes: str) -> str:
    """Return why the state of the streams cannot be asked for."""
    options = parse(streams.options(**changes))
    with pytest.raises(Refused) as caught, Client(options) as client:
        planning.states(client, options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_stream_that_is_not_there(streams: Streams) -> None:
    """The options, or the pipeline, are to be looked at."""
    assert refusal(streams, partitions="3").startswith("stream LOGS_2 does not exist at nats://")


def test_a_stream_without_direct_reads(streams: Streams) -> None:
    """A setting of the stream, which the sentence names."""
    streams.create("LOGS_2", allow_direct=False)

    assert "turn on its allow_direct" in refusal(streams, partitions="3")


def test_a_server_without_that_domain(streams: Streams) -> None:
    """Nobody answers there."""
    assert "is it enabled there?" in refusal(streams, jsDomain="moon", patienceSeconds="1")


def test_wrong_credentials(tmp_path: Path) -> None:
    """None, or old ones; with the right ones it is read, and the secret is never shown."""
    with running_streams(tmp_path / "nats", token="right") as streams:
        (tmp_path / "wrong").write_text("wrong")
        (tmp_path / "right").write_text("right")
        for changes in ({}, {"tokenFile": str(tmp_path / "wrong")}):
            said = refusal(streams, patienceSeconds="1", **changes)
            assert "the server asks for credentials" in said
            assert "wrong'" not in said
        options = parse(streams.options(tokenFile=str(tmp_path / "right")))
        with Client(options) as client:
            assert set(planning.states(client, options)) == set(STREAMS)


def test_a_start_behind_the_end_is_refused(streams: Streams) -> None:
    """It would skip what comes until then."""
    options = parse(streams.options())
    place = read_offsets('{"LOGS_0": 7, "LOGS_1": 1}', STREAMS)
    with Client(options) as client:
        seen = planning.states(client, options)
        with pytest.raises(Refused, match=f"stream {BASE}_0 ends at 0, before 7"):
            planning.start(client, options, place, seen)


def test_a_message_as_large_as_a_stream_takes_is_read(tmp_path: Path) -> None:
    """nats-server's files hold 32 MiB at most; our shippers cut far below."""
    size = 31 * 1024 * 1024
    with running_streams(tmp_path / "nats", max_payload_bytes=64 * 1024 * 1024) as streams:
        streams.publish(SUBJECT, b"x" * size)
        streams.publish(SUBJECT, b"next")
        lists = fetch(parse(streams.options()), "LOGS_0", 1, 2)
        tables = [lines_of(messages, ORIGIN) for messages in lists]

    lines = [line for table in tables for line in table["line"].to_pylist()]
    assert [len(line) for line in lines] == [size, 4]


def test_a_line_of_64_megabytes_is_read_in_pieces(streams: Streams) -> None:
    """As shippers send it: every byte is there, and what is a piece says so."""
    size, count = 1_000_000, 64
    for number in range(count):
        data = b"x" * (size - 1) + (b"\n" if number == count - 1 else b"x")
        batch = replace(
            batch_for(data, number * size, format="plain"),
            starts_inside_line=number > 0,
            ends_inside_line=number < count - 1,
        )
        streams.publish(SUBJECT, data, encode_headers(batch, str(number)))
    pieces: list[str] = []
    lengths: list[int] = []
    for messages in fetch(parse(streams.options()), "LOGS_0", 1, count):
        assert sum(len(message.data) for message in messages) < 6 * size
        table = lines_of(messages, ORIGIN)
        pieces += table["piece"].to_pylist()
        lengths += [len(line) for line in table["line"].to_pylist()]

    assert pieces == ["begin", *["middle"] * (count - 2), "end"]
    assert sum(lengths) == count * size - 1
