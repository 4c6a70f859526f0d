"""Compaction: many small files of an hour that is over become few large ones.

A log replaces the old files by the new ones in one version. The old files stay for a while, for
readers that began before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from logpipeline.parts import in_parts
from logpipeline_spark.errors import Damaged
from logpipeline_spark.lines.schema import KEY, encoded
from logpipeline_spark.table.files import (
    FileEntry,
    compacted_name,
    end_of,
    folder_of,
    has_lines,
    is_of_time,
)
from logpipeline_spark.table.order import by_source, in_windows
from logpipeline_spark.table.parquet import ParquetFile, checked_file, filtered_of
from logpipeline_spark.table.scan import fitted
from logpipeline_spark.table.storage import Storage
from logpipeline_spark.table.word_filters import Filters

# Large enough that a footer costs nothing, small enough that a reader shares an hour's work.
TARGET_BYTES = 256 * 1024 * 1024
SMALL_BYTES = 128 * 1024 * 1024
# Batches that ran when an hour ended are committed by then.
GRACE = timedelta(minutes=10)
# Files and groups of rows are read at once up to this size: to read a group alone costs as much as
# some hundred rows.
READ_BYTES_MAX = 16 * 1024 * 1024
# So many files are merged at once; an hour with more takes several rounds.
FILES_MAX = 2000


@dataclass(frozen=True, slots=True)
class Sizes:
    """Files below *small_bytes* are merged, into files of about *target_bytes*."""

    target_bytes: int = TARGET_BYTES
    small_bytes: int = SMALL_BYTES

    @classmethod
    def of(cls, target_bytes: int) -> Sizes:
        """Return sizes with which merged files never count as small."""
        return cls(target_bytes, min(SMALL_BYTES, target_bytes // 2))


@dataclass(frozen=True, slots=True)
class Merge:
    """The files of one hour that are merged."""

    folder: str
    sources: tuple[FileEntry, ...]


def due(files: Iterable[FileEntry], now: datetime, sizes: Sizes) -> list[Merge]:
    """Return the merges that are worth it in hours that are over, the oldest hour first. Files that
    another program put elsewhere are its own to merge.
    """
    small = defaultdict(list)
    for entry in files:
        if entry.bytes < sizes.small_bytes and is_of_time(entry.path):
            small[folder_of(entry.path)].append(entry)
    return [
        Merge(folder, tuple(sorted(entries, key=_when)[:FILES_MAX]))
        for folder, entries in sorted(small.items())
        if len(entries) > 1 and end_of(folder) + GRACE <= now
    ]


def write_merged(
    storage: Storage, merge: Merge, schema: pa.Schema, *, sizes: Sizes, has_words: bool = False
) -> list[FileEntry]:
    """Write the files that replace those of *merge*; with *has words*, also their word filters.

    Raises:
        Damaged: a file is missing or cannot be read.
    """
    entries: list[FileEntry] = []
    schema = encoded(schema)
    writer = Parts(storage, merge.folder, schema, entries, has_words=has_words)
    with writer.stack:
        for window in in_windows(_tables(storage, merge.sources, schema)):
            for table in by_source(window):
                writer.add(table, is_new_group=True, sizes=sizes, sample=window)
        writer.end()
    expected, written = _rows(merge.sources), _rows(entries)
    assert expected == written, f"{merge.folder}: {expected} rows became {written}"
    return entries


def _tables(
    storage: Storage, entries: Iterable[FileEntry], schema: pa.Schema
) -> Iterator[pa.Table]:
    """Give the rows of *entries* file by file, some groups of rows at a time."""
    dictionaries = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    for entry in entries:
        whole = entry.bytes if entry.bytes <= READ_BYTES_MAX else None
        with checked_file(
            storage, entry.path, dictionaries=dictionaries, whole_bytes=whole
        ) as file:
            for numbers in _runs(file):
                # With one thread: batches are written meanwhile, and small groups cost less so.
                read = file.read_row_groups(numbers, columns=schema.names, use_threads=False)
                table = fitted(read, schema)
                if any(table[name].null_count for name in KEY):
                    raise Damaged(
                        f"{storage.url}/{entry.path} has a row without a key: run verify, and "
                        "restore it."
                    )
                yield table


def _runs(file: pq.ParquetFile) -> Iterator[list[int]]:
    """Give the numbers of the groups of *file*, as many at once as have so many bytes."""
    return in_parts(
        range(file.num_row_groups),
        lambda number: int(file.metadata.row_group(number).total_byte_size),
        size_max=READ_BYTES_MAX,
    )


def _when(entry: FileEntry) -> tuple[int, str]:
    """Return what sorts files as their rows were stored."""
    return entry.first_us, entry.path


class Parts:
    """The files that a merge writes, of which at most one is open. Where it *has words*, each gets
    word filters.
    """

    def __init__(
        self,
        storage: Storage,
        folder: str,
        schema: pa.Schema,
        entries: list[FileEntry],
        *,
        has_words: bool = False,
    ) -> None:
        self._storage = storage
        self._has_words = has_words
        self._folder = folder
        self._schema = schema
        # No other merge, of any process, writes files of this name.
        self._number = uuid4().hex
        self._entries = entries
        self._file: ParquetFile | None = None
        self._words: Filters | None = None
        self.stack = ExitStack()

    def add(
        self,
        table: pa.Table,
        *,
        is_new_group: bool,
        sizes: Sizes,
        sample: pa.Table | None = None,
    ) -> None:
        """Append rows. A *new group* of rows begins with them, unless the last one has few rows. A
        *sample* has rows of the next groups as well.
        """
        if self._file is not None and self._file.written_bytes >= sizes.target_bytes:
            self.end()
        if self._file is None:
            name = compacted_name(number=self._number, part=len(self._entries))
            path = f"{self._folder}/{name}"
            raw = self.stack.enter_context(self._storage.create(path))
            self._words = Filters() if self._has_words else None
            like = table if sample is None else sample
            filtered = filtered_of(like) if has_lines(path) else None
            file = ParquetFile(raw, path, self._schema, filtered, self._words)
            self._file = self.stack.enter_context(file)
        elif is_new_group:
            self._file.end_large_group()
        self._file.add(table)

    def end(self) -> None:
        """Finish the open file."""
        if self._file is not None:
            file, self._file = self._file, None
            self.stack.close()
            self._entries.append(file.entry())
            if self._words is not None:
                self._words.write(self._storage, file.entry())


def _rows(entries: Iterable[FileEntry]) -> int:
    return sum(entry.rows for entry in entries)
