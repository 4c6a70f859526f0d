"""The Parquet files of a table: written by tasks, one for each hour that the lines of their ranges
fall into, and by compaction. Each page has a checksum, so that a changed bit of a column is
noticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from logpipeline_spark.errors import Damaged
from logpipeline_spark.lines.schema import FEW_VALUES, FIELDS, LIFE
from logpipeline_spark.lines.schema import LINES as LINES_SCHEMA
from logpipeline_spark.table.files import LINES, FileEntry, FileName, hour_folder
from logpipeline_spark.table.storage import Storage
from logpipeline_spark.table.word_filters import Filters

Numbers = npt.NDArray[np.int64]

# Readers skip groups by their statistics; a group must fit into memory several times.
GROUP_ROWS_MAX = 128 * 1024
GROUP_BYTES_MAX = 64 * 1024 * 1024
# A group of fewer rows also gets those of the next stream: each column of each group costs a reader
# and a writer as much as some hundred rows.
GROUP_ROWS_MIN = 8 * 1024
# A search reads the groups that may hold its words, so where words have filters, groups are small.
SEARCHED_ROWS_MAX = 32 * 1024
# Its statistics would be whole lines, of no use.
NO_STATISTICS = ("line",)
# Columns that queries compare with one value. Readers skip a group if its Bloom filter excludes the
# value.
LOOKED_FOR = ("host", "pod")
# A filter is sized for so many values in a group: 2 KB for each.
LOOKED_FOR_VALUES = 1024
# This share of the groups without a value is read in vain.
FALSE_SHARE = 0.01
# Numbers of few values: a dictionary makes these columns smaller, too.
FEW_NUMBERS = ("partition",)
# Of few values, which differ from line to line: compression halves this column.
OFTEN_CHANGING = ("level",)
# So many rows of a column are encoded at once; fewer, as by default, take a tenth longer.
ENCODED_ROWS = 8192
# Numbers that rise, mostly by equal steps: in this encoding they are a tenth as large, and faster
# to write.
STEPS = ("seq", "idx", "ts", "event_ts", "offset")


class ParquetFile:
    """A file that is being written; rows are collected into groups. Columns in *filtered* get Bloom
    filters for so many values of a group; *words* gets the word filters of lines.
    """

    def __init__(
        self,
        file: BinaryIO,
        path: str,
        schema: pa.Schema,
        filtered: Mapping[str, int] | None = None,
        words: Filters | None = None,
    ) -> None:
        self._file = file
        self._path = path
        self._words = words
        self._rows_max = GROUP_ROWS_MAX if words is None else min(GROUP_ROWS_MAX, SEARCHED_ROWS_MAX)
        few = [name for name in schema.names if name in FEW_VALUES or name in FEW_NUMBERS]
        as_is = [name for name in few if name not in OFTEN_CHANGING]
        self._writer = pq.ParquetWriter(
            file,
            schema,
            # A column with a dictionary is a few bytes for each run of equal values. To compress
            # these saves next to nothing, and costs time in the writer and in each reader.
            compression={name: "none" if name in as_is else "zstd" for name in schema.names},
            use_dictionary=few,
            write_batch_size=ENCODED_ROWS,
            column_encoding={name: "DELTA_BINARY_PACKED" for name in schema.names if name in STEPS},
            write_statistics=[name for name in schema.names if name not in NO_STATISTICS],
            # Without it, all readers see plain types: dictionaries are a matter of the file.
            store_schema=False,
            write_page_checksum=True,
            bloom_filter_options={
                name: {"ndv": values, "fpp": FALSE_SHARE}
                for name, values in (filtered or {}).items()
            },
        )
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._waiting_bytes = 0
        self._bytes = 0
        self._times_us: tuple[int, ...] = ()
        self.rows = 0

    def __enter__(self) -> ParquetFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is None:
            self.end_group()
            self._writer.close()
            self._bytes = self.written_bytes
        else:
            # A file that failed is not shown: nothing more is written to it, not even when this
            # object is collected, after the file was closed.
            self._waiting = []
            self._writer.is_open = False

    def add(self, table: pa.Table) -> None:
        """Append rows."""
        if not table.num_rows:
            return
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        self._rows += table.num_rows
        self.rows += table.num_rows
        times = pc.min_max(table["ts"].cast(pa.int64())).as_py()
        seen_us = (*self._times_us, times["min"], times["max"])
        self._times_us = (min(seen_us), max(seen_us))
        if self._rows >= self._rows_max or self._waiting_bytes >= GROUP_BYTES_MAX:
            self.end_group()

    def end_large_group(self) -> None:
        """Write the collected rows, unless they are few: these wait for the next ones."""
        if self._rows >= GROUP_ROWS_MIN:
            self.end_group()

    def end_group(self) -> None:
        """Write the collected rows."""
        if self._waiting:
            # Arrow gives up dictionaries where one differs from that of the rows before.
            table = pa.concat_tables(self._waiting).unify_dictionaries()
            self._writer.write_table(table, row_group_size=self._rows_max)
            if self._words is not None:
                for first in range(0, table.num_rows, self._rows_max):
                    self._words.add(table["line"].slice(first, self._rows_max))
            self._waiting, self._rows, self._waiting_bytes = [], 0, 0

    @property
    def written_bytes(self) -> int:
        """The size of the file so far."""
        return self._file.tell()

    def entry(self) -> FileEntry:
        """Return the entry of the file, once it is written."""
        return FileEntry(
            path=self._path,
            rows=self.rows,
            bytes=self._bytes,
            first_us=min(self._times_us),
            last_us=max(self._times_us),
        )


def filtered_of(lines: pa.Table) -> dict[str, int]:
    """Return the columns of a file of *lines* that get Bloom filters: those of `LOOKED_FOR`, and
    texts for which the user declared columns. These are sized by the stream with the most values:
    groups of rows are of one stream, where it has many rows.
    """
    filtered = dict.fromkeys(LOOKED_FOR, LOOKED_FOR_VALUES)
    declared = [
        field.name
        for field in lines.schema
        if field.name not in LINES_SCHEMA.names
        and field.name != FIELDS
        and field.type == pa.string()
    ]
    if declared:
        keys = [pc.cast(lines[name], pa.string()) for name in LIFE]
        texts = pa.table([*keys, *(lines[name] for name in declared)], [*LIFE, *declared])
        counted = texts.group_by(LIFE).aggregate([(name, "count_distinct") for name in declared])
        for name in declared:
            values = int(pc.max(counted[f"{name}_count_distinct"]).as_py() or 0)
            filtered[name] = min(max(values, LOOKED_FOR_VALUES), GROUP_ROWS_MAX)
    return filtered


@contextmanager
def checked_file(
    storage: Storage, path: str, *, dictionaries: Sequence[str] = (), whole_bytes: int | None = None
) -> Iterator[pq.ParquetFile]:
    """Open a file of a table; its pages are checked as they are read. Columns in *dictionaries* are
    read as dictionaries. A file of which all is needed is read at once, if its size is given.

    Raises:
        Damaged: it is missing, or not what was written.
        OSError: the storage refuses it now.
    """
    with (
        reporting_damage(storage, path),
        storage.open(path) if whole_bytes is None else _whole(storage, path, whole_bytes) as raw,
        pq.ParquetFile(
            raw,
            page_checksum_verification=True,
            read_dictionary=list(dictionaries),
        ) as file,
    ):
        yield file


def _whole(storage: Storage, path: str, size_bytes: int) -> pa.BufferReader:
    found = storage.read_range(path, 0, size_bytes)
    if found is None:
        raise FileNotFoundError(path)
    return pa.BufferReader(found)


@contextmanager
def reporting_damage(storage: Storage, path: str) -> Iterator[None]:
    """Turn Arrow's errors about a damaged file into one sentence.

    Raises:
        Damaged: it is missing, or not what was written.
    """
    try:
        yield
    except (pa.ArrowInvalid, FileNotFoundError) as error:
        raise _damaged(storage, path, error) from error
    except OSError as error:
        # Arrow raises a plain OSError for a changed page, and for bytes that are no page. An error
        # of a disk has a number, and one of a bucket its own type.
        if type(error) is OSError and error.errno is None:
            raise _damaged(storage, path, error) from error
        raise


def _damaged(storage: Storage, path: str, error: Exception) -> Damaged:
    what = f"{storage.url}/{path} cannot be read ({error})"
    return Damaged(f"{what}: run verify, and restore it.")


def plain(schema: pa.Schema) -> pa.Schema:
    """Return *schema* as readers see it."""
    return pa.schema([pa.field(field.name, _plain(field.type)) for field in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
# Files that a task writes at once; the ranges of a batch are of one hour or two, unless it is far
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
    """Write the tables of *ranges*, each with rows in order, and return the files.

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
            writer.end_range()
        writer.end()
    return writer.entries


def in_hours(tables: Iterable[pa.Table], unit_us: int = HOUR_US) -> Iterator[tuple[int, pa.Table]]:
    """Cut *tables* where an hour begins; return the number of the hour with each part.

    If a server's clock was set back by little, some lines go into the hour after their own, so that
    a range does not go to and fro between two hours. After more than that they go into their own
    hour: it was the earlier ones whose time was wrong. The files depend on nothing but the rows.
    """
    reached = 0
    for table in tables:
        if not table.num_rows:
            continue
        times = table["ts"].cast(pa.int64()).to_numpy()
        units = _settled(times // unit_us, reached)
        reached = int(units[-1])
        starts = [0, *(np.flatnonzero(np.diff(units)) + 1).tolist()]
        for start, end in zip(starts, [*starts[1:], table.num_rows], strict=True):
            yield int(units[start]), table.slice(start, end - start)


def _settled(units: Numbers, reached: int) -> Numbers:
    """Return *units* without falls of one, after one that had *reached* its own."""
    settled = units.copy()
    start = 0
    while start < len(units):
        highest = np.maximum(np.maximum.accumulate(units[start:]), reached)
        falls = np.flatnonzero(highest - units[start:] > 1)
        end = start + int(falls[0]) if len(falls) else len(units)
        settled[start:end] = highest[: end - start]
        start, reached = end, 0
    return settled


@dataclass(frozen=True, slots=True)
class _Open:
    """A file that is being written; closing *stack* finishes it."""

    file: ParquetFile
    stack: ExitStack


class _HourWriter:
    """The open files by their folders, in the order in which they were opened."""

    def __init__(self, storage: Storage, name: FileName, area: str) -> None:
        self._storage = storage
        self._name = name
        self._area = area
        self._open: dict[str, _Open] = {}
        # The number of finished files in each folder.
        self._parts: dict[str, int] = {}
        self.stack = ExitStack()
        self.entries: list[FileEntry] = []

    def add(self, hour: datetime, table: pa.Table) -> None:
        folder = hour_folder(hour, self._area)
        # A range hardly ever returns to an hour: so only one group waits in memory, instead of one
        # for each file.
        self._end_groups(but=folder)
        if folder not in self._open:
            if len(self._open) >= OPEN_MAX:
                self._end(next(iter(self._open)))
            name = replace(self._name, part=self._parts.get(folder, 0))
            # If something fails, none of them is finished.
            stack = self.stack.enter_context(ExitStack())
            path = f"{folder}/{name}"
            raw = stack.enter_context(self._storage.create(path))
            file = stack.enter_context(ParquetFile(raw, path, table.schema))
            self._open[folder] = _Open(file, stack)
        self._open[folder].file.add(table)

    def end_range(self) -> None:
        """A range has all its rows. If they are many, they have groups of their own, so that
        statistics tell of their hosts.
        """
        for each in self._open.values():
            each.file.end_large_group()

    def _end_groups(self, *, but: str) -> None:
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
