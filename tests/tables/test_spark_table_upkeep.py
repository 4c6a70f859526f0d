"""Files fall into hours, hours that are over become few files, old ones go, and verify tells."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.snapshots import Snapshot

from logpipeline_spark.errors import Damaged, Refused
from logpipeline_spark.formats.iceberg import IcebergLog
from logpipeline_spark.formats.log import GRACE_HOURS
from logpipeline_spark.lines.schema import LINES, LINES_ENCODED
from logpipeline_spark.table import compaction as compact_module
from logpipeline_spark.table import upkeep as upkeep_module
from logpipeline_spark.table.compaction import Sizes, due
from logpipeline_spark.table.files import FileEntry, FileName, Range, folder_of
from logpipeline_spark.table.keys import groups_of, merged
from logpipeline_spark.table.parquet import in_hours, plain, write_range
from logpipeline_spark.table.scan import files as files_of
from logpipeline_spark.table.scan import tables
from logpipeline_spark.table.state import States
from logpipeline_spark.table.storage import LocalStorage
from logpipeline_spark.table.upkeep import Limits
from logpipeline_spark.table.verify import Report
from logpipeline_spark.table.verify import verify as verify_table
from logpipeline_spark.table.writer import COUNTS, TableWriter
from tables.erased import FORMATS, Lake, in_order, mixed
from tables.erased import rows_of as rows_without
from tables.made import (
    BEGIN,
    LIFE,
    STREAM,
    batch,
    counted_batch,
    kept,
    lines,
    logs,
    opened,
    table_files,
    upkeep,
)

OVER = BEGIN + timedelta(days=1)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path)


@pytest.fixture
def table(storage: LocalStorage) -> TableWriter:
    """A table of four batches of two streams, and of marked lines between others."""
    table = opened(storage)
    batch(table, storage, "0", 1, 40)
    batch(table, storage, "1", 41, 100)
    batch(table, storage, "2", 1, 70, stream="LOGS_1")
    only_first = lines(101, 140, idxs=[0])
    only_second = lines(101, 140, idxs=[1])
    added = write_range(storage, [only_first], FileName(STREAM, LIFE, 101, 140, 1))
    added += write_range(storage, [only_second], FileName(STREAM, LIFE, 101, 140, 1, "resent"))
    table.commit_batch("3", {STREAM: Range(LIFE, 101, 140)}, added, kept(table))
    return table


def files(storage: LocalStorage) -> list[FileEntry]:
    """Return the files of lines that count."""
    return files_of(logs(storage))


def verify(storage: LocalStorage) -> Report:
    """Read the whole table, and compare."""
    return verify_table(storage, logs(storage))


def rows_of(storage: LocalStorage) -> list[dict[str, object]]:
    """Read all rows by the log, by key."""
    found = pa.concat_tables(tables(storage, files(storage), LINES))
    order = [(name, "ascending") for name in ("stream", "incarnation", "seq", "idx")]
    return list(found.sort_by(order).to_pylist())


@given(st.lists(st.integers(-300, 300), max_size=60), st.integers(1, 7))
def test_rows_keep_their_order_and_go_into_their_hour_or_the_next(
    minutes: list[int], size: int
) -> None:
    """However a server's clock jumps; a small jump back does not begin an hour again."""
    times = [BEGIN + timedelta(minutes=minute) for minute in minutes]
    rows = pa.table({"ts": pa.array(times, pa.timestamp("us", tz="UTC"))})
    parts = [rows.slice(start, size) for start in range(0, rows.num_rows, size)]

    cut = list(in_hours(parts))

    hours = [hour for hour, _ in cut]
    assert all(hour - following != 1 for hour, following in pairwise(hours))
    assert [time for _, part in cut for time in part["ts"].to_pylist()] == times
    for hour, part in cut:
        own = {int(time.timestamp()) // 3600 for time in part["ts"].to_pylist()}
        assert own <= {hour, hour - 1}


def test_the_same_lines_in_other_portions_are_the_same_files(tmp_path: Path) -> None:
    """A task that is repeated reads the same range, though not in the same portions."""
    whole = lines(1, 150)
    name = FileName(STREAM, LIFE, 1, 150, 1)
    one, other = LocalStorage(tmp_path / "one"), LocalStorage(tmp_path / "other")
    write_range(one, [whole], name)
    write_range(other, [whole.slice(0, 7), whole.slice(7, 0), whole.slice(7)], name)

    assert table_files(tmp_path / "one") == table_files(tmp_path / "other")
    for path in table_files(tmp_path / "one"):
        assert pq.read_table(tmp_path / "one" / path).equals(
            pq.read_table(tmp_path / "other" / path)
        )


def test_tasks_may_give_columns_of_few_values_as_dictionaries(storage: LocalStorage) -> None:
    """Portions with dictionaries of their own become one file, of plain types to its readers."""
    parts = [lines(1, 20).cast(LINES_ENCODED), lines(21, 40, text="bye").cast(LINES_ENCODED)]
    (entry,) = write_range(storage, parts, FileName(STREAM, LIFE, 1, 40, 1))

    found = pq.read_table(Path(storage.url) / entry.path, partitioning=None)

    assert found.schema.equals(LINES)
    expected = pa.concat_tables([lines(1, 20), lines(21, 40, text="bye")])
    assert found.to_pylist() == expected.to_pylist()
    assert (entry.rows, entry.bytes) == (80, (Path(storage.url) / entry.path).stat().st_size)
    assert plain(LINES_ENCODED).equals(LINES)


def test_an_empty_range_is_no_file(storage: LocalStorage) -> None:
    """A range whose messages were all deleted is committed without a file."""
    assert write_range(storage, [LINES.empty_table()], FileName(STREAM, LIFE, 1, 9, 1)) == []
    assert table_files(Path(storage.url)) == set()


def test_compaction_keeps_rows_and_order(storage: LocalStorage, table: TableWriter) -> None:
    """Each hour becomes one file, sorted by key, with every row as it was."""
    before = rows_of(storage)

    upkeep(storage).compact(OVER)

    entries = files(storage)
    assert [entry.path.split("/")[2] for entry in entries] == ["hour=10", "hour=11", "hour=12"]
    assert rows_of(storage) == before
    for entry in entries:
        found = pq.read_table(Path(storage.url) / entry.path).to_pylist()
        keys = [(row["stream"], row["incarnation"], row["seq"], row["idx"]) for row in found]
        assert keys == sorted(keys)
    assert table_files(Path(storage.url)) > {entry.path for entry in entries}
    assert verify(storage).problems == ()


def test_compaction_leaves_what_is_being_written_and_what_is_large(
    storage: LocalStorage, table: TableWriter
) -> None:
    """An hour that is not over stays, and so does a large file; nothing is done twice."""
    sizes = Sizes()
    assert due(files(storage), BEGIN + timedelta(hours=1), sizes) == []
    one_hour = due(files(storage), BEGIN + timedelta(hours=1, minutes=10), sizes)
    assert [merge.folder[-2:] for merge in one_hour] == ["10"]
    assert due(files(storage), OVER, Sizes(small_bytes=10)) == []

    upkeep(storage).compact(OVER)

    assert due(files(storage), OVER, sizes) == []


def test_compaction_makes_parts_of_about_the_size_asked_for(
    storage: LocalStorage, table: TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour that is larger than one file becomes several, which can be merged again."""
    monkeypatch.setattr("logpipeline_spark.table.parquet.GROUP_ROWS_MAX", 10)
    before = rows_of(storage)

    upkeep(storage).compact(OVER, Sizes(target_bytes=4000, small_bytes=100_000))
    assert len(files(storage)) > 3
    assert rows_of(storage) == before
    upkeep(storage).compact(OVER)

    assert len(files(storage)) == 3
    assert rows_of(storage) == before


def test_what_was_merged_is_not_merged_again() -> None:
    """Also where the size that is asked for is below what is small else."""
    target = 1024 * 1024
    parts = [target + 5, target + 7, target // 3]
    names = [f"lines/dt=2026-11-21/hour=10/compacted-{number}.parquet" for number in range(3)]
    entries = [FileEntry(name, 1, size, 0, 0) for name, size in zip(names, parts, strict=True)]

    assert due(entries, OVER, Sizes.of(target)) == []


def test_merging_holds_a_few_groups_only(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rows there are, what comes out at once is no more than two groups of rows."""
    monkeypatch.setattr("logpipeline_spark.table.parquet.GROUP_ROWS_MAX", 10)
    whole = lines(1, 50)
    parts = [whole.slice(start, 10) for start in range(0, 100, 10)]
    entries = write_range(storage, parts, FileName(STREAM, LIFE, 1, 50, 1))
    marked = lines(1, 50, idxs=[2]).filter([seq % 10 == 0 for seq in range(1, 51)])
    entries += write_range(storage, [marked], FileName(STREAM, LIFE, 1, 50, 1, "resent"))
    groups = [group for entry in entries for group in groups_of(storage, entry.path)]

    found = list(merged(storage, groups, LINES))

    assert max(part.num_rows for part in found) <= 20
    keys = [(row["seq"], row["idx"]) for part in found for row in part.to_pylist()]
    assert keys == sorted(keys)
    assert len(keys) == 105


def test_old_hours_go_as_a_whole(storage: LocalStorage, table: TableWriter) -> None:
    """By age, hours that ended before; by size, the oldest first; never the newest."""
    by_age = Limits(age=timedelta(hours=1))
    upkeep(storage).retain(BEGIN + timedelta(hours=2), by_age)
    assert {entry.path.split("/")[2] for entry in files(storage)} == {"hour=11", "hour=12"}
    upkeep(storage).retain(OVER, Limits(total_bytes=1))
    assert {entry.path.split("/")[2] for entry in files(storage)} == {"hour=12"}

    assert verify(storage).is_well


def test_verify_says_what_is_well(storage: LocalStorage, table: TableWriter) -> None:
    """The whole table in a few sentences."""
    assert verify(storage).sentences() == [
        "9 files with 420 rows are committed.",
        f"LOGS_0 ({LIFE}): 1 to 140.",
        f"LOGS_1 ({LIFE}): 1 to 70.",
        "The table is well.",
    ]


@pytest.mark.parametrize("is_pruned", [False, True])
def test_verify_beside_a_job_finds_no_damage(
    storage: LocalStorage, table: TableWriter, is_pruned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that comes while it reads is in the files and in the state, or in the state alone."""
    load, first = States.load, [141]

    def load_late(self: States, transaction: int) -> Any:
        found = load(self, transaction)
        if first:
            begin = first.pop()
            batch(table, storage, "late", begin, begin + 9)
            if is_pruned:
                raise Damaged("removed by its writer")
        return found

    monkeypatch.setattr(States, "load", load_late)

    assert verify(storage).problems == ()


def damaged(storage: LocalStorage, table: TableWriter, what: str) -> Report:
    """Do something to a table that nobody should, and verify it."""
    entry = files(storage)[0]
    path = Path(storage.url) / entry.path
    if what == "gone":
        path.unlink()
    elif what == "cut":
        path.write_bytes(path.read_bytes()[:-10])
    elif what == "garbage":
        path.write_bytes(bytes(entry.bytes))
    elif what == "twice":
        added = write_range(storage, [lines(1, 5)], FileName(STREAM, LIFE, 141, 145, 1))
        table.commit_batch("4", {STREAM: Range(LIFE, 141, 145)}, added, kept(table))
    elif what == "outside":
        added = write_range(storage, [lines(150, 151)], FileName(STREAM, LIFE, 141, 145, 1))
        table.commit_batch("4", {STREAM: Range(LIFE, 141, 145)}, added, kept(table))
    return verify(storage)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("gone", "is committed, and is missing."),
        ("cut", "were committed."),
        ("garbage", "cannot be read"),
        (
            "twice",
            f"A line is in the table twice: stream LOGS_0, incarnation {LIFE}, seq 1, idx 0.",
        ),
        ("outside", "4 rows of LOGS_0"),
    ],
)
def test_verify_finds_damage(
    storage: LocalStorage, table: TableWriter, what: str, said: str
) -> None:
    """Whatever is missing, changed, doubled or of no range is named."""
    report = damaged(storage, table, what)

    assert not report.is_well
    assert any(said in problem for problem in report.problems)
    assert report.sentences()[-1] == "The table is damaged."


def test_compaction_of_a_damaged_hour_changes_no_file_of_it(
    storage: LocalStorage, table: TableWriter
) -> None:
    """It says which file cannot be read, and leaves that hour as it was."""
    entry = files(storage)[0]
    (Path(storage.url) / entry.path).write_bytes(bytes(entry.bytes))
    of_hour = f"{folder_of(entry.path)}/"

    def stored() -> set[str]:
        return {path for path in table_files(Path(storage.url)) if path.startswith(of_hour)}

    before = stored()
    with pytest.raises(Damaged, match=r"cannot be read.*run verify"):
        upkeep(storage).compact(OVER)

    assert before == stored() <= {each.path for each in files(storage)}


def test_files_stay_for_those_who_read_them_and_go_at_last(
    storage: LocalStorage, table: TableWriter
) -> None:
    """What was merged stays as long as a reader may need it, as does what a task writes now; then
    both go, and what counts stays.
    """
    path = Path(storage.url)
    former = table_files(path)
    left = write_range(storage, [lines(141, 150)], FileName(STREAM, LIFE, 141, 150, 1))
    keeper = upkeep(storage)
    keeper.compact(OVER)
    keeper.clean(OVER)
    assert table_files(path) >= former | {entry.path for entry in left}

    # As if hours had passed: delta-rs asks the files, and the clock.
    old = (datetime.now(UTC) - timedelta(hours=GRACE_HOURS + 1)).timestamp()
    for name in table_files(path):
        os.utime(path / name, (old, old))
    _age_log(path, hours=GRACE_HOURS + 1)
    upkeep(storage).clean(datetime.now(UTC))

    assert table_files(path) == {entry.path for entry in files(storage)}
    assert verify(storage).is_well


def _age_log(path: Path, *, hours: int) -> None:
    """Let what a log says of removals have happened *hours* ago."""
    for commit in (path / "lines" / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] -= hours * 3_600_000
        commit.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def test_of_two_who_merge_the_same_files_one_does_it(
    storage: LocalStorage, table: TableWriter
) -> None:
    """The log takes one of them; the other says so, and nothing is doubled."""
    before = rows_of(storage)
    first, second = upkeep(storage), upkeep(storage)
    merge = compact_module.write_merged

    def merged_meanwhile(*arguments: Any, **options: Any) -> list[FileEntry]:
        monkeypatch.undo()
        assert first.compact(OVER) != []
        return merge(*arguments, **options)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(upkeep_module, "write_merged", merged_meanwhile)
        assert second.compact(OVER) == []

    assert rows_of(storage) == before
    assert verify(storage).is_well


def test_each_changed_bit_of_a_line_is_found(storage: LocalStorage, tmp_path: Path) -> None:
    """By verify, which names the file, and by who reads: nobody gets another text."""
    table = opened(storage)
    # Nothing that could be compressed, where another bit is another letter and no more.
    rows = pa.concat_tables(
        lines(number, number, text=hashlib.sha256(b"%d" % number).hexdigest())
        for number in range(1, 60)
    )
    added = write_range(storage, [rows], FileName(STREAM, LIFE, 1, 59, 1))
    table.commit_batch("0", {STREAM: Range(LIFE, 1, 59)}, added, kept(table))
    [path] = [entry.path for entry in files(storage)]
    file = tmp_path / path
    whole, before = file.read_bytes(), rows_of(storage)
    with pq.ParquetFile(file) as parquet:
        column = parquet.metadata.row_group(0).column(LINES.get_field_index("line"))
    end = column.data_page_offset + column.total_compressed_size
    for at in range(end - 1, end - column.total_compressed_size // 2, -97):
        changed = bytearray(whole)
        changed[at] ^= 1
        file.write_bytes(changed)
        report = verify(storage)

        assert any(path in problem for problem in report.problems), at
        with pytest.raises(Damaged, match=path):
            rows_of(storage)
    file.write_bytes(whole)

    assert verify(storage).is_well
    assert rows_of(storage) == before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_counts_whose_writer_died_wait_for_the_next_one_however_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Their files are in no log yet, and still no clean-up takes them."""
    lake = FORMATS[name](tmp_path)

    def die(self: TableWriter, area: str) -> None:
        raise InterruptedError(area)

    table = lake.open()
    with monkeypatch.context() as patch:
        patch.setattr(TableWriter, "_count", die)
        with pytest.raises(InterruptedError):
            counted_batch(table, lake.storage, 1, 40)
    lake.age(hours=GRACE_HOURS + 1)

    upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))
    lake.open()

    counted = [files_of(lake.new_logs(), area=area) for area in COUNTS]
    assert all(counted)
    assert lake.problems == ()
    lake.age(hours=GRACE_HOURS + 1)
    left = write_range(lake.storage, [lines(41, 50)], FileName(STREAM, LIFE, 41, 50, 1))
    lake.age(hours=GRACE_HOURS + 1)
    upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))
    assert lake.problems == ()
    assert not {entry.path for entry in left} & table_files(Path(lake.storage.url))


def expiring(folder: Path) -> tuple[Lake, TableWriter]:
    """Return an Iceberg table whose former snapshots are due, and its writer."""
    lake = FORMATS["iceberg"](folder)
    table = lake.filled(3)
    lake.age(hours=GRACE_HOURS + 1)
    return lake, table


def done_before(
    monkeypatch: pytest.MonkeyPatch, method: str, owner: type = SqlCatalog
) -> list[Callable[[], object]]:
    """Return a list: what is put into it is done before the next call of a *method* of *owner*, by
    default of the catalogue.
    """
    faster: list[Callable[[], object]] = []
    own = getattr(owner, method)

    def overtaken(self: object, *arguments: Any, **named: Any) -> Any:
        if faster:
            faster.pop()()
        return own(self, *arguments, **named)

    monkeypatch.setattr(owner, method, overtaken)
    return faster


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_who_commits_at_the_same_time_hinders_neither_a_clean_up_nor_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalogue takes one of two changes of an Iceberg table; the other is tried again."""
    lake, table = expiring(tmp_path)
    before = len(list(lake.new_logs()["lines"].history()))
    # Between its look at the table and its change.
    faster = done_before(monkeypatch, "_update_and_stage_table")
    faster.append(lambda: lake.batch(table, 61, 80))
    upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))
    assert faster == []
    assert len(list(lake.new_logs()["lines"].history())) < before

    faster.append(lambda: upkeep(lake.storage, lake.new_logs()).compact(OVER))
    lake.open()

    assert faster == []
    assert lake.rows() == in_order(mixed(1, 80))
    assert lake.problems == ()


def test_who_removes_files_at_the_same_time_hinders_no_clean_up_of_delta(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It removes what was needed by no version when it looked."""
    lake = FORMATS["delta"](tmp_path)
    lake.filled()
    assert upkeep(lake.storage, lake.new_logs()).compact(OVER)
    lake.age(hours=GRACE_HOURS + 1)
    vacuum = DeltaTable.vacuum
    limits = Limits(age=timedelta(hours=1))
    faster = [lambda: upkeep(lake.storage, lake.new_logs()).retain(OVER, limits)]

    def overtaken(self: DeltaTable, **options: Any) -> list[str]:
        if faster:
            assert faster.pop()()
        return vacuum(self, **options)

    monkeypatch.setattr(DeltaTable, "vacuum", overtaken)
    upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))

    assert faster == []
    assert lake.problems == ()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_of_two_clean_ups_at_once_both_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one has expired, the other finds gone."""
    lake, _ = expiring(tmp_path)
    # Before it looks at the table.
    faster = done_before(monkeypatch, "commit_table")
    faster.append(lambda: upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC)))
    upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))

    assert faster == []
    assert lake.rows() == in_order(mixed(1, 60))
    assert lake.problems == ()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("erases", [False, True])
def test_a_clean_up_goes_on_where_another_one_removed_what_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, erases: bool
) -> None:
    """It has looked at the table, and the lists of files of a former snapshot are gone since; so do
    they under an erasure that waits for no reader.
    """
    lake, _ = expiring(tmp_path)
    faster = done_before(monkeypatch, "manifests", Snapshot)
    faster.append(lambda: upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC)))
    if erases:
        lake.erasure(host="web2").erase(datetime.now(UTC), has_grace=False)
    else:
        upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))

    assert faster == []
    wanted = rows_without(1, 60, without=lambda row: erases and row["host"] == "web2")
    assert lake.rows() == wanted
    assert lake.problems == ()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_list_of_files_that_nobody_expired_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a damage, and no clean-up of another process."""
    lake, _ = expiring(tmp_path)
    log = lake.new_logs()["lines"]
    assert isinstance(log, IcebergLog)
    loaded = log._loaded()
    assert loaded is not None
    lists = [Path(each.manifest_list.removeprefix("file://")) for each in loaded.snapshots()]
    lists[-1].unlink()

    with pytest.raises(Refused, match="Failed to open local file"):
        log.keep_up(datetime.now(UTC))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_descriptions_of_changes_that_came_second_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalogue refuses a change whose description is written already; nothing else names it."""
    lake, table = expiring(tmp_path)

    def written() -> set[str]:
        return {path.name for path in Path(lake.storage.url).rglob("_iceberg/lines/**/*.json")}

    faster = done_before(monkeypatch, "_update_and_stage_table")
    faster.append(lambda: lake.batch(table, 61, 80))
    upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))
    left = written()
    lake.age(hours=GRACE_HOURS + 1)
    upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))

    log = lake.new_logs()["lines"]
    assert isinstance(log, IcebergLog)
    loaded = log._loaded()
    assert loaded is not None
    former = {Path(each.metadata_file).name for each in loaded.metadata.metadata_log}
    assert written() == former | {Path(loaded.metadata_location).name}
    assert left - written()
    assert lake.rows() == in_order(mixed(1, 80))
