"""What lines say becomes columns, and no line can stop or lose that."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.line_expressions import tried
from logpipeline.spec.table import RESERVED, LineField, LineSelector, ParseRule, Table, TimeRule
from logpipeline_spark.lines.arrow import tables_of
from logpipeline_spark.lines.fields import declared
from logpipeline_spark.lines.messages import groups
from logpipeline_spark.lines.schema import (
    FIELDS,
    LINES,
    PARSED,
    Columns,
    encoded_schema_of,
    schema_of,
)
from logpipeline_spark.lines.timestamps import instants
from tables.messages import ORIGIN, message

NEAR_US = 1_795_600_000_000_000  # 2026-11-25
JSON = ParseRule(
    format="json",
    fields=(
        LineField(name="a", type="int"),
        LineField(name="c", from_="b.c"),
        LineField(name="at", from_="t", type="timestamp"),
    ),
)
LOGFMT = ParseRule(format="logfmt", fields=(LineField(name="a", type="int"), LineField(name="m")))
DEEP = '{"a":1,"x":' + "[" * 300 + "]" * 300 + "}"


def filled(rule: ParseRule, *lines: str) -> list[dict[str, Any]]:
    """Return what the columns say of *lines*."""
    count = len(lines)
    found = declared(
        pa.array(lines, pa.string()),
        np.zeros(count, np.int64),
        np.zeros(count, np.bool_),
        np.full(count, NEAR_US),
        Columns(rules=(rule,)),
    )
    return [{name: found[name][row].as_py() for name in found} for row in range(count)]


def said(rule: ParseRule, line: str, *names: str) -> tuple[Any, ...]:
    """Return some columns of one line, which stands among others."""
    row = filled(rule, '{"a":1}', line, "a=1")[1]
    return tuple(row[name] for name in names)


@pytest.mark.parametrize(
    ("line", "a", "c", "fields", "parsed"),
    [
        ('{"a":1,"b":{"c":"x","d":[1]}}', 1, "x", '{"b":{"d":[1]}}', True),
        ('{"a":"12"}', 12, None, None, True),
        ('{"a":"zz"}', None, None, '{"a":"zz"}', True),
        ('{"a":true}', None, None, '{"a":true}', True),
        ('{"a":99999999999999999999}', None, None, '{"a":1e+20}', True),
        ('{"a":1,"a":2}', 2, None, None, True),
        ('{"b":{"c":[1,{}]}}', None, "[1,{}]", None, True),
        ('{"b":{"c":"\\u0000"}}', None, "\0", None, True),
        ('{"a":NaN}', None, None, None, False),
        ('{"a":1},{"a":2}', None, None, None, False),
        ("[1]", None, None, None, False),
        ("", None, None, None, False),
        ('{"a":"\0"}', None, None, None, False),
        (DEEP, None, None, None, False),
        ('{"b":{"c":"' + "x" * 2**20 + '"}}', None, "x" * 2**20, None, True),
    ],
)
def test_odd_json_is_one_line_of_its_own(
    line: str, a: int | None, c: str | None, fields: str | None, parsed: bool
) -> None:
    """Beside good lines, which stay good."""
    assert said(JSON, line, "a", "c", FIELDS, PARSED) == (a, c, fields, parsed)


@pytest.mark.parametrize(
    ("line", "a", "m", "fields", "parsed"),
    [
        ('a=200 m="a b" x=y', 200, "a b", '{"x":"y"}', True),
        ('a=2x m="say \\"hi\\" there" p=C:\\new', None, 'say "hi" there',
         '{"p":"C:\\\\new","a":"2x"}', True),
        ("a=1 word m=ok", 1, "ok", None, True),
        ("plain words a=3", None, None, None, False),
        ('a=1 ,"evil":{"z":1}', 1, None, None, True),
    ],
)  # fmt: skip
def test_odd_logfmt_is_one_line_of_its_own(
    line: str, a: int | None, m: str | None, fields: str | None, parsed: bool
) -> None:
    """Quotes, backslashes, and words between pairs."""
    assert said(LOGFMT, line, "a", "m", FIELDS, PARSED) == (a, m, fields, parsed)


@given(st.lists(st.text(alphabet='{}[]",:=a1 \\\n\0é', max_size=30), min_size=1, max_size=8))
def test_no_line_stops_parsing(lines: list[str]) -> None:
    """One alone is read as it is among others."""
    for rule in (JSON, LOGFMT, ParseRule(format="regex", pattern="^(?P<x>a)(?P<y>1)?")):
        assert filled(rule, *lines) == [filled(rule, line)[0] for line in lines]


PARTS = [
    *("(?P<a>", "(?P<b>", "(?<c>", "(", "(?:", "(?i)", "(?=", ")", ")", ")", "|", "x", "[^ ]"),
    *("{9}", "{1000}", "*", "+", "?", "$", "^", "\\", r"\Z", r"\pL", r"\1", "é", "\0"),
]


@given(st.lists(st.sampled_from(PARTS), max_size=9))
def test_an_expression_that_a_resource_may_have_is_one_of_a_table(parts: list[str]) -> None:
    """What the resource takes never stops the job, whose engine is Arrow's."""
    pattern = "".join(parts)
    if tried(pattern).why:
        return
    table = Table(parse=(ParseRule(format="regex", pattern=pattern),))

    assert Columns.of(table).rules == table.parse


def test_the_first_rule_that_fits_a_source_is_used() -> None:
    """A table has the columns of all rules; where none applies, nothing is said."""
    rules = (
        ParseRule(format="json", select=LineSelector(pods=("web-*",)), fields=JSON.fields[:1]),
        ParseRule(format="logfmt", fields=(LineField(name="z"),), select=LineSelector(pods=("d",))),
    )
    columns = pickle.loads(pickle.dumps(Columns(rules=rules)))
    data = [message(b'{"a":1,"q":2}\n', 1, format="plain", pod=pod) for pod in ("web-1", "x")]

    (group,) = groups(data, ORIGIN)
    (table,) = tables_of(group, ORIGIN, columns)
    assert table.schema == encoded_schema_of(columns)
    assert table.cast(schema_of(columns)).select(["a", "z", FIELDS, PARSED]).to_pylist() == [
        {"a": 1, "z": None, FIELDS: '{"q":2}', PARSED: True},
        {"a": None, "z": None, FIELDS: None, PARSED: None},
    ]
    assert schema_of(Columns()) == LINES
    assert set(RESERVED) == {*LINES.names, FIELDS, PARSED, "dt", "hour"}


def test_a_line_names_its_own_time() -> None:
    """Before that of the runtime, which stays where a line names none."""
    data = b"2026-11-21T10:00:00.1Z stdout F 2026-11-21 09:59:58,5 hot\n"
    data += b"2026-11-21T10:00:00.1Z stdout F none\n"
    (group,) = groups([message(data)], ORIGIN)
    (table,) = tables_of(group, ORIGIN, Columns(times=(TimeRule(),)))
    found = [str(each) for each in table["event_ts"].to_pylist()]
    assert found == ["2026-11-21 09:59:58.500000+00:00", "2026-11-21 10:00:00.100000+00:00"]


@pytest.mark.parametrize(
    ("text", "format", "expected"),
    [
        ("I1123 10:00:00.5 1 x", "auto", "2026-11-23 10:00:00.500000+00:00"),
        ("<34>Oct 11 22:14:15 h", "auto", "2026-10-11 22:14:15+00:00"),
        ("<34>1 2026-10-11T22:14:15.003Z h", "rfc5424", "2026-10-11 22:14:15.003000+00:00"),
        ('- - [23/Nov/2026:10:00:00 +0100] "', "common", "2026-11-23 09:00:00+00:00"),
        ("1763892000123", "epochMs", "2025-11-23 10:00:00.123000+00:00"),
        ("1763892000", "auto", "2025-11-23 10:00:00+00:00"),
        ("23.11.26 11:59 PM", "%d.%m.%y %I:%M %p", "2026-11-23 23:59:00+00:00"),
        ("2099-01-01T00:00:00Z", "auto", "None"),
        ("2026-99-99T00:00:00Z", "auto", "None"),
        ("2026-11-23T10:00:61Z", "auto", "None"),
    ],
)
def test_times_in_their_usual_forms(text: str, format: str, expected: str) -> None:
    """And none where it cannot be believed."""
    found = instants(pa.array([text]), np.array([NEAR_US]), format=format, zone="UTC")
    assert str(found.column[0].as_py()) == expected


def test_new_years_eve_is_of_the_year_that_ends() -> None:
    """The server had it some seconds later."""
    near = np.full(2, 1_798_761_605_000_000)
    texts = pa.array(["Dec 31 23:59:59 h", "Jan  1 00:00:01 h"])
    found = instants(texts, near, format="rfc3164", zone="UTC").column.to_pylist()
    assert [each.year for each in found] == [2026, 2027]
