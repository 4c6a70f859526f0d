"""Merged files have the rows of a source together: readers of one host pass over the others."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline_spark.lines.schema import LINES, LINES_ENCODED
from logpipeline_spark.table import compaction, parquet
from logpipeline_spark.table.compaction import (
    BY,
    Merge,
    Sizes,
    by_source,
    in_portions,
    write_merged,
)
from logpipeline_spark.table.files import FileEntry, FileName, folder_of
from logpipeline_spark.table.parquet import write_range
from logpipeline_spark.table.storage import LocalStorage
from tables.made import LIFE, STREAM, lines

HOSTS = [f"node-{number}" for number in range(8)]
NAMES = st.sampled_from(["a", "b", "é", "", None])
ROWS = st.lists(st.tuples(*[NAMES] * len(BY)), max_size=40)


def rows_of(names: list[tuple[str | None, ...]]) -> pa.Table:
    """Return a row for each of *names*, numbered as they come."""
    table = lines(1, max(len(names), 1), idxs=[0]).slice(0, len(names))
    for number, name in enumerate(BY):
        column = pa.array([row[number] for row in names], pa.string())
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table.cast(LINES_ENCODED)


def of_hosts(first: int, last: int) -> pa.Table:
    """Return lines of all `HOSTS` in turn."""
    table = lines(first, last, idxs=[0], step=timedelta())
    hosts = pa.array([HOSTS[number % len(HOSTS)] for number in range(table.num_rows)])
    pods = pa.array([f"pod-{number % 40}" for number in range(table.num_rows)])
    table = table.set_column(table.schema.get_field_index("host"), "host", hosts)
    return table.set_column(table.schema.get_field_index("pod"), "pod", pods)


@given(ROWS, ROWS, st.booleans())
def test_rows_stand_by_their_sources(
    one: list[tuple[str | None, ...]], other: list[tuple[str | None, ...]], is_far: bool
) -> None:
    """By name, nothing last; within a source as before; however many there may be."""
    table = pa.concat_tables([rows_of(one), rows_of(other)])
    expected = sorted(
        table.to_pylist(), key=lambda row: [(row[name] is None, row[name] or "") for name in BY]
    )

    with pytest.MonkeyPatch.context() as patch:
        if is_far:
            patch.setattr(compaction, "_RANK_MAX", 1)
        assert by_source(table).to_pylist() == expected


def test_a_portion_is_of_one_life_and_fits_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows come in their order, whatever they are cut into."""
    parts = [lines(1, 9), lines(10, 19), lines(20, 29), lines(1, 9, stream="LOGS_1")]
    monkeypatch.setattr(compaction, "PORTION_BYTES_MAX", parts[0].nbytes + parts[1].nbytes)

    portions = list(in_portions(iter(parts)))

    assert [portion.num_rows for portion in portions] == [38, 20, 18]
    assert pa.concat_tables(portions).equals(pa.concat_tables(parts))
    assert list(in_portions([])) == []


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
        assert groups_for(merged, pod) == [pod in each for each in held]


def groups_for(path: Path, pod: str) -> list[bool]:
    """Return into which groups DuckDB would look for *pod*."""
    sql = "SELECT bloom_filter_excludes FROM parquet_bloom_probe(?, 'pod', ?) ORDER BY row_group_id"
    answers = duckdb.execute(sql, [str(path), pod]).fetchall()
    return [not excludes for (excludes,) in answers]
