"""What a task does with the lines of its range: one file for each hour that they fall into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from logpipeline_spark.table.entry import FileEntry
from logpipeline_spark.table.names import LINES, FileName, hour_folder
from logpipeline_spark.table.parquet import ParquetFile
from logpipeline_spark.table.storage import Storage

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US


def write_range(
    storage: Storage,
    tables: Iterable[pa.Table],
    name: FileName,
    *,
    area: str = LINES,
) -> list[FileEntry]:
    """Write *tables*, whose rows are in order, and return the files.

    The same rows under the same name give the same files, however often they are written.

    Raises:
        StorageFailed: the disk or the bucket is full, or refuses.
    """
    writer = _HourWriter(storage, name, area)
    with writer.stack:
        unit_us = HOUR_US if area == LINES else DAY_US
        for unit, table in in_hours(tables, unit_us):
            writer.add(datetime.fromtimestamp(unit * unit_us / 1_000_000, UTC), table)
        writer.end()
    return writer.entries


def in_hours(tables: Iterable[pa.Table], unit_us: int = HOUR_US) -> Iterator[tuple[int, pa.Table]]:
    """Cut *tables* where an hour begins; the number of the hour never falls.

    A server's clock that was set back puts some lines into an hour after their own: so one file
    alone is open at a time, and what is written depends on nothing but the rows.
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


class _HourWriter:
    """The file that is open, if any."""

    def __init__(self, storage: Storage, name: FileName, area: str) -> None:
        self._storage = storage
        self._name = name
        self._area = area
        self._file: ParquetFile | None = None
        self._path = ""
        self.stack = ExitStack()
        self.entries: list[FileEntry] = []

    def add(self, hour: datetime, table: pa.Table) -> None:
        path = f"{hour_folder(hour, self._area)}/{self._name}"
        if self._file is None or path != self._path:
            self.end()
            file = self.stack.enter_context(self._storage.create(path))
            self._file = self.stack.enter_context(ParquetFile(file, path, table.schema))
            self._path = path
        self._file.add(table)

    def end(self) -> None:
        if self._file is None:
            return
        file, self._file = self._file, None
        self.stack.close()
        self.entries.append(file.entry())
