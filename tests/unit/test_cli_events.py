"""Commands show or leave out a stack trace as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pytest

from logpipeline.multiline import chosen
from logpipeline.nats.jetstream import StoredMessage
from logpipeline.subjects import Subjects
from logpipeline.wire import Batch, encode_headers
from logpipeline_cli import events
from logpipeline_cli.errors import EXIT_USAGE
from logpipeline_cli.events import FollowedEvents, matching
from logpipeline_cli.following import Filter, Line
from logpipeline_cli.main import main

LOGGED = "ERROR request failed"
TRACE = ["java.io.IOException: no route", "\tat a.B.c(B.java:1)", "\tat a.B.d(B.java:2)"]
JAVA = chosen(["java"])


def line(text: str, source: str = "app.log", stream: str = "") -> Line:
    """A line of web1."""
    return Line("web1", "", text.encode(), source, generation="1", stream=stream)


def added(joined: FollowedEvents, lines: Iterable[Line]) -> list[list[str]]:
    """The texts of the events that *lines* end."""
    return texts(event for each in lines for event in joined.add(each))


def texts(found: Iterable[Sequence[Line]]) -> list[list[str]]:
    """The texts of events."""
    return [[each.text.decode() for each in event] for event in found]


def file(*lines: str) -> bytes:
    """A file with *lines*."""
    return "".join(f"{each}\n" for each in lines).encode()


def test_followed_event_ends_with_the_next_one() -> None:
    """Lines of other files between its own do not end it."""
    joined = FollowedEvents(JAVA)

    assert added(joined, [line(LOGGED), line("fine", "other.log"), *map(line, TRACE)]) == []
    assert added(joined, [line("next")]) == [[LOGGED, *TRACE]]


def test_followed_event_is_shown_once_it_no_longer_grows() -> None:
    """At the second look: lines that came with the first may go on in the one after it."""
    joined = FollowedEvents(JAVA)
    added(joined, [line(LOGGED), line(TRACE[0])])

    assert texts(joined.looked()) == []
    assert added(joined, [line(TRACE[1])]) == []
    assert texts(joined.looked()) == []
    assert texts(joined.looked()) == [[LOGGED, *TRACE[:2]]]
    # What comes even later continues nothing that could still be shown with it.
    assert added(joined, [line(TRACE[2])]) == []
    assert texts([*joined.looked(), *joined.looked()]) == [[TRACE[2]]]


def test_followed_streams_of_a_container_are_joined_apart() -> None:
    """So are generations of a file."""
    joined = FollowedEvents(JAVA)

    assert added(joined, [line(LOGGED, stream="stderr"), line(TRACE[1], stream="stdout")]) == []
    assert texts([*joined.looked(), *joined.looked()]) == [[LOGGED], [TRACE[1]]]


@pytest.mark.parametrize(
    "given",
    [
        Line("web1", "", b"a line of another client"),
        Line("web1", "", b"[message 3 cannot be read]", is_damaged=True),
    ],
)
def test_followed_line_without_a_file_is_shown_at_once(given: Line) -> None:
    """Nothing says what it continues."""
    assert list(FollowedEvents(JAVA).add(given)) == [[given]]


def test_followed_line_is_an_event_without_rules() -> None:
    """It is shown at once."""
    assert added(FollowedEvents(()), [line(TRACE[1])]) == [[TRACE[1]]]


def test_only_so_many_files_are_followed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event of the one that wrote longest ago ends."""
    monkeypatch.setattr(events, "SOURCES_MAX", 2)
    joined = FollowedEvents(JAVA)

    assert added(joined, [line(LOGGED, str(number)) for number in range(3)]) == [[LOGGED]]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_matching_events_of_a_file_are_left_whole(size: int) -> None:
    """Byte for byte, however the file is read."""
    data = file("fine", LOGGED, *TRACE, "fine, too", LOGGED, "nothing")[:-1]
    chunks = [data[at : at + size] for at in range(0, len(data), size)]

    assert b"".join(matching(chunks, re.compile(b"IOException"), JAVA)) == file(LOGGED, *TRACE)
    assert b"".join(matching(chunks, re.compile(b"IOException"), ())) == file(TRACE[0])
    assert b"".join(matching(chunks, re.compile(b"^nothing$"), ())) == b"nothing"
    assert b"".join(matching(chunks, re.compile(b""), JAVA)) == data


@pytest.mark.parametrize(
    ("form", "tab"),
    [
        ("{}", "\t"),
        ("2026-11-21T10:00:00.5Z stderr F {}", "\t"),
        ('{{"time":"2026-11-21T10:00:00.5Z","stream":"","host":"web1","message":"{}"}}', "\\t"),
    ],
)
def test_text_is_looked_at_in_each_output_format(form: str, tab: str) -> None:
    """What the collectors put around a line is no part of it."""
    texts = ("fine", LOGGED, *TRACE, "next")
    lines = [form.format(each.replace("\t", tab)) for each in texts]

    assert list(matching([file(*lines)], re.compile(b"no route"), JAVA)) == [file(*lines[1:5])]


def test_line_that_is_too_long_is_searched_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """It need not fit into memory."""
    monkeypatch.setattr(events, "LINE_BYTES_MAX", 10)

    assert list(matching([b"x" * 8, b"y" * 8, b"z\n"], re.compile(b"z"), ())) == [b"z\n"]


def test_empty_line_is_found_by_its_ends() -> None:
    """And nothing else is."""
    assert list(matching([b"a\n\nb\n"], re.compile(b"^$", re.MULTILINE), ())) == [b"\n"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["tail", "--multiline-begin", "("], "argument --multiline-begin: '(': missing )"),
        (["files", "cat", "web1", "--grep", "["], "argument --grep: '[': "),
        (["consume", "a", "--multiline", "java"], "give -o json as well"),
        (["tail", "--multiline", "jav"], "did you mean 'java'?"),
    ],
)
def test_wrong_expression_is_told(
    words: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before a server is looked for."""
    try:
        code = main(words)
    except SystemExit as exit:
        code = int(str(exit.code))

    assert code == EXIT_USAGE
    assert what in capsys.readouterr().err


def test_headers_of_a_stranger_end_nothing() -> None:
    """A pod's batch need not name its source as shippers do."""
    headers = Batch(
        source="/other", generation="f" * 16, start=0, end=2, lines=1, format="cri", pod="web-0"
    )
    fields = encode_headers(headers, "id").items()
    block = b"NATS/1.0\r\n" + b"".join(f"{n}: {v}\r\n".encode() for n, v in fields) + b"\r\n"
    message = StoredMessage("logs.p0.web1", 1, 0, block, b"x\n")

    (found,) = Filter().lines_of(message, Subjects("logs", 1))

    assert (found.label, found.text) == ("/web-0/", b"x")
