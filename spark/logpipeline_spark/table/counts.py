"""Add the partial counts of many batches up, so that a year of them is few files.

Counts of a day come in small files, ten and more a minute, and some come weeks late: a node was
away. Files of about one size are added up when there are many of them, so that each count is
written a few times only. When a day is over, all that it has becomes one; what comes late is added
to that once it is worth it, and when no more can come, all of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from logpipeline_spark.rollup.counts import CLOCK_AHEAD_MAX, LATE_MAX, added
from logpipeline_spark.table.compact import FILES_MAX, GRACE, Merge, Parts, Sizes
from logpipeline_spark.table.entry import FileEntry
from logpipeline_spark.table.names import end_of, folder_of
from logpipeline_spark.table.parquet import checked_file
from logpipeline_spark.table.reading import fitted, microseconds
from logpipeline_spark.table.storage import Storage

# How many files of a size are added up at once.
ALIKE_MIN = 64
# Files that differ by less are of a size.
ALIKE_FACTOR = 8
# What is added up at once: no more counts than those of an hour are in memory.
WINDOW_US = 3_600_000_000
# The column that counts are sorted by stands first.
_TIME = 0


def due(files: Iterable[FileEntry], now: datetime) -> list[Merge]:
    """Return which *files* of counts are worth being added up, the oldest day first."""
    days = defaultdict(list)
    for entry in files:
        days[folder_of(entry.path)].append(entry)
    return [merge for folder in sorted(days) for merge in _of_day(folder, days[folder], now)]


def write_summed(
    storage: Storage, merge: Merge, schema: pa.Schema, *, sizes: Sizes
) -> list[FileEntry]:
    """Write the files that are to replace *merge*'s.

    Raises:
        Damaged: a file is missing or cannot be read.
    """
    entries: list[FileEntry] = []
    writer = Parts(storage, merge.folder, schema, entries)
    read = written = 0
    with writer.stack:
        for parts in _windows(storage, merge, schema):
            table = added(parts, schema)
            read += sum(_lines(part) for part in parts)
            written += _lines(table)
            writer.add(table, is_new_group=False, sizes=sizes)
        writer.end()
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
    # One at a time: what becomes of it counts among the next larger ones.
    for size in sorted(alike):
        if len(alike[size]) >= ALIKE_MIN:
            yield Merge(folder, tuple(alike[size]))
            return


def _is_whole_due(entries: list[FileEntry], end: datetime, now: datetime) -> bool:
    """Return whether all counts of a day that ended at *end* are worth becoming one file."""
    if len(entries) < 2 or end + CLOCK_AHEAD_MAX > now:
        return False
    largest = max(entry.bytes for entry in entries)
    late = sum(entry.bytes for entry in entries) - largest
    # Writing the large one again for each small one that comes would never end.
    return end + LATE_MAX <= now or late * ALIKE_FACTOR >= largest


def _size_class(size_bytes: int) -> int:
    size_class = 0
    while size_bytes >= ALIKE_FACTOR:
        size_bytes //= ALIKE_FACTOR
        size_class += 1
    return size_class


def _windows(storage: Storage, merge: Merge, schema: pa.Schema) -> Iterator[list[pa.Table]]:
    """Give the counts of each hour, as they stand in the files."""
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
    """Give the rows of a file from one time to before another, a group of rows at a time."""
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
