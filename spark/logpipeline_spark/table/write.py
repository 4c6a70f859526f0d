"""What a task does with the lines of its ranges: one file for each hour that they fall into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from logpipeline_spark.table.entry import FileEntry
from logpipeline_spark.table.names import LINES, FileName, hour_folder
from logpipeline_spark.table.parquet import ParquetFile
from logpipeline_spark.table.storage import Storage

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
# Files that a task writes at once; ranges of a batch are of the same hour or two, unless it is far
# behind.
OPEN_MAX = 4


def write_range(
    storage: Storage,
    tables: Iterable[pa.Table],
    name: FileName,
    *,
    area: str = LINES,
) -> list[FileEntry]:
    """Write *tables*, whose rows are in order, and return the files; see `write_ranges`."""
    return write_ranges(storage, [tables], name, area=area)


def write_ranges(
    storage: Storage,
    ranges: Iterable[Iterable[pa.Table]],
    name: FileName,
    *,
    area: str = LINES,
) -> list[FileEntry]:
    """Write the tables of *ranges*, whose rows are in order each, and return the files.

    The same rows under the same name give the same files, however often they are written.

    Raises:
        StorageFailed: the disk or the bucket is full, or refuses.
    """
    writer = _HourWriter(storage, name, area)
    with writer.stack:
        unit_us = HOUR_US if area == LINES else DAY_US
        for tables in ranges:
            for unit, table in in_hours(tables, unit_us):
                writer.add(datetime.fromtimestamp(unit * unit_us / 1_000_000, UTC), table)
            writer.end_groups()
        writer.end()
    return writer.entries


def in_hours(tables: Iterable[pa.Table], unit_us: int = HOUR_US) -> Iterator[tuple[int, pa.Table]]:
    """Cut *tables* where an hour begins; the number of the hour never falls.

    A server's clock that was set back puts some lines into an hour after their own: what is written
    depends on nothing but the rows.
    """
    reached = 0
    for table in tables:
        if not table.num_rows:
            continue
        times = table["ts"].cast(pa.int64()).to_numpy()
        units = np.maximum(np.maximum.accumulate(times // unit_us), reached)
        reached = int(units[-1])
        starts = [0, *(np.flatnonzero(np.diff(units)) + 1).tolist()]
        for start, end in zip(starts, [*starts[1:], table.num_rows], strict=True):
            yield int(units[start]), table.slice(start, end - start)


@dataclass(frozen=True, slots=True)
class _Open:
    """A file that is being written; to close *stack* finishes it."""

    file: ParquetFile
    stack: ExitStack


class _HourWriter:
    """The files that are open, by their folders, in the order in which they were opened."""

    def __init__(self, storage: Storage, name: FileName, area: str) -> None:
        self._storage = storage
        self._name = name
        self._area = area
        self._open: dict[str, _Open] = {}
        # How many files of each folder are finished.
        self._parts: dict[str, int] = {}
        self.stack = ExitStack()
        self.entries: list[FileEntry] = []

    def add(self, hour: datetime, table: pa.Table) -> None:
        folder = hour_folder(hour, self._area)
        # A range does not come back to an hour: so one group alone waits in memory, and not one for
        # each file.
        self.end_groups(but=folder)
        if folder not in self._open:
            if len(self._open) >= OPEN_MAX:
                self._end(next(iter(self._open)))
            name = replace(self._name, part=self._parts.get(folder, 0))
            # Where something fails, none of them is finished.
            stack = self.stack.enter_context(ExitStack())
            path = f"{folder}/{name}"
            raw = stack.enter_context(self._storage.create(path))
            file = stack.enter_context(ParquetFile(raw, path, table.schema))
            self._open[folder] = _Open(file, stack)
        self._open[folder].file.add(table)

    def end_groups(self, *, but: str = "") -> None:
        """Let what comes next begin groups of its own, in all folders *but* one: a group of rows is
        of one stream's life, so that it can be merged by its statistics.
        """
        for folder, each in self._open.items():
            if folder != but:
                each.file.end_group()

    def end(self) -> None:
        for folder in list(self._open):
            self._end(folder)

    def _end(self, folder: str) -> None:
        ended = self._open.pop(folder)
        self._parts[folder] = self._parts.get(folder, 0) + 1
        ended.stack.close()
        self.entries.append(ended.file.entry())
