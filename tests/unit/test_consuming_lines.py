"""A reader of Python gets the lines that programs wrote, whatever form they travelled in."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import zstandard

from logpipeline.consuming.message import Batch, Message, moment_of
from logpipeline.consuming.records import position_text
from logpipeline.nats.pull import Delivered
from logpipeline.nats.session import RawMessage
from logpipeline.records import StreamPosition
from logpipeline.subjects import Subjects
from logpipeline.wire import BadMessage, encode_headers
from logpipeline.wire import Batch as Headers

SUBJECTS = Subjects("logs", 10)
SUBJECT = b"logs.p7.node-a"
STORED_NS = 1_795_255_200_000_000_000
TIME = b"2026-11-21T10:00:00.5Z"


def message(data: bytes, *, format: str = "", **headers: Any) -> Message:
    """A message with *data* in the given *format*; empty: without our headers."""
    block, payload = b"", data
    if format:
        batch = Headers(
            source="shop/web/1/app/0",
            generation="0123456789abcdef",
            start=0,
            end=len(data),
            lines=max(1, data.count(b"\n")),
            format="cri" if format == "cri" else "plain",
            **headers,
        )
        fields = encode_headers(batch, "id").items()
        block = b"NATS/1.0\r\n" + b"".join(f"{n}: {v}\r\n".encode() for n, v in fields) + b"\r\n"
        payload = zstandard.compress(data) if batch.compressed else data
    raw = RawMessage(SUBJECT, b"", block, payload)
    return Message(SUBJECTS, "LOGS_7", 7, Delivered(raw, 17, 1, STORED_NS, 0))


def texts(found: Message) -> list[bytes]:
    """The lines' texts."""
    return [line.text for line in found.lines]


@pytest.mark.parametrize("compressed", [True, False])
def test_lines_of_a_plain_file(compressed: bool) -> None:
    """Byte for byte, empty ones too, with the server's time."""
    found = message(b"one\n\n\xff two\r\n", format="plain", compressed=compressed)

    assert texts(found) == [b"one", b"", b"\xff two\r"]
    assert {(line.time_ns, line.stream, line.is_whole) for line in found.lines} == {
        (STORED_NS, "", True)
    }
    assert found.host == "node-a"


def test_lines_of_a_container() -> None:
    """Each with the runtime's time and stream; fragments of one line are one line."""
    data = (
        TIME + b" stdout P begin \n"
        + TIME + b" stderr F beside\n"
        + TIME + b" stdout F end\n"
    )  # fmt: skip
    lines = message(data, format="cri").lines

    assert [(line.stream, line.text) for line in lines] == [
        ("stderr", b"beside"),
        ("stdout", b"begin end"),
    ]
    assert {line.time_ns for line in lines} == {STORED_NS + 500_000_000}
    assert all(line.is_whole for line in lines)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"one", [b"one"]),
        (b"one\ntwo", [b"one", b"two"]),
        (b"", [b""]),
        (b"one\n", [b"one", b""]),
    ],
)
def test_lines_without_headers(data: bytes, lines: list[bytes]) -> None:
    """As fshipper sends them, and as collectors write them: the last one lacks its newline, and a
    message of nothing is an empty line.
    """
    found = message(data)

    assert texts(found) == lines
    assert all(line.is_whole for line in found.lines)


@pytest.mark.parametrize(
    ("starts", "ends", "data", "whole"),
    [
        (False, True, b"one\nbegin", [True, False]),
        (True, True, b"middle", [False]),
        (True, False, b"end\ntwo\n", [False, True]),
        (False, False, b"one\ntwo", [True, True]),
    ],
)
def test_a_piece_of_a_line_is_no_whole_line(
    starts: bool, ends: bool, data: bytes, whole: list[bool]
) -> None:
    """Where a line was too long for one message; a file's last line needs no newline."""
    found = message(data, format="plain", starts_inside_line=starts, ends_inside_line=ends)

    assert [line.is_whole for line in found.lines] == whole


def test_a_line_of_a_container_knows_its_pod_and_both_times() -> None:
    """Of headers, or of the name of the log; when it was written, and when it was stored."""
    (line,) = message(TIME + b" stdout F one\n", format="cri").lines
    assert (line.namespace, line.pod, line.container) == ("shop", "web", "app")
    assert (line.host, line.source) == ("node-a", "shop/web/1/app/0")
    assert line.time == datetime(2026, 11, 21, 10, 0, 0, 500_000, UTC)
    assert line.time_stored == datetime(2026, 11, 21, 10, 0, 0, 0, UTC)

    (line,) = message(TIME + b" stdout F one\n", format="cri", namespace="n", pod="p").lines
    assert (line.namespace, line.pod) == ("n", "p")


@pytest.mark.parametrize(
    ("data", "format"), [(b"one\n", "plain"), (b"no time stdout F one\n", "cri"), (b"one", "")]
)
def test_a_line_without_a_time_of_its_own_has_none(data: bytes, format: str) -> None:
    """When it was stored is another thing, and is not taken for it."""
    (line,) = message(data, format=format).lines

    assert line.time is None
    assert line.time_ns == STORED_NS
    assert line.time_stored == datetime(2026, 11, 21, 10, 0, 0, 0, UTC)


def test_a_time_is_exact_to_the_microsecond() -> None:
    """A float of seconds would not be."""
    assert moment_of(STORED_NS + 123_456_789).microsecond == 123_456


def test_a_line_knows_its_message() -> None:
    """And so its host and source."""
    found = message(b"one\n", format="plain")

    assert found.lines[0].message is found
    assert found.read.batch is not None
    assert found.read.batch.source == "shop/web/1/app/0"


def test_a_message_that_cannot_be_decoded_is_named() -> None:
    """What is no zstd, and what is of another partition."""
    broken = message(b"one\n", format="plain", compressed=True)
    broken.payload = b"one\n"
    with pytest.raises(BadMessage):
        _ = broken.lines
    moved = Message(SUBJECTS, "LOGS_6", 6, broken.delivered)
    with pytest.raises(BadMessage, match="partition 7 in the stream of 6"):
        _ = moved.host


def test_a_batch_is_named_by_what_it_holds() -> None:
    """Whoever processes it again, finds the same name; its position is behind it."""
    found = message(b"one\n")
    batch = Batch([found], created="2026-11-21T10:00:00Z", may_repeat=False, tries=0)

    assert batch.id == "LOGS_7-17-17"
    assert batch.position == position_text(StreamPosition("2026-11-21T10:00:00Z", 17, STORED_NS))


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (b'{"level": "error", "n": 1}', {"level": "error", "n": 1}),
        (b' {"a": [null]} ', {"a": [None]}),
        (b'{"a": 1', None),
        (b"[1]", None),
        (b'"text"', None),
        (b"plain", None),
        (b'{"a": NaN}', None),
        (b'{"a": "\xff"}', None),
        (b"", None),
        (b'{"a":' * 100_000, None),
    ],
)
def test_a_line_that_is_an_object_has_fields(text: bytes, fields: dict[str, Any] | None) -> None:
    """Whatever else it is, it has none."""
    (line,) = message(text + b"\n", format="plain").lines

    assert line.fields == fields
