"""Compaction: many small files of an hour that is over become few large ones.

A log replaces the old files by the new ones in one version. The old files stay for a while, for
readers that began before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from logpipeline_spark.errors import Damaged
from logpipeline_spark.lines.schema import encoded
from logpipeline_spark.table.files import (
    FileEntry,
    compacted_name,
    end_of,
    folder_of,
    has_lines,
    is_of_time,
)
from logpipeline_spark.table.parquet import ParquetFile, checked_file, filtered_of
from logpipeline_spark.table.scan import fitted
from logpipeline_spark.table.storage import Storage
from logpipeline_spark.table.word_filters import Filters

# Sorted by what queries select first. Rows of a source keep the order of the stream, and so of
# time.
BY = ("cluster", "host", "namespace", "pod", "container", "source")
# So much is sorted at once: some groups of rows, each of few hosts, of one incarnation of one
# stream. It is in memory three times.
PORTION_BYTES_MAX = 128 * 1024 * 1024
# Beyond this, ranks are numbered again, so that the next factor still fits.
_RANK_MAX = 1 << 40

_Numbers = npt.NDArray[np.int64]

KEY = ("stream", "incarnation", "seq", "idx")

# Large enough that a footer costs nothing, small enough that a reader shares an hour's work.
TARGET_BYTES = 256 * 1024 * 1024
SMALL_BYTES = 128 * 1024 * 1024
# Batches that ran when an hour ended are committed by then.
GRACE = timedelta(minutes=10)
# So many files are merged at once; an hour with more takes several rounds.
FILES_MAX = 2000


def in_portions(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Concatenate consecutive *tables*, each of one incarnation of one stream, as far as they have
    the same one and fit into memory.
    """
    waiting: list[pa.Table] = []
    size, life = 0, None
    for table in tables:
        found = (table["stream"][0].as_py(), table["incarnation"][0].as_py())
        if waiting and (found != life or size + table.nbytes > PORTION_BYTES_MAX):
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
        waiting.append(table)
        size, life = size + table.nbytes, found
    if waiting:
        yield pa.concat_tables(waiting)


def by_source(table: pa.Table) -> pa.Table:
    """Return the rows of *table* sorted by source; rows of a source keep their order. The columns
    of `BY` are dictionaries of strings.
    """
    if not table.num_rows:
        return table
    table = table.unify_dictionaries().combine_chunks()
    ranks = np.zeros(table.num_rows, np.int64)
    for name in BY:
        found, count = _ranks(table[name])
        if ranks.max() >= _RANK_MAX:
            ranks = _dense(ranks)
        ranks = ranks * count + found
    ranks = _dense(ranks)
    if np.all(ranks[1:] >= ranks[:-1]):
        return table
    # Small numbers are sorted by counting.
    small = ranks.astype(np.uint16) if ranks.max() < 1 << 16 else ranks
    return table.take(pa.array(np.argsort(small, kind="stable")))


def _ranks(column: pa.ChunkedArray) -> tuple[_Numbers, int]:
    """Return for each row of *column*, whose chunks share a dictionary, the rank of its value
    (nulls last), and how many ranks there may be.
    """
    values = column.chunk(0).dictionary
    rank_of = np.empty(len(values) + 1, np.int64)
    rank_of[pc.sort_indices(values).to_numpy()] = np.arange(len(values))
    rank_of[-1] = len(values)
    indices = [chunk.indices.fill_null(len(values)).to_numpy() for chunk in column.chunks]
    return rank_of[np.concatenate(indices)], len(rank_of)


def _dense(ranks: _Numbers) -> _Numbers:
    """Return ranks in the same order without gaps."""
    encoded = pa.array(ranks).dictionary_encode()
    values = encoded.dictionary.to_numpy()
    rank_of = np.empty(len(values), np.int64)
    rank_of[np.argsort(values)] = np.arange(len(values))
    found: _Numbers = rank_of[encoded.indices.to_numpy()]
    return found


# Files seldom overlap: the file of a range has all of its sequences, but for the few lines of
# marked messages. So groups are taken in the order of their first row, and all rows before the
# first row of the next group are ready.
@dataclass(frozen=True, slots=True, order=True)
class Group:
    """The rows of one incarnation of one stream in a group of rows of a file. Where the file's
    group *is mixed*, it has rows of others, too, or does not say so.
    """

    stream: str
    incarnation: str
    first: int
    path: str
    number: int
    is_mixed: bool = False

    @property
    def life(self) -> tuple[str, str]:
        """The stream and the incarnation of its sequences."""
        return self.stream, self.incarnation


def groups_of(storage: Storage, path: str) -> list[Group]:
    """Read from a file's footer where its groups begin. Another program's groups may have rows of
    several streams: there the keys are read.

    Raises:
        Damaged: it is no file of a table.
    """
    try:
        with checked_file(storage, path) as file:
            return [group for n in range(file.num_row_groups) for group in _groups(file, path, n)]
    except (AttributeError, KeyError) as error:
        raise Damaged(
            f"{storage.url}/{path} cannot be read ({error}): run verify, and restore it."
        ) from error


def merged(storage: Storage, groups: Sequence[Group], schema: pa.Schema) -> Iterator[pa.Table]:
    """Give the rows of *groups* in the order of (stream, incarnation, seq, idx); a table has one
    incarnation. Columns that are dictionaries in *schema* are read as such.
    """
    ordered = sorted(groups)
    pending = schema.empty_table()
    for group, following in zip_longest(ordered, ordered[1:]):
        pending = pa.concat_tables([pending, _read(storage, group, schema)])
        if following is None or following.life != group.life:
            ready, pending = pending, schema.empty_table()
        else:
            ready, pending = _cut(pending, following.first)
        if ready.num_rows:
            yield _in_order(ready)


def _read(storage: Storage, group: Group, schema: pa.Schema) -> pa.Table:
    dictionaries = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    with checked_file(storage, group.path, dictionaries=dictionaries) as file:
        table = fitted(file.read_row_group(group.number, columns=schema.names), schema)
    if not group.is_mixed:
        return table
    is_here = (pc.equal(table[name], said) for name, said in zip(KEY, group.life, strict=False))
    return table.filter(pc.and_(*is_here))


def _cut(table: pa.Table, first: int) -> tuple[pa.Table, pa.Table]:
    """Return the rows before the sequence *first*, and the others."""
    is_before = pc.less(table["seq"], first)
    if pc.all(is_before).as_py():
        # The usual case: nothing is copied.
        return table, table.schema.empty_table()
    return table.filter(is_before), table.filter(pc.invert(is_before))


def _in_order(table: pa.Table) -> pa.Table:
    """Return the rows of one incarnation in the order of (seq, idx)."""
    seq, idx = (table[name].to_numpy() for name in KEY[2:])
    is_behind = (seq[1:] > seq[:-1]) | ((seq[1:] == seq[:-1]) & (idx[1:] >= idx[:-1]))
    return table if is_behind.all() else table.sort_by([(name, "ascending") for name in KEY[2:]])


def _groups(file: pq.ParquetFile, path: str, number: int) -> Iterator[Group]:
    meta = file.metadata.row_group(number)
    columns = {meta.column(n).path_in_schema: meta.column(n) for n in range(meta.num_columns)}
    stream, incarnation, seq = (columns[name].statistics for name in KEY[:3])
    is_said = all(each is not None and each.has_min_max for each in (stream, incarnation, seq))
    if is_said and (stream.min, incarnation.min) == (stream.max, incarnation.max):
        yield Group(stream.min, incarnation.min, seq.min, path, number)
        return
    # Another program that merges files knows nothing of streams.
    keys = file.read_row_group(number, columns=list(KEY[:3]))
    for row in keys.group_by(list(KEY[:2])).aggregate([("seq", "min")]).to_pylist():
        if None in row.values():
            raise KeyError("a row has no key")
        first = row["seq_min"]
        yield Group(row["stream"], row["incarnation"], first, path, number, is_mixed=True)


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
        Merge(folder, tuple(sorted(entries, key=lambda entry: entry.path)[:FILES_MAX]))
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
    groups = [group for entry in merge.sources for group in groups_of(storage, entry.path)]
    entries: list[FileEntry] = []
    schema = encoded(schema)
    writer = Parts(storage, merge.folder, schema, entries, has_words=has_words)
    with writer.stack:
        for portion in in_portions(merged(storage, groups, schema)):
            # A group has one incarnation of one stream, so that it can be merged again by its
            # statistics.
            writer.add(by_source(portion), is_new_group=True, sizes=sizes)
        writer.end()
    expected, written = _rows(merge.sources), _rows(entries)
    assert expected == written, f"{merge.folder}: {expected} rows became {written}"
    return entries


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

    def add(self, table: pa.Table, *, is_new_group: bool, sizes: Sizes) -> None:
        """Append rows."""
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
        """Finish the open file."""
        if self._file is not None:
            file, self._file = self._file, None
            self.stack.close()
            self._entries.append(file.entry())
            if self._words is not None:
                self._words.write(self._storage, file.entry())


def _rows(entries: Iterable[FileEntry]) -> int:
    return sum(entry.rows for entry in entries)
