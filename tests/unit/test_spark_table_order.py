"""Merged files have the rows of a source together: readers of one host pass over the others."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline_spark.errors import Damaged
from logpipeline_spark.lines.schema import KEY, LINES, LINES_ENCODED
from logpipeline_spark.table import order, parquet
from logpipeline_spark.table.compaction import Merge, Sizes, write_merged
from logpipeline_spark.table.files import FileEntry, FileName, folder_of
from logpipeline_spark.table.order import BY, by_source, in_windows
from logpipeline_spark.table.parquet import write_range, write_ranges
from logpipeline_spark.table.storage import LocalStorage
from tables.made import LIFE, STREAM, lines

HOSTS = [f"node-{number}" for number in range(8)]
NAMES = st.sampled_from(["a", "b", "é", "", None])
LIVES = st.sampled_from(["x", "y"])
ROW = st.tuples(LIVES, LIVES, *[NAMES] * len(BY), st.integers(1, 4), st.integers(0, 2))
COLUMNS = (*KEY[:2], *BY, *KEY[2:])

Row = tuple[str | int | None, ...]


def rows_of(found: list[Row]) -> pa.Table:
    """Return a row for each of *found*, numbered as they come."""
    table = lines(1, max(len(found), 1), idxs=[0]).slice(0, len(found))
    for number, name in enumerate(COLUMNS):
        column = pa.array([row[number] for row in found], LINES.field(name).type)
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table.cast(LINES_ENCODED)


def of_hosts(first: int, last: int) -> pa.Table:
    """Return lines of all `HOSTS` in turn."""
    table = lines(first, last, idxs=[0], step=timedelta())
    hosts = pa.array([HOSTS[number % len(HOSTS)] for number in range(table.num_rows)])
    pods = pa.array([f"pod-{number % 40}" for number in range(table.num_rows)])
    table = table.set_column(table.schema.get_field_index("host"), "host", hosts)
    return table.set_column(table.schema.get_field_index("pod"), "pod", pods)


@given(st.lists(ROW, max_size=30), st.lists(ROW, max_size=30), st.booleans())
def test_rows_stand_by_their_sources(one: list[Row], other: list[Row], is_far: bool) -> None:
    """By name, nothing last; those of a source as they were stored; however many there may be."""
    table = pa.concat_tables([rows_of(one), rows_of(other)])
    expected = sorted(
        table.to_pylist(),
        key=lambda row: [
            (row[name] is None, "" if row[name] is None else row[name]) for name in COLUMNS
        ],
    )

    with pytest.MonkeyPatch.context() as patch:
        if is_far:
            patch.setattr(order, "_RANK_MAX", 1)
        parts = list(by_source(table))

    assert [row for part in parts for row in part.to_pylist()] == expected
    lives = [(row["stream"], row["incarnation"]) for row in expected]
    assert [part.num_rows for part in parts] == [len(list(same)) for _, same in groupby(lives)]


def test_a_window_fits_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows come in their order, whatever they are cut into."""
    parts = [lines(1, 9), lines(10, 19), lines(20, 29), lines(1, 9, stream="LOGS_1")]
    monkeypatch.setattr(order, "WINDOW_BYTES_MAX", parts[0].nbytes + parts[1].nbytes)

    windows = list(in_windows(iter(parts)))

    assert [window.num_rows for window in windows] == [38, 38]
    assert pa.concat_tables(windows).equals(pa.concat_tables(parts))
    assert list(in_windows([])) == []


class Counting(LocalStorage):
    """A folder that counts how often each file is opened."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.opened: Counter[str] = Counter()

    def open(self, path: str) -> BinaryIO:
        self.opened[path] += 1
        return super().open(path)

    def read_range(self, path: str, start: int, length: int) -> bytes | None:
        self.opened[path] += 1
        return super().read_range(path, start, length)


@pytest.mark.parametrize("window_bytes", [1, order.WINDOW_BYTES_MAX])
def test_a_merge_opens_each_file_once_however_many_streams_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window_bytes: int
) -> None:
    """And gives the same rows, however little fits into memory."""
    monkeypatch.setattr(order, "WINDOW_BYTES_MAX", window_bytes)
    monkeypatch.setattr(parquet, "GROUP_ROWS_MIN", 1)
    storage = Counting(tmp_path)
    entries: list[FileEntry] = []
    for first in range(1, 51, 10):
        parts = [[lines(first, first + 9, stream=f"LOGS_{number}")] for number in range(20)]
        name = FileName("LOGS_0", LIFE, first, first + 9, 1, more=19)
        entries += write_ranges(storage, parts, name)
    merge = Merge(folder_of(entries[0].path), tuple(entries))

    (written,) = write_merged(storage, merge, LINES, sizes=Sizes())

    assert storage.opened == {entry.path: 1 for entry in entries}
    found = pq.ParquetFile(tmp_path / written.path)
    groups = [found.read_row_group(number) for number in range(found.num_row_groups)]
    assert all(len(set(group["stream"].to_pylist())) == 1 for group in groups)
    keys = [list(zip(*(group[name].to_pylist() for name in KEY), strict=True)) for group in groups]
    assert all(key == sorted(key) for key in keys)
    expected = [
        (f"LOGS_{number}", LIFE, seq, idx)
        for number in range(20)
        for seq in range(1, 51)
        for idx in (0, 1)
    ]
    assert sorted(key for group in keys for key in group) == sorted(expected)


def test_a_row_without_a_key_is_not_merged(tmp_path: Path) -> None:
    """Another program wrote it; which line it is cannot be told."""
    storage = LocalStorage(tmp_path)
    rows = lines(1, 4)
    seqs = pa.array([1, None, *range(2, 8)], pa.int64())
    damaged = rows.set_column(rows.schema.get_field_index("seq"), "seq", seqs)
    entries = write_range(storage, [rows], FileName(STREAM, LIFE, 1, 4, 1))
    entries += write_range(storage, [damaged], FileName(STREAM, LIFE, 5, 8, 1))
    merge = Merge(folder_of(entries[0].path), tuple(entries))

    with pytest.raises(Damaged, match=r"5-8.*has a row without a key: run verify"):
        write_merged(storage, merge, LINES, sizes=Sizes())


@pytest.mark.parametrize(("rows_min", "groups"), [(1, 20), (100, 4), (1000, 1)])
def test_streams_with_few_lines_share_a_group_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_min: int, groups: int
) -> None:
    """One with many has its own, so that its statistics tell of its hosts."""
    monkeypatch.setattr(parquet, "GROUP_ROWS_MIN", rows_min)
    parts = [[lines(1, 10, stream=f"LOGS_{number}")] for number in range(20)]

    [entry] = write_ranges(LocalStorage(tmp_path), parts, FileName("LOGS_0", LIFE, 1, 10, 1))

    assert pq.ParquetFile(tmp_path / entry.path).num_row_groups == groups


@pytest.fixture
def merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that an hour of all hosts became; a group has an eighth of its rows."""
    monkeypatch.setattr(parquet, "GROUP_ROWS_MAX", 50)
    storage = LocalStorage(tmp_path)
    entries: list[FileEntry] = []
    for first in range(1, 401, 40):
        rows = of_hosts(first, first + 39)
        entries += write_range(storage, [rows], FileName(STREAM, LIFE, first, first + 39, 1))
    merge = Merge(folder_of(entries[0].path), tuple(entries))
    (written,) = write_merged(storage, merge, LINES, sizes=Sizes())
    return tmp_path / written.path


def test_a_group_of_rows_is_of_few_hosts(merged: Path) -> None:
    """Its statistics say so; in the files that were merged each group held all hosts."""
    file = pq.ParquetFile(merged)
    column = LINES.get_field_index("host")
    found = [
        file.metadata.row_group(number).column(column).statistics
        for number in range(file.num_row_groups)
    ]
    assert [(each.min, each.max) for each in found] == [(host, host) for host in HOSTS]


def test_a_filter_denies_pods_that_a_group_does_not_hold(merged: Path) -> None:
    """Statistics admit most of them: names of pods lie anywhere between the first and the last."""
    file = pq.ParquetFile(merged)
    held = [
        set(file.read_row_group(number, columns=["pod"])["pod"].to_pylist())
        for number in range(file.num_row_groups)
    ]
    for pod in ("pod-0", "pod-17", "pod-39", "pod-999"):
        assert groups_for(merged, "pod", pod) == [pod in each for each in held]


def test_filters_are_large_enough_for_the_largest_stream(tmp_path: Path) -> None:
    """Though rows of a small one come first: else nearly each group would be read for an id."""
    storage = LocalStorage(tmp_path)
    schema = pa.schema([*LINES, ("trace_id", pa.string())])
    entries: list[FileEntry] = []
    for stream, count in (("LOGS_0", 10), ("LOGS_1", 6000)):
        rows = lines(1, count, stream=stream, idxs=[0], step=timedelta())
        ids = pa.array([f"{stream}-{number}" for number in range(count)])
        rows = rows.append_column("trace_id", ids).cast(schema)
        entries += write_range(storage, [rows], FileName(stream, LIFE, 1, count, 1))
    merge = Merge(folder_of(entries[0].path), tuple(entries))

    (written,) = write_merged(storage, merge, schema, sizes=Sizes())

    path = tmp_path / written.path
    assert groups_for(path, "trace_id", "LOGS_1-4000") == [True]
    absent = [groups_for(path, "trace_id", f"absent-{number}") for number in range(200)]
    assert absent.count([True]) < 10


def groups_for(path: Path, column: str, value: str) -> list[bool]:
    """Return into which groups DuckDB would look for *value* in *column*."""
    sql = "SELECT bloom_filter_excludes FROM parquet_bloom_probe(?, ?, ?) ORDER BY row_group_id"
    answers = duckdb.execute(sql, [str(path), column, value]).fetchall()
    return [not excludes for (excludes,) in answers]
