"""Partial counts of a range of lines: they are added up by whoever reads them.

A watermark would have to throw late lines away, and one line from the future would make all others
late; sums of partial counts are right whenever a line comes.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from logpipeline_spark.errors import Refused
from logpipeline_spark.lines.schema import TIME

# A line counts for its own time as long as that is plausible: not further ahead of the time of
# storing than clocks and their zones may be,
CLOCK_AHEAD_MAX = datetime.timedelta(days=1)
# and not further behind than a node that was switched off, or cut off, comes back: shippers wait as
# long for a word on what they sent. Else it counts when it was stored, and as clamped: a clock that
# is wrong draws no traffic where there was none.
LATE_MAX = datetime.timedelta(days=31)
ERROR_LEVELS = ("error", "fatal")

MINUTES = pa.schema(
    [
        pa.field("ts", TIME, nullable=False),
        pa.field("cluster", pa.string()),
        pa.field("host", pa.string()),
        pa.field("namespace", pa.string()),
        pa.field("level", pa.string()),
        pa.field("lines", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("clamped", pa.int64(), nullable=False),
        # Of lines that are counted as clamped; files of former versions lack it.
        pa.field("clamped_bytes", pa.int64()),
    ]
)
SOURCES = pa.schema(
    [
        pa.field("ts", TIME, nullable=False),
        pa.field("host", pa.string()),
        pa.field("namespace", pa.string()),
        pa.field("pod", pa.string()),
        pa.field("container", pa.string()),
        pa.field("lines", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("errors", pa.int64(), nullable=False),
    ]
)


# Columns of lines that counts are made of, but for the line's own text.
_COUNTED = ("ts", "event_ts", "cluster", "host", "namespace", "pod", "container", "level")
_SIZE = "line_bytes"


def countable(lines: pa.Table) -> pa.Table:
    """Return what counts need of *lines*, without their text, so that tables of many streams can
    wait and be counted together.

    Raises:
        Refused: *lines* lacks a column.
    """
    columns = {name: _column(lines, name) for name in _COUNTED}
    return pa.table({**columns, _SIZE: _sizes(lines)})


def by_minute(lines: pa.Table) -> pa.Table:
    """Return how many *lines*, and bytes of them, there are per minute of their own time, cluster,
    host, namespace and level; `ts` is the minute's begin. Those with no plausible time are among
    them at the time of storing, and besides `clamped`: without these they are the traffic.

    Raises:
        Refused: *lines* lacks a column.
    """
    when, clamped = _times(lines)
    keys = {
        "ts": pc.floor_temporal(when, unit="minute"),
        **{name: _column(lines, name) for name in ("cluster", "host", "namespace", "level")},
    }
    sizes = _sizes(lines)
    sums = {
        "bytes": sizes,
        "clamped": pc.cast(clamped, pa.int64()),
        "clamped_bytes": pc.if_else(clamped, sizes, 0),
    }
    return _counted(keys, sums, MINUTES)


def by_source(lines: pa.Table) -> pa.Table:
    """Return how many *lines*, bytes and errors there are per hour and container; `ts` is
    the hour's begin.

    Raises:
        Refused: *lines* lacks a column.
    """
    when, _ = _times(lines)
    keys = {
        "ts": pc.floor_temporal(when, unit="hour"),
        **{name: _column(lines, name) for name in ("host", "namespace", "pod", "container")},
    }
    is_error = pc.is_in(_column(lines, "level"), value_set=pa.array(ERROR_LEVELS))
    sums = {"bytes": _sizes(lines), "errors": pc.cast(is_error, pa.int64())}
    return _counted(keys, sums, SOURCES)


def _times(lines: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Return the time that each line counts for, and whether its own was not plausible."""
    stored, told = _column(lines, "ts"), _column(lines, "event_ts")
    earliest = pc.subtract(stored, pa.scalar(LATE_MAX, pa.duration("us")))
    latest = pc.add(stored, pa.scalar(CLOCK_AHEAD_MAX, pa.duration("us")))
    is_off = pc.or_(pc.less(told, earliest), pc.greater(told, latest))
    clamped = pc.fill_null(is_off, fill_value=False)
    return pc.coalesce(pc.if_else(clamped, stored, told), stored), clamped


def _sizes(lines: pa.Table) -> pa.ChunkedArray:
    if _SIZE in lines.column_names:
        return lines.column(_SIZE)
    # The bytes of what is shown: without line ends, and without the runtime's own fields.
    return pc.cast(pc.binary_length(_column(lines, "line")), pa.int64())


def _counted(
    keys: dict[str, pa.ChunkedArray], sums: dict[str, pa.ChunkedArray], schema: pa.Schema
) -> pa.Table:
    grouped = pa.table({**keys, **sums}).group_by(list(keys))
    counted = grouped.aggregate([([], "count_all"), *((name, "sum") for name in sums)])
    names = {"count_all": "lines", **{f"{name}_sum": name for name in sums}}
    renamed = counted.rename_columns([names.get(name, name) for name in counted.column_names])
    ordered = renamed.select(schema.names).cast(schema)
    return ordered.sort_by([(name, "ascending") for name in keys])


def _column(lines: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in lines.column_names:
        raise Refused(f"these lines have no column {name}: give all columns of the table")
    return lines.column(name)


def added(parts: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return partial counts of *schema* as one, each group once."""
    keys = [field.name for field in schema if field.type != pa.int64()]
    sums = [field.name for field in schema if field.type == pa.int64()]
    together = pa.concat_tables([schema.empty_table(), *parts])
    counted = together.group_by(keys).aggregate([(name, "sum") for name in sums])
    counted = counted.rename_columns([name.removesuffix("_sum") for name in counted.column_names])
    return counted.select(schema.names).cast(schema).sort_by([(name, "ascending") for name in keys])
