"""A reader of `consume` finds the same event time in a line as a table does, row by row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import cycle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.consuming import message as consuming
from logpipeline.event_times import EventTimes
from logpipeline.nats.pull import Delivered
from logpipeline.nats.session import RawMessage
from logpipeline.spec.table import FieldType, LineField, LineSelector, ParseRule, TimeRule
from logpipeline.subjects import Subjects
from logpipeline_spark.lines.arrow import tables_of
from logpipeline_spark.lines.messages import Message, groups
from logpipeline_spark.lines.schema import Columns
from tables.messages import ORIGIN, foreign, message

SUBJECTS = Subjects(ORIGIN.root, ORIGIN.partitions)
START = datetime(1970, 1, 1, tzinfo=UTC)
T = b"2027-01-15T08:00:00.5Z"
# Servers' times at which a time without a year is hard: beside new year, in and after leap years.
MOMENTS = (
    "2027-01-15T08:00:00.123456789",
    "2026-12-31T23:59:59.999999999",
    "2027-01-01T00:00:01",
    "2024-02-29T12:00:00",
    "2023-03-01T00:00:00",
    "2025-07-01T00:00:00",
    "1970-01-01T00:00:00",
    # In both passes of an hour that comes twice, and beside the one that does not come.
    "2026-10-25T00:30:05",
    "2026-10-25T01:30:05",
    "2026-03-29T01:00:00",
)
TIMES = [
    # Dates that exist, do not, or only in leap years; seconds that do not.
    *(f"{day}T{clock}" for day in ("2026-11-21", "2024-02-29", "2023-02-29", "2026-00-10",
      "2026-13-01", "1989-12-31", "1990-01-01", "0000-01-01", "9999-12-31", "2027-01-17")
      for clock in ("10:00:00Z", "23:59:60.5Z", "24:00:00Z", "10:00:61Z", "10:60:00")),
    # Zones, and how they are written.
    *(f"2026-11-21 10:00:00{zone}" for zone in ("", " +0100", "+01", "-01:30", "+23:59", "+24:00",
      "+00:60", "z", " Z", "+1", "-", "+99:99", "\u00e9", "\ufffd", "+0100x", "+010", "7")),
    *(f"2026-11-21T10:00:00{fraction}Z" for fraction in (".1", ",123456", ".123456789", ".",
      ".1234567890", ".9999999")),
    "0001-01-01T00:00:00+23:59", "12026-11-21T10:00:00Z", "x2026-11-21T10:00:00",
    # Without a year.
    "Oct 11 22:14:15 h", "<34>Dec 31 23:59:59 h", "Jan  1 00:00:01 h", "Feb 29 12:00:00.5 h",
    "Feb 30 12:00:00 h", "Mar  1 00:00:00,25 h", "Jun 30 23:59:60 h", "dec 31 23:59:59",
    "I1231 23:59:59.999999 1 x", "W0101 00:00:00 1 x", "E0229 12:00:00.5 1 x", "F1345 00:00:00 x",
    "<34>1 2026-10-11T22:14:15.003Z h", "<999>99 2026-10-11T22:14:15+02:00 h",
    '10.0.0.1 - - [23/Nov/2026:10:00:00 +0100] "GET /"', "[31/Feb/2026:10:00:00]",
    "[01/Jan/2026:00:00:00 -9999]",
    # Two of them: the first of the most particular form.
    "Oct 11 22:14:15 2026-11-21T10:00:00Z", "2099-01-01T00:00:00Z [23/Nov/2026:10:00:00]",
    "1795255200 2026-11-21T10:00:00Z",
    # Numbers of each unit, between two of them, and huge ones.
    "1795255200", "1795255200.5", "1795255200.1234567891", "1795255200123", "1795255200123456",
    "1795255200123456789", "99999999999", "100000000000", "100000000001", "99999999999999999999",
    "9" * 19, "9" * 400, "000000001795255200", "1795255200x", "1795255200.", "-1795255200", "1e9",
    "631152000", "631151999",
    # What strptime's patterns below are for.
    "23.11.26 11:59 PM", "23.11.68 0:59 am", "23.11.69 12:00 pm", "29.2.25 13:00 PM",
    "2026/366 10:00", "2024/366 10:00", "2026/0 10:00", "7 March 2026 03:04:05.25 -0330",
    "29 February 2026 03:04:05 +0000", "28 Feb 2026 03:04:05 +0000", "at% 29 Feb 03:04:05",
    "2026-03-29 02:30:00", "2026-10-25 02:30:00",
    # Near the end of what is looked at.
    *("x" * count + " 2026-11-21T10:00:00.123456Z" for count in (228, 229, 235, 236, 237, 255)),
    "\u00e9" * 118 + " 2026-11-21T10:00:00", "\u20ac" * 78 + "2026-11-21T10:00:00\u20ac\u20ac",
    "", " ", "\0", "nothing", "\ufeff2026-11-21T10:00:00Z",
    "\u0662\u0660\u0662\u0666-11-21T10:00:00",
]  # fmt: skip
BYTES = [
    *(text.encode() for text in TIMES),
    b"\xff2026-11-21T10:00:00Z", b"2026-11-21T10:00:00\xff", b"2026-11-21T10:00:00.5\xe2\x82",
    b"\xff" * 80 + b"2026-11-21T10:00:00Z", b"\xff" * 79 + b"2026-11-21T10:00:00Z",
    b"\xe2\x82" * 78 + b"2026-11-21T10:00:00Z", b"\xf0\x9f\x98" * 86 + b"2026", b"\xed\xa0\x80",
    bytes(range(11, 256)), b"2026-11-21T10:00:00Z\r",
]  # fmt: skip
VALUES = [
    '"2026-11-21T10:00:00Z"', "1795255200123", "1795255200.25", "1795255200123456789", "1e999",
    "18446744073709551615", "-9223372036854775809", "9" * 30, "true", "null", "[1795255200]",
    '{"c":"2026-11-21T10:00:00Z"}', '"1795255200"', '"+1795255200"', '"1_795_255_200"', '"nan"',
    '"1e400"', '"\\ud800"', '"\\u0032026-11-21T10:00:00Z"', '"\u20ac' + "x" * 250 + '"', "NaN",
    '"' + "x" * 300 + '2026-11-21T10:00:00Z"', "1.795255200e9", "-0", '"Dec 31 23:59:59"', '""',
    "[" * 250 + "1" + "]" * 250, "[" * 252 + "1" + "]" * 252, "[" * 2000 + "]" * 2000, "0" * 9, "{",
]  # fmt: skip
OBJECTS = [
    *('{"t":' + value + "}" for value in VALUES),
    *('{"a":{"t":' + value + "}}" for value in VALUES),
    '{"a.t":1795255200,"a":{"t":7}}', '{"t":1,"t":1795255200}', '[{"t":1795255200}]', "{}",
    ' {"t":1795255200}', '\n{"t":1795255200}', '{"t":1795255200} x', '{"t":"\0"}',
    "t=1795255200 x=1", 't="2026-11-21 10:00:00" x', "word t=1795255200", 't="\\u0031795255200"',
    't="\\ud800" x=1', 'x=1 t="1795255200"y', "t=1795255200\u00a0x=1", "a.t=1795255200", "t=true",
    "at 1795255200 said", "at  said", "at 2026-11-21T10:00:00Z said",
]  # fmt: skip
PATTERNS = ("%d.%m.%y %I:%M %p", "%Y/%j %H:%M", "%d %B %Y %T.%f %z", "%d %B %Y %H:%M:%S %z",
            "%b %e %H", "%Y-%m-%d %H:%M:%S", "at%% %d %b %T")  # fmt: skip
FORMATS = ("auto", "iso8601", "rfc3164", "rfc5424", "klog", "common", "epochS", "epochMs",
           "epochUs", "epochNs")  # fmt: skip
FIELDS: tuple[FieldType, ...] = ("string", "int", "float", "bool", "timestamp")


def near(moment: str) -> int:
    """The nanoseconds since 1970 of *moment*."""
    whole, _, fraction = moment.partition(".")
    seconds = datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp()
    return int(seconds) * 10**9 + int(fraction.ljust(9, "0"))


def in_table(messages: Sequence[Message], columns: Columns) -> list[int | None]:
    """The microseconds of `event_ts`, row by row."""
    tables = [table for group in groups(messages, ORIGIN)
              for table in tables_of(group, ORIGIN, columns)]  # fmt: skip
    return [each for table in tables for each in table["event_ts"].cast(pa.int64()).to_pylist()]


def in_reader(messages: Sequence[Message], columns: Columns) -> list[int | None]:
    """The microseconds of `Line.event_time`, line by line."""
    times = EventTimes(rules=columns.times, parse=columns.rules, zone=columns.zone)
    return [
        None if line.event_time is None else (line.event_time - START) // timedelta(microseconds=1)
        for each in messages
        for line in read(each, times).lines
    ]


def read(given: Message, times: EventTimes) -> consuming.Message:
    """The message as a reader of `consume` hands it out."""
    raw = RawMessage(given.subject.encode(), b"", given.headers, given.data)
    delivered = Delivered(raw, given.sequence, 1, given.time_ns, 0)
    return consuming.Message(SUBJECTS, ORIGIN.stream, 6, delivered, times)


def messages_of(lines: Sequence[bytes], **headers: Any) -> Iterator[Message]:
    """Messages of a container and of another program, and one of a plain file at each moment."""
    lines = [line for line in lines if b"\n" not in line]
    cri = b"".join(T + b" stdout F " + line + b"\n" for line in lines)
    plain = b"".join(line + b"\n" for line in lines)
    yield message(cri, 1, **headers)._replace(time_ns=near(MOMENTS[0]))
    yield foreign(plain[:-1], 2)._replace(time_ns=near(MOMENTS[0]))
    for number, moment in enumerate(MOMENTS, 3):
        yield message(plain, number, format="plain", **headers)._replace(time_ns=near(moment))


def same(messages: Sequence[Message], columns: Columns) -> list[int | None]:
    """Check that both find the same, and return it."""
    found = in_reader(messages, columns)
    wanted = in_table(messages, columns)
    assert len(found) == len(wanted)
    lines = [line.text for each in messages for line in read(each, EventTimes()).lines]
    assert [each for each in zip(lines, found, wanted, strict=True) if each[1] != each[2]] == []
    return found


@pytest.mark.parametrize(
    ("format", "zone"), [*zip([*FORMATS, *PATTERNS], cycle(["UTC", "Europe/Berlin", "-03:30"]))]
)
def test_line_has_the_event_time_that_a_table_has(format: str, zone: str) -> None:
    """Of each form, in lines that were stored in several years."""
    rule = TimeRule(pattern=format) if "%" in format else TimeRule(format=format)  # type: ignore[arg-type]

    found = same([*messages_of(BYTES)], Columns(times=(rule,), zone=zone))

    assert len(set(found)) > 2


def test_later_rules_are_for_lines_in_which_earlier_ones_find_nothing() -> None:
    """A container's line in which none finds a time has the runtime's."""
    times = (TimeRule(format="common"), TimeRule(pattern=PATTERNS[0]), TimeRule(format="klog"))

    found = same([*messages_of(BYTES)], Columns(times=times))

    assert len(set(found)) > 6


@pytest.mark.parametrize(
    "stamp",
    [
        T, b"2027-01-15T08:00:00Z", b"1969-12-31T23:59:59.9999999Z", b"1970-01-01T00:00:00.0Z",
        b"1970-01-01T00:00:00.0000009Z", b"9999-12-31T23:59:59.5-01:00", b"x",
        b"0001-01-01T00:00:00.5+01:00", b"9999-12-31T23:59:59.999999999Z",
        b"0001-01-01T00:00:00.0Z",
        b"2026-02-30T00:00:00.0Z", b"2027-01-15T08:00:60.0Z",
        b"2027-01-15T09:00:00.123456789+01:00",
    ],
)  # fmt: skip
@pytest.mark.parametrize("times", [(), (TimeRule(),)])
def test_runtimes_time_stands_where_a_line_names_none(
    stamp: bytes, times: tuple[TimeRule, ...]
) -> None:
    """Also an odd one, which may be no time."""
    lines = b"".join(
        stamp + b" stdout F " + text + b"\n" for text in (b"x", b"2026-11-21 10:00:00")
    )

    same([message(lines)], Columns(times=times))


@pytest.mark.parametrize("kind", FIELDS)
@pytest.mark.parametrize("format", ["json", "logfmt", "regex"])
def test_field_has_the_time_that_a_table_finds_in_it(format: Any, kind: FieldType) -> None:
    """Of each type, in what is of the rule's format, and in what is not."""
    at = LineField(name="at", from_="t", type=kind)
    inner = LineField(name="inner", from_="t" if format == "regex" else "a.t", type=kind)
    pattern = "at (?P<t>.*) said|(?P<x>[{])" if format == "regex" else None
    rule = ParseRule(format=format, pattern=pattern, fields=(LineField(name="x"), at, inner))
    texts = [each.encode() for each in [*OBJECTS, *TIMES[:20]]]
    times = (TimeRule(field="at", format="epochMs"), TimeRule(field="inner"))

    same([*messages_of(texts)][:3], Columns(rules=(rule,), times=times))


def test_what_one_field_takes_is_not_there_for_the_next() -> None:
    """As a table fills its columns, in their order."""
    fields = (LineField(name="a"), LineField(name="at", from_="a.t", type="timestamp"))
    rule = ParseRule(format="json", fields=fields)
    swapped = ParseRule(format="json", fields=fields[::-1])
    texts = [each.encode() for each in OBJECTS]

    taken = same([*messages_of(texts)], Columns(rules=(rule,), times=(TimeRule(field="at"),)))
    there = same([*messages_of(texts)], Columns(rules=(swapped,), times=(TimeRule(field="at"),)))
    assert len(set(taken)) < len(set(there))


def test_field_is_of_the_first_rule_for_a_source_and_of_whole_lines() -> None:
    """A piece of a line has no fields, and another program's message has only a host."""
    field = LineField(name="at", from_="t", type="timestamp")
    web, rest = LineSelector(pods=("web-*",)), LineSelector(hosts=("node-?",))
    rules = (
        ParseRule(format="logfmt", fields=(field,), select=web),
        ParseRule(format="json", fields=(field,), select=rest),
    )
    columns = Columns(rules=rules, times=(TimeRule(field="at"), TimeRule(format="klog")))
    lines = [b"t=1795255200", b'{"t":1795255200}', b"I0101 00:00:00 x"]
    found = []
    for pod in ("web-1", "db-1", ""):
        found += same([*messages_of(lines, pod=pod)], columns)
    cut = [message(b'{"t":1795255200}', format="plain", pod="db", starts_inside_line=is_start,
                   ends_inside_line=not is_start) for is_start in (True, False)]  # fmt: skip
    assert same([m._replace(time_ns=near(MOMENTS[0])) for m in cut], columns) == [None, None]
    assert len(set(found)) > 3


DIGITS = st.text(alphabet="0123456789", min_size=1, max_size=20)
PIECES = st.one_of(
    DIGITS, st.sampled_from([*TIMES, *"-:T .,+Z[]<>/", "Feb", "29", "I", "2024"]), st.binary()
)


@given(
    pieces=st.lists(PIECES, min_size=1, max_size=6),
    format=st.sampled_from(FORMATS),
    seconds=st.integers(0, 2**33),
)
def test_any_line_has_the_event_time_that_a_table_has(
    pieces: list[str | bytes], format: Any, seconds: int
) -> None:
    """Parts of times in any order, and any bytes among them."""
    parts = [each if isinstance(each, bytes) else each.encode() for each in pieces]
    line = b"".join(parts).replace(b"\n", b"")
    given_line = foreign(line)._replace(time_ns=seconds * 10**9)

    same([given_line], Columns(times=(TimeRule(format=format),)))


VALUE = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=20),
        st.integers(10**8, 2 * 10**18), st.sampled_from(TIMES),
    ),
    lambda inner: st.dictionaries(st.sampled_from(["a", "t", "a.t", "é"]), inner, max_size=3),
    max_leaves=4,
)  # fmt: skip


@given(
    said=st.dictionaries(st.sampled_from(["a", "t", "a.t", "x"]), VALUE, max_size=4),
    form=st.sampled_from(["json", "logfmt"]),
    kinds=st.tuples(*[st.sampled_from(FIELDS)] * 3),
    cut=st.integers(-3, 0),
)
def test_any_field_has_the_time_that_a_table_finds_in_it(
    said: dict[str, Any], form: Any, kinds: tuple[FieldType, ...], cut: int
) -> None:
    """Of any JSON and logfmt, also where a few bytes of it are missing."""
    names = ("a", "a.t", "t")
    fields = tuple(
        LineField(name=f"f{number}", from_=name, type=kind)
        for number, (name, kind) in enumerate(zip(names, kinds, strict=True))
    )
    pairs = (f"{name}={json.dumps(value)}" for name, value in said.items())
    text = json.dumps(said, ensure_ascii=False) if form == "json" else " ".join(pairs)
    lines = text.encode("utf-8", "replace")[: cut or None].replace(b"\n", b" ") + b"\n" + b"a=1\n"
    rule = ParseRule(format=form, fields=fields)
    times = tuple(TimeRule(field=f"f{number}") for number in (1, 2, 0))

    same([message(lines, format="plain")], Columns(rules=(rule,), times=times))
