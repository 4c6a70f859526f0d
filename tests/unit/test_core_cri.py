"""CRI lines: where a message may end, and how fragments become lines again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.cri import CriLine, has_fragments, join, last_cut, time_ns

T = b"2026-11-21T10:00:00.123456789Z"


def lines(*rows: tuple[bytes, bytes, bytes]) -> bytes:
    """Return CRI lines of (stream, tag, text)."""
    return b"".join(b"%s %s %s %s\n" % (T, *row) for row in rows)


RUN = lines((b"stdout", b"P", b"a"), (b"stderr", b"P", b"x"), (b"stdout", b"F", b"b"))
END = lines((b"stderr", b"F", b"y"))
ROWS = st.lists(
    st.tuples(
        st.sampled_from([b"stdout", b"stderr"]),
        st.sampled_from([b"P", b"F", b"P:x", b"F:x", b"Px"]),
        st.sampled_from([b"", b"text", b" stdout P ", b"\r", b"\xff"]),
    ),
    max_size=12,
)


def test_a_message_ends_after_the_last_whole_line() -> None:
    """What comes after the last newline may still grow."""
    whole = lines((b"stdout", b"F", b"a"))

    assert last_cut(whole + T + b" stdout F grow") == len(whole)


def test_a_message_never_ends_inside_a_run_of_either_stream() -> None:
    """stdout's run is closed, stderr's is not."""
    assert last_cut(RUN) == 0
    assert last_cut(RUN + END) == len(RUN + END)
    assert last_cut(END + RUN) == len(END)


@given(ROWS)
def test_any_cut_leaves_no_fragment_open(rows: list[tuple[bytes, bytes, bytes]]) -> None:
    """Before the cut every line is whole, and nothing that could be sent is held back."""
    buffer = lines(*rows)
    cut = last_cut(buffer)

    assert has_fragments(buffer) or all(tag[:1] == b"F" or tag == b"Px" for _, tag, _ in rows)

    assert all(line.whole for line in join(buffer[:cut]))
    later = [i + 1 for i in range(cut, len(buffer)) if buffer[i : i + 1] == b"\n"]
    assert all(any(not line.whole for line in join(buffer[:end])) for end in later)


def test_fragments_of_both_streams_are_joined_in_the_order_of_their_ends() -> None:
    """A joined line has the time of its first fragment."""
    assert list(join(RUN + END)) == [
        CriLine(T, b"stdout", b"ab", True),
        CriLine(T, b"stderr", b"xy", True),
    ]


def test_an_open_run_is_handed_out_as_not_whole() -> None:
    """A line longer than a message is cut into pieces; all its bytes are there."""
    assert list(join(RUN))[-1] == CriLine(T, b"stderr", b"x", False)


@pytest.mark.parametrize("line", [b"not CRI", b"", b"\x00\xff", T + b" stdin F x", T])
def test_a_line_in_no_format_is_handed_on_as_it_is(line: bytes) -> None:
    """A runtime once wrote a corrupt line; nothing may be dropped for it."""
    assert list(join(line + b"\n")) == [CriLine(b"", b"", line, True)]


def test_an_empty_text_is_an_empty_line() -> None:
    """Some runtimes leave out the last space."""
    assert list(join(T + b" stdout F \n" + T + b" stdout F\n")) == [
        CriLine(T, b"stdout", b"", True),
        CriLine(T, b"stdout", b"", True),
    ]


@pytest.mark.parametrize(
    ("stamp", "value"),
    [
        (b"2026-11-21T10:00:00.123456789Z", 1795255200123456789),
        (b"2026-11-21T11:00:00.123456789+01:00", 1795255200123456789),
        (b"2026-11-21T10:00:00Z", 1795255200000000000),
        (b"2026-11-21T10:00:00.5Z", 1795255200500000000),
        (b"yesterday", 0),
        (b"\xff", 0),
        (b"", 0),
    ],
)
def test_the_time_of_a_line_is_read_to_the_nanosecond(stamp: bytes, value: int) -> None:
    """Nothing is raised for a time that is none."""
    assert time_ns(stamp + b" stdout F text") == value
