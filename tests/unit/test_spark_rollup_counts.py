"""Counts of lines add up, whenever a line says that it was written."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline_spark.errors import Refused
from logpipeline_spark.lines.schema import TIME
from logpipeline_spark.table import counts as counts_module
from logpipeline_spark.table.counts import (
    CLOCK_AHEAD_MAX,
    LATE_MAX,
    MINUTES,
    added,
    by_minute,
    by_source,
    counted,
)
from logpipeline_spark.table.scan import fitted

STORED = datetime.datetime(2026, 11, 21, 10, 30, 7, tzinfo=datetime.UTC)


def minutes(number: float) -> datetime.timedelta:
    """A span of time."""
    return datetime.timedelta(minutes=number)


def line(text: str = "x", **fields: Any) -> dict[str, Any]:
    """A line of one container, as the table has it."""
    return {
        "ts": STORED, "event_ts": STORED, "cluster": "", "host": "h", "namespace": "shop",
        "pod": "web", "container": "app", "level": "info", "line": text, **fields,
    }  # fmt: skip


def table(lines: Iterable[dict[str, Any]]) -> pa.Table:
    """These lines as a table."""
    made = pa.Table.from_pylist(list(lines))
    for name in ("ts", "event_ts"):
        place = made.column_names.index(name)
        made = made.set_column(place, name, made.column(name).cast(TIME))
    return made


def of(lines: Iterable[dict[str, Any]]) -> pa.Table:
    """These lines, counted."""
    return counted(table(lines))


def test_lines_are_counted_by_minute_and_level() -> None:
    """With the bytes of what they say."""
    lines = [line("één"), line("two"), line(level="error"), line(event_ts=STORED + minutes(1))]
    rows = by_minute(of(lines)).to_pylist()

    found = [(row["ts"].minute, row["level"], row["lines"], row["bytes"]) for row in rows]

    assert found == [
        (30, "error", 1, 1), (30, "info", 2, 8), (31, "info", 1, 1),
    ]  # fmt: skip


def test_a_line_without_a_time_counts_when_it_was_stored() -> None:
    """That is no clamping."""
    (row,) = by_minute(of([line(event_ts=None), line()])).to_pylist()

    assert (row["ts"], row["lines"], row["clamped"]) == (STORED.replace(second=0), 2, 0)


def test_a_line_that_comes_late_is_counted_in_its_own_minute() -> None:
    """A node that was away for a weekend brings each of its minutes, and no spike."""
    late = [STORED - datetime.timedelta(days=3) + minutes(number) for number in range(3)]
    rows = by_minute(of([line(event_ts=when) for when in late])).to_pylist()

    assert [(row["ts"], row["lines"], row["clamped"]) for row in rows] == [
        (when.replace(second=0), 1, 0) for when in late
    ]


@pytest.mark.parametrize(
    ("limit", "sign"), [(LATE_MAX, -1), (CLOCK_AHEAD_MAX, 1)], ids=["before", "ahead"]
)
def test_a_time_that_cannot_be_right_is_counted_apart(limit: datetime.timedelta, sign: int) -> None:
    """When it was stored, with its bytes, and told: without these a minute has its traffic. The
    limit itself is plausible.
    """
    last = STORED + sign * limit
    wrong = line("wrong", event_ts=last + sign * minutes(1))
    rows = by_minute(of([line("ok"), line(event_ts=last), wrong])).to_pylist()
    found = {
        row["ts"]: (row["lines"], row["bytes"], row["clamped"], row["clamped_bytes"])
        for row in rows
    }

    assert found == {STORED.replace(second=0): (2, 7, 1, 5), last.replace(second=0): (1, 1, 0, 0)}


def test_counts_of_a_former_version_add_up_with_new_ones() -> None:
    """They lack a column."""
    new = by_minute(of([line()]))
    former = fitted(new.drop_columns("clamped_bytes"), MINUTES)

    (row,) = added([former, new], MINUTES).to_pylist()
    assert (row["lines"], row["clamped"], row["clamped_bytes"]) == (2, 0, 0)


def test_containers_are_counted_by_the_hour_with_their_errors() -> None:
    """What tells the loudest from the most broken."""
    lines = [line(), line(level="fatal"), line(level="error"), line(level=None), line(pod="db")]
    rows = by_source(of(lines)).to_pylist()

    assert [(row["pod"], row["lines"], row["errors"]) for row in rows] == [
        ("db", 1, 0), ("web", 4, 2),
    ]  # fmt: skip


def test_partial_counts_of_parts_add_up_to_those_of_all() -> None:
    """However the lines are cut into ranges."""
    lines = [line(event_ts=STORED + minutes(n / 7), level=("info", None)[n % 2]) for n in range(50)]
    cut = (lines[:3], lines[3:40], lines[40:])
    parts = [by_minute(of(part)) for part in cut]

    assert added(parts, MINUTES).equals(by_minute(of(lines)))


_NAME = st.sampled_from([None, "", "a", "b"])
_LINES = st.lists(st.fixed_dictionaries(dict.fromkeys(("host", "pod", "level"), _NAME)), min_size=1)


@pytest.mark.parametrize("codes_max", [1, counts_module._CODES_MAX])
@given(fields=_LINES)
def test_lines_are_told_apart_by_each_of_their_names(
    codes_max: int, fields: list[dict[str, Any]]
) -> None:
    """However many combinations of names there could be: a null is none of the names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts_module, "_CODES_MAX", codes_max)
        counts = counted(typed(table(line(**each) for each in fields)))

    found = {(row["host"], row["pod"], row["level"]): row["lines"] for row in counts.to_pylist()}
    assert found == Counter((each["host"], each["pod"], each["level"]) for each in fields)
    assert len(counts) == len(found)


def typed(lines: pa.Table) -> pa.Table:
    """These lines with names that are text, also where all of them are null."""
    names = ("host", "pod", "level")
    fields = [
        field.with_type(pa.string()) if field.name in names else field for field in lines.schema
    ]
    return lines.cast(pa.schema(fields))


def test_no_lines_have_no_counts() -> None:
    """An empty range is a range."""
    none = counted(table([line()]).slice(0, 0))

    assert (by_minute(none).num_rows, by_source(none).num_rows) == (0, 0)


def test_a_column_that_is_missing_is_named() -> None:
    """Who counts a narrowed table learns why it cannot be."""
    with pytest.raises(Refused, match="no column level"):
        counted(table([line()]).drop_columns("level"))
