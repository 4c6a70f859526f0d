"""Partial counts of a range of lines: they are added up by whoever reads them.

A watermark would have to throw late lines away, and one line from the future would make all others
late; sums of partial counts are right whenever a line comes.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
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

# What counts are made of: both of the above are sums of these.
COUNTED = pa.schema([*MINUTES, SOURCES.field("pod"), SOURCES.field("container")])

# What lines have in common that are counted together, besides a minute.
_NAMES = ("cluster", "host", "namespace", "pod", "container", "level")
# Columns of lines that counts are made of, but for the line's own text.
_COUNTED = ("ts", "event_ts", *_NAMES)
_SIZE = "line_bytes"
_MINUTE, _HOUR = 60_000_000, 3_600_000_000
# Numbers of groups are kept below this, so that one more factor fits into 64 bits.
_CODES_MAX = 1 << 31


def countable(lines: pa.Table) -> pa.Table:
    """Return what counts need of *lines*, without their text, so that tables of many streams can
    wait and be counted together.

    Raises:
        Refused: *lines* lacks a column.
    """
    columns = {name: _column(lines, name) for name in _COUNTED}
    return pa.table({**columns, _SIZE: _sizes(lines)})


def counted(lines: pa.Table) -> pa.Table:
    """Return how many *lines*, and bytes of them, there are per minute of their own time and all
    that `by_minute` and `by_source` tell apart, with the columns of COUNTED.

    Raises:
        Refused: *lines* lacks a column.
    """
    when, clamped = _times(lines)
    keys = {"ts": _begins(when, _MINUTE), **{name: _column(lines, name) for name in _NAMES}}
    sizes = _sizes(lines)
    sums = {
        "bytes": sizes,
        "clamped": pc.cast(clamped, pa.int64()),
        "clamped_bytes": pc.if_else(clamped, sizes, 0),
    }
    # Arrow groups by one number in a fraction of the time that it takes for seven columns, and
    # has more to do than to gain where it shares that out to threads.
    one = pa.table({"code": _codes(keys.values()), "row": np.arange(lines.num_rows), **sums})
    found = one.group_by("code", use_threads=False).aggregate(
        [("row", "min"), ([], "count_all"), *((name, "sum") for name in sums)]
    )
    columns = {
        **{name: column.take(found["row_min"]) for name, column in keys.items()},
        "lines": found["count_all"],
        **{name: found[f"{name}_sum"] for name in sums},
    }
    return pa.table(columns).select(COUNTED.names).cast(COUNTED)


def by_minute(counts: pa.Table) -> pa.Table:
    """Return `counted` lines per minute, cluster, host, namespace and level; `ts` is the minute's
    begin. Those with no plausible time are among them at the time of storing, and besides
    `clamped`: without these they are the traffic.
    """
    return added([counts.select(MINUTES.names)], MINUTES)


def by_source(counts: pa.Table) -> pa.Table:
    """Return `counted` lines per hour and container, with their errors; `ts` is the hour's
    begin.
    """
    is_error = pc.is_in(counts["level"], value_set=pa.array(ERROR_LEVELS))
    columns = {name: counts[name] for name in SOURCES.names if name not in ("ts", "errors")}
    columns["ts"] = _begins(counts["ts"], _HOUR)
    columns["errors"] = pc.if_else(is_error, counts["lines"], 0)
    return added([pa.table(columns).select(SOURCES.names).cast(SOURCES)], SOURCES)


def _begins(times: pa.ChunkedArray, span_us: int) -> pa.ChunkedArray:
    """Return when the minutes or hours of *times* began. (Arrow's own way costs ten times as much,
    since it knows zones.)
    """
    numbers = times.cast(pa.int64()).to_numpy()
    return pa.chunked_array([pa.array(numbers - numbers % span_us).view(TIME)])


def _codes(columns: Iterable[pa.ChunkedArray]) -> npt.NDArray[np.int64]:
    """Return a number for each row: the same for rows that are the same in all *columns*."""
    codes, size = np.zeros(1, np.int64), 1
    for column in columns:
        array = column.combine_chunks()
        if not pa.types.is_dictionary(array.type):
            array = array.dictionary_encode()
        # A null is a value as well.
        numbers = (
            pc.fill_null(array.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
        )
        if size > _CODES_MAX:
            known, codes = np.unique(codes, return_inverse=True)
            size = len(known)
        factor = len(array.dictionary) + 1
        codes, size = codes * factor + numbers, size * factor
    return codes


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
