"""How Parquet files of a table are made and opened: the same for what tasks write and what
compaction does. Each page has a checksum, so that no bit of a column reads back as another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from logpipeline_spark.lines.columns import FIELDS
from logpipeline_spark.lines.schema import FEW_VALUES, LINES
from logpipeline_spark.table.damage import Damaged
from logpipeline_spark.table.entry import FileEntry
from logpipeline_spark.table.filters import Filters
from logpipeline_spark.table.storage import Storage

# Readers skip groups by their statistics; a group must fit into memory several times.
GROUP_ROWS_MAX = 128 * 1024
GROUP_BYTES_MAX = 64 * 1024 * 1024
# Statistics of it would hold whole lines, and help nobody.
NO_STATISTICS = ("line",)
# What is looked for by one value. Where a group's Bloom filter denies it, readers skip the group.
LOOKED_FOR = ("host", "pod")
# Values of them in a group that a filter is made for: 2 KB for each.
LOOKED_FOR_VALUES = 1024
# Of the groups that do not hold a value, so many are read all the same.
FALSE_SHARE = 0.01
# Numbers that rise, mostly by the same step: so they are a tenth as large, and faster to write.
STEPS = ("seq", "idx", "ts", "event_ts", "offset")


class ParquetFile:
    """One file that is being written: rows are collected into groups. Columns of *filtered* get
    Bloom filters, for so many values in a group; *words* gets those of lines.
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
        self._writer = pq.ParquetWriter(
            file,
            schema,
            compression="zstd",
            use_dictionary=[name for name in schema.names if name in FEW_VALUES],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in schema.names if name in STEPS},
            write_statistics=[name for name in schema.names if name not in NO_STATISTICS],
            # Without it all readers see plain types: a dictionary is a matter of the file.
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
            # What is not finished is not shown: nothing more is written, not even when this is
            # collected, to a file that is closed by then.
            self._waiting = []
            self._writer.is_open = False

    def add(self, table: pa.Table) -> None:
        """Add rows after those that are there."""
        if not table.num_rows:
            return
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        self._rows += table.num_rows
        self.rows += table.num_rows
        times = pc.min_max(table["ts"].cast(pa.int64())).as_py()
        seen_us = (*self._times_us, times["min"], times["max"])
        self._times_us = (min(seen_us), max(seen_us))
        if self._rows >= GROUP_ROWS_MAX or self._waiting_bytes >= GROUP_BYTES_MAX:
            self.end_group()

    def end_group(self) -> None:
        """Write what was collected."""
        if self._waiting:
            table = pa.concat_tables(self._waiting)
            self._writer.write_table(table, row_group_size=GROUP_ROWS_MAX)
            if self._words is not None:
                for first in range(0, table.num_rows, GROUP_ROWS_MAX):
                    self._words.add(table["line"].slice(first, GROUP_ROWS_MAX))
            self._waiting, self._rows, self._waiting_bytes = [], 0, 0

    @property
    def written_bytes(self) -> int:
        """How large the file is by now."""
        return self._file.tell()

    def entry(self) -> FileEntry:
        """Say what has been written, once it is."""
        return FileEntry(
            path=self._path,
            rows=self.rows,
            bytes=self._bytes,
            first_us=min(self._times_us),
            last_us=max(self._times_us),
        )


def filtered_of(lines: pa.Table) -> dict[str, int]:
    """Return which columns of a file of *lines* get Bloom filters: those of `LOOKED_FOR`, and texts
    that people have columns of their own for.
    """
    filtered = dict.fromkeys(LOOKED_FOR, LOOKED_FOR_VALUES)
    for field in lines.schema:
        if field.name not in LINES.names and field.name != FIELDS and field.type == pa.string():
            values = int(pc.count_distinct(lines[field.name]).as_py())
            filtered[field.name] = min(max(values, LOOKED_FOR_VALUES), GROUP_ROWS_MAX)
    return filtered


@contextmanager
def checked_file(
    storage: Storage, path: str, *, dictionaries: Sequence[str] = ()
) -> Iterator[pq.ParquetFile]:
    """Open a file of a table, whose pages are checked as they are read; columns of *dictionaries*
    are read as such.

    Raises:
        Damaged: it is missing, or not what was written.
        OSError: the storage does not give it now.
    """
    with (
        damage_said(storage, path),
        storage.open(path) as raw,
        pq.ParquetFile(
            raw, page_checksum_verification=True, read_dictionary=list(dictionaries)
        ) as file,
    ):
        yield file


@contextmanager
def damage_said(storage: Storage, path: str) -> Iterator[None]:
    """Turn what Arrow raises of a damaged file into one sentence.

    Raises:
        Damaged: it is missing, or not what was written.
    """
    try:
        yield
    except (pa.ArrowInvalid, FileNotFoundError) as error:
        raise _damaged(storage, path, error) from error
    except OSError as error:
        # Arrow has no error of its own for a page that was changed, nor for what is no page. One of
        # a disk has a number, and one of a bucket a type of its own.
        if type(error) is OSError and error.errno is None:
            raise _damaged(storage, path, error) from error
        raise


def _damaged(storage: Storage, path: str, error: Exception) -> Damaged:
    what = f"{storage.url}/{path} cannot be read ({error})"
    return Damaged(f"{what}: run verify, and bring it back.")


def plain(schema: pa.Schema) -> pa.Schema:
    """Return *schema* as readers see it."""
    return pa.schema([pa.field(field.name, _plain(field.type)) for field in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
