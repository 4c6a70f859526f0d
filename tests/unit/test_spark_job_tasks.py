"""How the ranges of a batch are shared among tasks, and what a task's files hold of them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline_spark.job import task as running
from logpipeline_spark.job.task import bundled
from logpipeline_spark.lines.schema import LINES, NONE, encoded_schema_of
from logpipeline_spark.source.offsets import Position
from logpipeline_spark.source.planning import TASK_BYTES_MAX, TASK_BYTES_MIN
from logpipeline_spark.source.ranges import RangeTask
from logpipeline_spark.table.counts import MINUTES, SOURCES, added, by_minute, by_source, counted
from logpipeline_spark.table.files import FileEntry, FileName
from logpipeline_spark.table.parquet import OPEN_MAX, ParquetFile, write_ranges
from logpipeline_spark.table.storage import LocalStorage
from tables.made import BEGIN, LIFE, lines

CREATED = "2026-11-21T00:00:00Z"
HOUR = timedelta(hours=1)


def part(number: int, size_bytes: int) -> RangeTask:
    """A range of one stream, in one message of such a size."""
    end = Position(
        created=CREATED, rollbacks=0, sequence=1, time_ns=1, after=0, message_bytes=size_bytes
    )
    return RangeTask(stream=f"LOGS_{number}", end=end, first=1, last=1)


def bytes_of(task: tuple[RangeTask, ...]) -> int:
    """What a task reads."""
    return sum(each.end.message_bytes for each in task)


@given(st.lists(st.integers(1, 2**28), min_size=1, max_size=200), st.integers(1, 64))
def test_ranges_are_shared_in_their_order(sizes: list[int], at_once: int) -> None:
    """Each is read by one task, and none has more than its share and the half of two ranges."""
    parts = [part(number, size) for number, size in enumerate(sizes)]

    tasks = [task.parts for task in bundled(parts, at_once)]

    assert [each for task in tasks for each in task] == parts
    worth = max(min(at_once, -(-sum(sizes) // TASK_BYTES_MIN)), 1)
    needed = max(worth, -(-sum(sizes) // TASK_BYTES_MAX))
    assert len(tasks) <= needed
    assert max(map(bytes_of, tasks)) <= sum(sizes) / needed + max(sizes) + 1


def test_a_hundred_small_streams_are_read_by_as_many_tasks_as_run_at_once() -> None:
    """And not by a hundred, each with a connection and three files."""
    tasks = bundled([part(number, TASK_BYTES_MIN) for number in range(100)], 4)

    assert [len(task.parts) for task in tasks] == [25, 25, 25, 25]


def test_a_few_lines_of_a_hundred_streams_are_read_by_one_task() -> None:
    """To start others, and to merge their files, would cost more."""
    (task,) = bundled([part(number, TASK_BYTES_MIN // 100) for number in range(100)], 4)

    assert len(task.parts) == 100


def written(folder: Path, *hours: range) -> list[FileEntry]:
    """Write for each of *hours* a range of a stream of its own, two lines for each hour."""
    ranges = [
        [lines(hour + 1, hour + 1, stream=f"S_{number}", begin=BEGIN + hour * HOUR)
         for hour in found]
        for number, found in enumerate(hours)
    ]  # fmt: skip
    name = FileName("S_0", LIFE, 1, 99, writer=1, more=len(hours) - 1)
    return write_ranges(LocalStorage(folder), ranges, name)


def test_lines_of_many_streams_and_one_hour_are_one_file(tmp_path: Path) -> None:
    """Streams with few lines share a group of rows."""
    entries = written(tmp_path, range(2), range(1), range(1))

    assert [entry.rows for entry in entries] == [6, 2]
    with pq.ParquetFile(tmp_path / entries[0].path) as file:
        groups = [file.metadata.row_group(number).column(0) for number in range(2)]
    assert [(each.statistics.min, each.statistics.max) for each in groups] == [
        ("S_0", "S_0"), ("S_1", "S_2"),
    ]  # fmt: skip


def test_streams_that_share_a_group_of_rows_keep_their_dictionaries(tmp_path: Path) -> None:
    """Numbers for their names are so few bytes that compression would only cost readers time."""
    schema, step = encoded_schema_of(NONE), timedelta(seconds=1)
    streams = [f"S_{number}" for number in range(3)]
    many = [[lines(1, 2000, stream=stream, step=step).cast(schema)] for stream in streams]
    name = FileName("S_0", LIFE, 1, 2000, writer=1, more=2)
    (entry,) = write_ranges(LocalStorage(tmp_path), many, name)

    with pq.ParquetFile(tmp_path / entry.path) as file:
        columns = [file.metadata.row_group(0).column(number) for number in range(len(LINES))]
    found = {each.path_in_schema: each for each in columns}
    assert found["stream"].total_uncompressed_size < 200
    assert {found[name].compression for name in ("stream", "host", "partition")} == {"UNCOMPRESSED"}
    assert {found[name].compression for name in ("line", "level", "seq")} == {"ZSTD"}


def test_a_task_that_comes_back_to_an_hour_writes_another_file(tmp_path: Path) -> None:
    """No more files are open than may be, and none is written twice."""
    hours = range(OPEN_MAX + 2)
    entries = written(tmp_path / "one", hours, hours)
    again = written(tmp_path / "two", hours, hours)

    assert sum(entry.rows for entry in entries) == 2 * 2 * len(hours)
    assert len({entry.path for entry in entries}) == len(entries)
    assert any(".part1." in entry.path for entry in entries)
    assert again == entries
    for entry in entries:
        assert pq.read_table(tmp_path / "one" / entry.path).num_rows == entry.rows


def test_rows_of_one_hour_alone_wait_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several files are open, and a group of rows of each would need several times the memory."""
    waiting: dict[int, int] = {}
    most: list[int] = []
    add, end_group = ParquetFile.add, ParquetFile.end_group

    def adding(file: ParquetFile, table: pa.Table) -> None:
        add(file, table)
        waiting[id(file)] = 1
        most.append(sum(waiting.values()))

    def ending(file: ParquetFile) -> None:
        end_group(file)
        waiting[id(file)] = 0

    monkeypatch.setattr(ParquetFile, "add", adding)
    monkeypatch.setattr(ParquetFile, "end_group", ending)
    written(tmp_path, range(OPEN_MAX), range(OPEN_MAX))

    assert max(most) == 1


@pytest.mark.parametrize("rows_max", [1, 5, 1000])
def test_counts_of_a_task_are_those_of_all_its_lines(
    rows_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many tables of however many streams are counted at once."""
    monkeypatch.setattr(running, "WAITING_ROWS_MAX", rows_max)
    tables = [
        lines(number + 1, number + 3, stream=f"S_{number}", text="x" * number)
        .set_column(LINES.get_field_index("host"), "host", pa.array([f"node-{number}"] * 6))
        .cast(encoded_schema_of(NONE))
        for number in range(4)
    ]
    counts = running._Counts()
    for table in tables:
        counts.add(table)

    found = counts.all()
    assert by_minute(found) == added(map(by_minute, map(counted, tables)), MINUTES)
    assert by_source(found) == added(map(by_source, map(counted, tables)), SOURCES)
    assert sum(found["lines"].to_pylist()) == 4 * 6
