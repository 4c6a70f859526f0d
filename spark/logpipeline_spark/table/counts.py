"""Partial counts of lines, by minute and by source. Tasks write them for each range, readers add
them up, and upkeep adds the counts of many batches up, so that a year of them is few files.

Partial counts are right whenever a line comes. A watermark would have to drop late lines, and one
line from the future would make all others late.

Counts of a day come in small files, ten or more a minute, and some come weeks late, when a node was
away. Files of about one size are added up when there are many of them, so that each count is
written a few times only. When a day is over, its files become one. Late counts are added to it when
they are worth it, and all of them when no more can come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logpipeline_spark.errors import Refused
from logpipeline_spark.lines.schema import TIME
from logpipeline_spark.table.compaction import FILES_MAX, GRACE, Merge, Parts, Sizes
from logpipeline_spark.table.files import FileEntry, end_of, folder_of, is_of_time
from logpipeline_spark.table.parquet import checked_file
from logpipeline_spark.table.scan import fitted, microseconds
from logpipeline_spark.table.storage import Storage

# A line is counted at its own time if that is plausible: not further ahead of the time of storing
# than clocks and their zones may be,
CLOCK_AHEAD_MAX = timedelta(days=1)
# and not further behind it than the time after which a node that was off or cut off comes back:
# shippers wait that long for a confirmation. Else it is counted at the time of storing, and as
# clamped: a wrong clock must not show traffic where there was none.
LATE_MAX = timedelta(days=31)
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
        # Of clamped lines; files of older versions of logpipeline lack this column.
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

# Both tables of counts are sums of these columns.
COUNTED = pa.schema([*MINUTES, SOURCES.field("pod"), SOURCES.field("container")])

# The columns besides the minute by which lines are grouped.
_NAMES = ("cluster", "host", "namespace", "pod", "container", "level")
# The columns of lines that counts are made of, besides the line's text.
_COUNTED = ("ts", "event_ts", *_NAMES)
_SIZE = "line_bytes"
_MINUTE, _HOUR = 60_000_000, 3_600_000_000
# Group numbers stay below this, so that one more factor fits into 64 bits.
_CODES_MAX = 1 << 31


def countable(lines: pa.Table) -> pa.Table:
    """Return the columns of *lines* that counts need, without their text, so that tables of many
    streams can wait and be counted together.

    Raises:
        Refused: *lines* lacks a column.
    """
    columns = {name: _column(lines, name) for name in _COUNTED}
    return pa.table({**columns, _SIZE: _sizes(lines)})


def counted(lines: pa.Table) -> pa.Table:
    """Return the number of *lines* and of their bytes, per minute of their own time and all groups
    of `by_minute` and `by_source`, with the columns of COUNTED.

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
    # Arrow groups by one number in a fraction of the time that seven columns take. Threads cost it
    # more here than they gain.
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
    """Return `counted` lines per minute, cluster, host, namespace and level; `ts` is the begin of
    the minute. Lines without a plausible time are counted at the time of storing, and are counted
    as `clamped` too: the traffic is the difference.
    """
    return added([counts.select(MINUTES.names)], MINUTES)


def by_source(counts: pa.Table) -> pa.Table:
    """Return `counted` lines per hour and container, with their errors; `ts` is the begin of the
    hour.
    """
    is_error = pc.is_in(counts["level"], value_set=pa.array(ERROR_LEVELS))
    columns = {name: counts[name] for name in SOURCES.names if name not in ("ts", "errors")}
    columns["ts"] = _begins(counts["ts"], _HOUR)
    columns["errors"] = pc.if_else(is_error, counts["lines"], 0)
    return added([pa.table(columns).select(SOURCES.names).cast(SOURCES)], SOURCES)


def _begins(times: pa.ChunkedArray, span_us: int) -> pa.ChunkedArray:
    """Return the begins of the minutes or hours of *times*. (Arrow's own function costs ten times
    as much, since it handles time zones.)
    """
    numbers = times.cast(pa.int64()).to_numpy()
    return pa.chunked_array([pa.array(numbers - numbers % span_us).view(TIME)])


def _codes(columns: Iterable[pa.ChunkedArray]) -> npt.NDArray[np.int64]:
    """Return a number for each row; rows that are equal in all *columns* have the same."""
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
    """Return the time at which each line is counted, and whether its own time was implausible."""
    stored, own = _column(lines, "ts"), _column(lines, "event_ts")
    earliest = pc.subtract(stored, pa.scalar(LATE_MAX, pa.duration("us")))
    latest = pc.add(stored, pa.scalar(CLOCK_AHEAD_MAX, pa.duration("us")))
    is_off = pc.or_(pc.less(own, earliest), pc.greater(own, latest))
    clamped = pc.fill_null(is_off, fill_value=False)
    return pc.coalesce(pc.if_else(clamped, stored, own), stored), clamped


def _sizes(lines: pa.Table) -> pa.ChunkedArray:
    if _SIZE in lines.column_names:
        return lines.column(_SIZE)
    # The bytes of the visible text: without line ends, and without the runtime's own fields.
    return pc.cast(pc.binary_length(_column(lines, "line")), pa.int64())


def _column(lines: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in lines.column_names:
        raise Refused(f"these lines have no column {name}: pass all columns of the table")
    return lines.column(name)


def added(parts: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return partial counts of *schema* as one table with one row for each group."""
    keys = [field.name for field in schema if field.type != pa.int64()]
    sums = [field.name for field in schema if field.type == pa.int64()]
    together = pa.concat_tables([schema.empty_table(), *parts])
    counted = together.group_by(keys).aggregate([(name, "sum") for name in sums])
    counted = counted.rename_columns([name.removesuffix("_sum") for name in counted.column_names])
    return counted.select(schema.names).cast(schema).sort_by([(name, "ascending") for name in keys])


# So many files of about one size are added up at once.
ALIKE_MIN = 64
# Files that differ by less count as one size.
ALIKE_FACTOR = 8
# The span that is added up at once: only the counts of one hour are in memory.
WINDOW_US = 3_600_000_000
# The column by which counts are sorted comes first.
_TIME = 0


def due(files: Iterable[FileEntry], now: datetime) -> list[Merge]:
    """Return the *files* of counts that are worth adding up, the oldest day first. Files that
    another program put elsewhere are its own to merge.
    """
    days = defaultdict(list)
    for entry in files:
        if is_of_time(entry.path):
            days[folder_of(entry.path)].append(entry)
    return [merge for folder in sorted(days) for merge in _of_day(folder, days[folder], now)]


def write_summed(
    storage: Storage, merge: Merge, schema: pa.Schema, *, sizes: Sizes
) -> list[FileEntry]:
    """Write the files that replace those of *merge*.

    Raises:
        Damaged: a file is missing or cannot be read.
    """
    entries: list[FileEntry] = []
    writer = Parts(storage, merge.folder, schema, entries)
    read = written = rows = 0
    with writer.stack:
        for parts in _windows(storage, merge, schema):
            table = added(parts, schema)
            rows += sum(part.num_rows for part in parts)
            read += sum(_lines(part) for part in parts)
            written += _lines(table)
            writer.add(table, is_new_group=False, sizes=sizes)
        writer.end()
    # Rows outside the times that the log gives for their file would be left out.
    expected = sum(entry.rows for entry in merge.sources)
    assert rows == expected, f"{merge.folder}: {rows} rows were read, and {expected} are committed"
    assert read == written, f"{merge.folder}: counts of {read} lines became {written}"
    return entries


def _of_day(folder: str, entries: list[FileEntry], now: datetime) -> Iterator[Merge]:
    ordered = sorted(entries, key=lambda entry: entry.path)[:FILES_MAX]
    if _is_whole_due(ordered, end_of(folder) + GRACE, now):
        yield Merge(folder, tuple(ordered))
        return
    alike = defaultdict(list)
    for entry in ordered:
        alike[_size_class(entry.bytes)].append(entry)
    # One size at a time: the result counts among the next larger files.
    for size in sorted(alike):
        if len(alike[size]) >= ALIKE_MIN:
            yield Merge(folder, tuple(alike[size]))
            return


def _is_whole_due(entries: list[FileEntry], end: datetime, now: datetime) -> bool:
    """Return whether all counts of a day that ended at *end* should become one file."""
    if len(entries) < 2 or end + CLOCK_AHEAD_MAX > now:
        return False
    largest = max(entry.bytes for entry in entries)
    late = sum(entry.bytes for entry in entries) - largest
    # To write the large file again for each small one would never end.
    return end + LATE_MAX <= now or late * ALIKE_FACTOR >= largest


def _size_class(size_bytes: int) -> int:
    size_class = 0
    while size_bytes >= ALIKE_FACTOR:
        size_bytes //= ALIKE_FACTOR
        size_class += 1
    return size_class


def _windows(storage: Storage, merge: Merge, schema: pa.Schema) -> Iterator[list[pa.Table]]:
    """Give the counts of each hour, as the files have them."""
    first = min(entry.first_us for entry in merge.sources) // WINDOW_US
    last = max(entry.last_us for entry in merge.sources) // WINDOW_US
    for window in range(first, last + 1):
        begin_us, end_us = window * WINDOW_US, (window + 1) * WINDOW_US
        parts = [
            part
            for entry in merge.sources
            if entry.last_us >= begin_us and entry.first_us < end_us
            for part in _between(storage, entry, schema, begin_us, end_us)
        ]
        if parts:
            yield parts


def _between(
    storage: Storage, entry: FileEntry, schema: pa.Schema, begin_us: int, end_us: int
) -> Iterator[pa.Table]:
    """Give the rows of a file in a time range, one group of rows at a time."""
    with checked_file(storage, entry.path) as file:
        for number in range(file.num_row_groups):
            times_of = file.metadata.row_group(number).column(_TIME).statistics
            if microseconds(times_of.max) < begin_us or microseconds(times_of.min) >= end_us:
                continue
            table = fitted(file.read_row_group(number), schema)
            times = table["ts"].cast(pa.int64())
            is_inside = pc.and_(pc.greater_equal(times, begin_us), pc.less(times, end_us))
            yield table.filter(is_inside)


def _lines(table: pa.Table) -> int:
    return int(pc.sum(table["lines"]).as_py() or 0)
