"""What a syslog message is, and where it ends: the RFCs' own examples, and any bytes at all."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline_cli.receiving.framing import LF, NUL, Framed, Framer
from logpipeline_cli.receiving.syslog import Message, json_line, parse, raw_line

WITHOUT_DATA = (
    b"<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - "
    b"\xef\xbb\xbf'su root' failed for lonvick on /dev/pts/8"
)
WITH_DATA = (
    b"<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 "
    b'[exampleSDID@32473 iut="3" eventSource="Application" eventID="1011"]'
    b'[examplePriority@32473 class="high"]'
)
OLD = b"<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick on /dev/pts/8"


def test_an_example_of_rfc_5424_without_structured_data() -> None:
    """Section 6.5, example 1: the byte order mark is no part of the text."""
    assert parse(WITHOUT_DATA) == Message(
        form="rfc5424", priority=34, time="2003-10-11T22:14:15.003Z",
        host="mymachine.example.com", app="su", message_id="ID47",
        text="'su root' failed for lonvick on /dev/pts/8",
    )  # fmt: skip


def test_an_example_of_rfc_5424_with_structured_data_only() -> None:
    """Section 6.5, example 4."""
    message = parse(WITH_DATA)

    assert (message.facility, message.severity, message.text) == ("local4", "notice", "")
    assert message.data == {
        "exampleSDID@32473": {"iut": "3", "eventSource": "Application", "eventID": "1011"},
        "examplePriority@32473": {"class": "high"},
    }


def test_escapes_and_repeated_parameters_of_structured_data() -> None:
    """RFC 5424 escapes three characters, and lets a parameter be repeated (6.3.3)."""
    message = parse(rb'<13>1 - - - - - [o@1 ip="a" ip="b\"\]\\" x="c\d"] text')

    assert message.data == {"o@1": {"ip": ["a", 'b"]\\'], "x": r"c\d"}}
    assert message.text == "text"


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (OLD, ("rfc3164", "mymachine", "su", "", "'su root' failed for lonvick on /dev/pts/8")),
        (b"<13>Feb  5 17:32:18 10.0.0.99 Use it!", ("rfc3164", "10.0.0.99", "", "", "Use it!")),
        (b"<13>Oct 11 22:14:15 cron[17]: a", ("rfc3164", "", "cron", "17", "a")),
        (b"<13>Oct 11 22:14:15 h cron[17]: a", ("rfc3164", "h", "cron", "17", "a")),
        (b"<14>2026-11-26T01:00:00.5+01:00 h app: a", ("rfc3164", "h", "app", "", "a")),
        (b"<14>my text", ("other", "", "", "", "my text")),
        (b"<192>1 a", ("other", "", "", "", "<192>1 a")),
        (b"no priority", ("other", "", "", "", "no priority")),
        (b"", ("other", "", "", "", "")),
    ],
)  # fmt: skip
def test_what_rfc_3164_describes_and_what_has_no_form(raw: bytes, wanted: tuple[str, ...]) -> None:
    """Its examples, tags with process ids, and texts that are kept as a whole."""
    found = parse(raw)

    assert (found.form, found.host, found.app, found.process, found.text) == wanted


@given(st.one_of(st.binary(max_size=200), st.binary(max_size=60).map(WITH_DATA.__add__)))
def test_any_bytes_are_one_line(raw: bytes) -> None:
    """Nothing is refused, and nothing that a sender writes begins a line of its own."""
    message = parse(raw)
    line = json_line(message, received="t", sender="s", cut_bytes=0)

    assert line.count(b"\n") == raw_line(raw, 0).count(b"\n") == 1
    assert b"\0" not in raw_line(raw, 0) + line
    assert json.loads(line).get("message", "") == message.text


MESSAGES = st.lists(st.binary(max_size=30).map(b"<1>".__add__), max_size=8)


def counted(messages: list[bytes]) -> bytes:
    """Return *messages* with their counts before them."""
    return b"".join(b"%d %b" % (len(each), each) for each in messages)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """Return *data* in pieces."""
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


def framed(data: bytes, cuts: list[int], **options: int | bytes) -> list[Framed]:
    """Return the messages in *data*, which arrives in pieces."""
    framer = Framer(**options)  # type: ignore[arg-type]  # they are of several types
    found = [each for piece in pieces(data, cuts) for each in framer.feed(piece)]
    return found + framer.end()


@given(MESSAGES, st.lists(st.integers(0, 500), max_size=5))
def test_counted_messages_are_neither_merged_nor_cut(
    messages: list[bytes], cuts: list[int]
) -> None:
    """Whatever is in them, and however the bytes arrive."""
    assert framed(counted(messages), cuts) == [Framed(each) for each in messages]


@given(MESSAGES, st.lists(st.integers(0, 500), max_size=5), st.sampled_from([LF, NUL]))
def test_delimited_messages_are_neither_merged_nor_cut(
    messages: list[bytes], cuts: list[int], delimiter: bytes
) -> None:
    """The last one may lack its delimiter; frames of both kinds may follow one another."""
    clean = [each.replace(delimiter, b"").rstrip(b"\r") for each in messages]
    stream = delimiter.join([*clean, b""]) + counted(messages) + delimiter.join(clean)

    wanted = [Framed(each) for each in [*clean, *messages, *clean]]
    assert framed(stream, cuts, delimiter=delimiter) == wanted


@given(st.binary(max_size=300), st.lists(st.integers(0, 500), max_size=5))
def test_any_bytes_are_framed_within_bounds(data: bytes, cuts: list[int]) -> None:
    """However it arrives, a stream gives the same messages, none longer than the limit."""
    found = framed(data, cuts, bytes_max=16)

    assert found == framed(data, [], bytes_max=16)
    assert all(len(each.data) <= 16 for each in found)


def test_a_long_message_is_cut_and_the_next_one_is_whole() -> None:
    """In both framings; the number of missing bytes is known."""
    long, short = b"<1>" + b"x" * 50, b"<1>short"
    for stream in (counted([long, short]), b"\n".join([long, short, b""])):
        assert framed(stream, [7, 20], bytes_max=20) == [
            Framed(long[:20], cut_bytes=33),
            Framed(short),
        ]


def test_a_count_that_the_connection_does_not_keep_is_told() -> None:
    """What came is kept, and marked; a line that begins with a number is no count."""
    assert framed(b"20 <1>half", []) == [Framed(b"<1>half", is_whole=False)]
    assert framed(b"2026 was good\n12", []) == [Framed(b"2026 was good"), Framed(b"12")]
