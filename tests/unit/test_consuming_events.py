"""Programs get a stack trace as one event, also where its lines come in several messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from logpipeline import Batch, EventJoiner, Message
from logpipeline.consuming import events
from logpipeline.multiline import Limits
from logpipeline.nats.pull import Delivered
from logpipeline.nats.session import RawMessage
from logpipeline.subjects import Subjects
from logpipeline.wire import Batch as Headers
from logpipeline.wire import encode_headers

SUBJECTS = Subjects("logs", 10)
SUBJECT = b"logs.p7.node-a"
LOGGED = b"ERROR request failed\n"
TRACE = b"java.io.IOException: no\n\tat a.B.c(B.java:1)\n\tat a.B.d(B.java:2)\n"
WHOLE = b"ERROR request failed\njava.io.IOException: no\n\tat a.B.c(B.java:1)\n\tat a.B.d(B.java:2)"


def message(data: bytes, start: int = 0, source: str = "app.log", **headers: Any) -> Message:
    """A message with *data*, which stands at *start* of *source*."""
    batch = Headers(
        source=source,
        generation="0123456789abcdef",
        start=start,
        end=start + len(data),
        lines=data.count(b"\n"),
        format=headers.pop("format", "plain"),
        **headers,
    )
    fields = encode_headers(batch, "id").items()
    block = b"NATS/1.0\r\n" + b"".join(f"{n}: {v}\r\n".encode() for n, v in fields) + b"\r\n"
    return delivered(RawMessage(SUBJECT, b"", block, data))


def delivered(raw: RawMessage, sequence: int = 17) -> Message:
    """The message as a reader hands it out."""
    return Message(SUBJECTS, "LOGS_7", 7, Delivered(raw, sequence, 1, 10**18, 0))


def texts(joiner: EventJoiner, messages: Iterable[Message]) -> list[tuple[bytes, bool]]:
    """Text of each event of a batch with *messages*, and whether it continues an earlier one."""
    batch = Batch(list(messages), created="", may_repeat=False, tries=0)
    return [(event.text, event.continues) for event in joiner.events(batch)]


def test_trace_is_one_event_with_the_line_that_logged_it() -> None:
    """Of two messages in a batch, with another file's lines between them."""
    first, other = message(LOGGED + TRACE[:24]), message(b"fine\nfine\n", source="other.log")
    rest = message(TRACE[24:] + b"next\n", start=len(LOGGED) + 24)

    found = texts(EventJoiner(), [first, other, rest])

    assert sorted(found) == sorted(
        [(WHOLE, False), (b"fine", False), (b"fine", False), (b"next", False)]
    )


def test_event_goes_on_in_the_next_batch() -> None:
    """A batch is processed as a whole: its rest is an event that says so."""
    joiner = EventJoiner("java")

    assert texts(joiner, [message(LOGGED + TRACE[:24])]) == [
        (b"ERROR request failed\njava.io.IOException: no", False)
    ]
    assert texts(joiner, [message(TRACE[24:], start=len(LOGGED) + 24)]) == [
        (b"\tat a.B.c(B.java:1)\n\tat a.B.d(B.java:2)", True)
    ]


def test_lines_behind_a_gap_continue_nothing() -> None:
    """What stood before them is not known; so it is where a batch is handed out again."""
    joiner = EventJoiner("java")
    batch = message(LOGGED + TRACE)

    assert texts(joiner, [batch]) == [(WHOLE, False)]
    assert texts(joiner, [message(b"\tat a.B.e(B.java:3)\n", start=9_000)]) == [
        (b"\tat a.B.e(B.java:3)", False)
    ]
    assert texts(joiner, [batch]) == [(WHOLE, False)]


def test_streams_of_a_container_are_joined_apart() -> None:
    """What is printed between a trace's lines belongs to another stream, and ends nothing."""
    data = (
        b"2026-11-21T10:00:00.1Z stderr F ERROR request failed\n"
        b"2026-11-21T10:00:00.2Z stdout F served\n"
        b"2026-11-21T10:00:00.3Z stderr F java.io.IOException: no\n"
        b"2026-11-21T10:00:00.4Z stdout F served\n"
        b"2026-11-21T10:00:00.5Z stderr F \tat a.B.c(B.java:1)\n"
    )

    found = texts(EventJoiner(), [message(data, format="cri", source="shop/web/1/app/0")])

    trace = b"ERROR request failed\njava.io.IOException: no\n\tat a.B.c(B.java:1)"
    assert sorted(found) == sorted([(trace, False), (b"served", False), (b"served", False)])


def test_messages_without_our_headers_are_joined_alone() -> None:
    """Nothing says which of them are of one file."""
    frame = delivered(RawMessage(SUBJECT, b"", b"", b"\tat a.B.d(B.java:2)"), 18)
    trace = delivered(RawMessage(SUBJECT, b"", b"", TRACE[:-1]), 17)

    found = texts(EventJoiner(), [trace, frame])

    assert found == [(TRACE[:-1], False), (b"\tat a.B.d(B.java:2)", False)]


def test_own_expression_and_limits() -> None:
    """An event begins at each line that it finds something in, and is of bounded size."""
    joiner = EventJoiner(begin="^> ", limits=Limits(lines=3))
    data = b"> 1\na\n> 2\nb\nc\nd\ne\n"

    assert texts(joiner, [message(data)]) == [
        (b"> 1\na", False),
        (b"> 2\nb\nc", False),
        (b"d\ne", False),
    ]
    with pytest.raises(ValueError, match="has a mistake"):
        EventJoiner(begin="(")
    with pytest.raises(ValueError, match="there is no preset 'cobol'"):
        EventJoiner("cobol")


def test_only_so_many_files_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that wrote longest ago is forgotten: its trace goes on as an event of its own."""
    monkeypatch.setattr(events, "SOURCES_MAX", 2)
    joiner = EventJoiner("java")
    for name in ("one", "two", "three"):
        texts(joiner, [message(LOGGED + TRACE, source=name)])
    frame, start = b"\tat a.B.e(B.java:3)\n", len(LOGGED + TRACE)

    assert texts(joiner, [message(frame, start, source="three")]) == [(frame[:-1], True)]
    assert texts(joiner, [message(frame, start, source="one")]) == [(frame[:-1], False)]
