"""Make few large files of the many small ones of an hour that is over.

A log takes the new files for the old ones in one version, and the old ones stay for those who read
them by then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import uuid4

import pyarrow as pa

from logpipeline_spark.lines.schema import encoded
from logpipeline_spark.table.entry import FileEntry
from logpipeline_spark.table.filters import Filters
from logpipeline_spark.table.merge import groups_of, merged
from logpipeline_spark.table.names import compacted_name, end_of, folder_of, has_lines
from logpipeline_spark.table.order import by_source, in_portions
from logpipeline_spark.table.parquet import ParquetFile, filtered_of
from logpipeline_spark.table.storage import Storage

# Large enough that a footer costs nothing, small enough that a reader shares an hour's work.
TARGET_BYTES = 256 * 1024 * 1024
SMALL_BYTES = 128 * 1024 * 1024
# Batches that were under way when an hour ended are committed by then.
GRACE = timedelta(minutes=10)
# How many files are merged at once; an hour with more takes several rounds.
FILES_MAX = 2000


@dataclass(frozen=True, slots=True)
class Sizes:
    """Files below *small_bytes* are merged, into files of about *target_bytes*."""

    target_bytes: int = TARGET_BYTES
    small_bytes: int = SMALL_BYTES

    @classmethod
    def of(cls, target_bytes: int) -> Sizes:
        """Return sizes of which what was merged is never small again."""
        return cls(target_bytes, min(SMALL_BYTES, target_bytes // 2))


@dataclass(frozen=True, slots=True)
class Merge:
    """The files of one hour that become fewer."""

    folder: str
    sources: tuple[FileEntry, ...]


def due(files: Iterable[FileEntry], now: datetime, sizes: Sizes) -> list[Merge]:
    """Return what is worth merging in hours that are over, the oldest hour first."""
    small = defaultdict(list)
    for entry in files:
        if entry.bytes < sizes.small_bytes:
            small[folder_of(entry.path)].append(entry)
    return [
        Merge(folder, tuple(sorted(entries, key=lambda entry: entry.path)[:FILES_MAX]))
        for folder, entries in sorted(small.items())
        if len(entries) > 1 and end_of(folder) + GRACE <= now
    ]


def write_merged(
    storage: Storage, merge: Merge, schema: pa.Schema, *, sizes: Sizes, has_words: bool = False
) -> list[FileEntry]:
    """Write the files that are to replace *merge*'s; where they are to *have words*, with filters
    of them.

    Raises:
        Damaged: a file is missing or cannot be read.
    """
    groups = [group for entry in merge.sources for group in groups_of(storage, entry.path)]
    entries: list[FileEntry] = []
    schema = encoded(schema)
    writer = Parts(storage, merge.folder, schema, entries, has_words=has_words)
    with writer.stack:
        for portion in in_portions(merged(storage, groups, schema)):
            # A group is of one stream's life, so that it can be merged again by its statistics.
            writer.add(by_source(portion), is_new_group=True, sizes=sizes)
        writer.end()
    expected, written = _rows(merge.sources), _rows(entries)
    assert expected == written, f"{merge.folder}: {expected} rows became {written}"
    return entries


class Parts:
    """The part that is open, if any, of the files that a merge makes; where it *has words*, each
    gets filters of them.
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
        # No other merge, whoever does it, writes files of this name.
        self._number = uuid4().hex
        self._entries = entries
        self._file: ParquetFile | None = None
        self._words: Filters | None = None
        self.stack = ExitStack()

    def add(self, table: pa.Table, *, is_new_group: bool, sizes: Sizes) -> None:
        """Write rows behind those that are there."""
        if self._file is not None and self._file.written_bytes >= sizes.target_bytes:
            self.end()
        if self._file is None:
            name = compacted_name(number=self._number, part=len(self._entries))
            path = f"{self._folder}/{name}"
            raw = self.stack.enter_context(self._storage.create(path))
            self._words = Filters() if self._has_words else None
            filtered = filtered_of(table) if has_lines(path) else None
            file = ParquetFile(raw, path, self._schema, filtered, self._words)
            self._file = self.stack.enter_context(file)
        elif is_new_group:
            self._file.end_group()
        self._file.add(table)

    def end(self) -> None:
        """Finish the part that is open."""
        if self._file is not None:
            file, self._file = self._file, None
            self.stack.close()
            self._entries.append(file.entry())
            if self._words is not None:
                self._words.write(self._storage, file.entry())


def _rows(entries: Iterable[FileEntry]) -> int:
    return sum(entry.rows for entry in entries)
