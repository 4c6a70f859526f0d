"""A table's batches: each once, without holes, by one writer, and damage is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from logpipeline_spark.errors import Damaged, Refused
from logpipeline_spark.formats import delta as delta_module
from logpipeline_spark.formats.delta import DeltaLog
from logpipeline_spark.formats.log import Change, Log, Overtaken
from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.table import state as state_module
from logpipeline_spark.table import writer as writer_module
from logpipeline_spark.table.erasure import Condition
from logpipeline_spark.table.files import LINES as LINES_AREA
from logpipeline_spark.table.files import ROLLUP_MINUTE, ROLLUP_SOURCE, FileName, Range
from logpipeline_spark.table.parquet import write_range
from logpipeline_spark.table.scan import files, tables
from logpipeline_spark.table.state import Kept, States, WrongRange
from logpipeline_spark.table.storage import LocalStorage
from logpipeline_spark.table.verify import verify
from logpipeline_spark.table.writer import BEGIN_ATTEMPTS, PATIENCE_S, Held
from tables.made import (
    BEGIN,
    LIFE,
    STEP,
    STREAM,
    batch,
    counted_batch,
    kept,
    keys,
    lines,
    logs,
    opened,
    table_files,
    upkeep,
    write,
)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path)


def keys_of(storage: LocalStorage) -> list[tuple[object, ...]]:
    """Read all keys by the log, in their order."""
    schema = pa.schema([LINES.field(name) for name in ("stream", "incarnation", "seq", "idx")])
    found = pa.concat_tables(
        [schema.empty_table(), *tables(storage, files(logs(storage)), schema)]
    ).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def test_what_is_committed_is_read_with_its_state(storage: LocalStorage) -> None:
    """A batch's files, range and state are there for the next process."""
    table = opened(storage)
    batch(table, storage, "0", 1, 150)
    table.close()

    after = opened(storage, holder="another", wait=lambda seconds: pytest.fail("it waited"))

    assert keys_of(storage) == keys(1, 150)
    assert after.state.cover.end_of(STREAM) == Range(LIFE, 1, 150)
    assert (after.state.batch, after.state.batches, after.state.lines) == ("0", 1, 300)
    assert after.state.heads == {STREAM: 150}
    hours = sorted(entry.path.split("/")[2] for entry in files(logs(storage)))
    assert hours == ["hour=10", "hour=11", "hour=12"]


def test_other_programs_read_the_log_of_each_area(storage: LocalStorage) -> None:
    """What delta-rs knows of a table is what was committed: rows, columns, history."""
    table = opened(storage)
    counted_batch(table, storage, 1, 100)

    found = DeltaTable(f"{storage.url}/lines")

    assert found.to_pyarrow_table().num_rows == 200
    assert [field.name for field in found.schema().fields] == [*LINES.names, "dt", "hour"]
    assert {info["operation"] for info in found.history()} == {"CREATE TABLE", "WRITE"}
    assert [sum(counted(storage, area)) for area in (ROLLUP_MINUTE, ROLLUP_SOURCE)] == [200, 200]


def test_a_range_goes_on_where_the_last_one_ended(storage: LocalStorage) -> None:
    """Doubled lines and lines left out are refused; a hole that is named is kept as one."""
    table = opened(storage)
    batch(table, storage, "0", 1, 10)

    with pytest.raises(WrongRange, match="start at 11"):
        batch(table, storage, "1", 10, 20)
    with pytest.raises(WrongRange, match="leaves out"):
        batch(table, storage, "1", 12, 20)
    added = write(storage, 12, 20)
    ranges = {STREAM: Range(LIFE, 12, 20)}
    table.commit_batch("1", ranges, added, kept(table), skipped=frozenset([STREAM]))
    assert table.state.cover.read[STREAM] == (Range(LIFE, 1, 10), Range(LIFE, 12, 20))
    assert list(table.state.cover.missing()) == [(STREAM, Range(LIFE, 11, 11))]


def test_a_stream_that_began_anew_uses_sequences_again(storage: LocalStorage) -> None:
    """A new incarnation's ranges are its own; the former one does not come back."""
    table = opened(storage)
    table.commit_batch("0", {STREAM: Range("1r0", 1, 100)}, [], kept(table))
    table.commit_batch("1", {STREAM: Range("1r1", 81, 90)}, [], kept(table))

    assert table.state.cover.end_of(STREAM) == Range("1r1", 81, 90)
    with pytest.raises(WrongRange, match="as it is now"):
        table.commit_batch("2", {STREAM: Range("1r0", 101, 102)}, [], kept(table))


def test_rows_that_are_kept_cost_what_changes(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch writes what it changed, a start reads a bounded number of states, and gets all."""
    monkeypatch.setattr(state_module, "DIFFERENCES_MAX", 8)
    monkeypatch.setattr(state_module, "ROWS_MIN", 20)
    monkeypatch.setattr(writer_module, "STATES_KEPT_S", 0.0)
    table = opened(storage)
    known: dict[str, Any] = {str(number): uuid4().hex for number in range(1000)}
    written = []
    for number in range(60):
        key = str(number % 7)
        del known[key]
        known[key] = number
        changed = dict(known) if not number else {key: number}
        rows = Kept({"n": number}, changed, lambda: dict(known))
        table.commit_batch(
            str(number), {STREAM: Range(LIFE, number + 1, number + 1)}, [], {STREAM: rows}
        )
        written.append(len(storage.read(newest(storage)) or b""))
        table.prune()

    after = opened(storage)

    assert dict(after.rows[STREAM]) == known
    assert list(after.rows[STREAM]) == list(known), "what changed last stands last"
    assert after.state.heads[STREAM] == {"n": 59}
    assert len(list(storage.list("_table/state"))) <= 8 + 3
    assert sorted(written)[len(written) // 2] < written[0] / 20


def test_a_row_that_went_away_is_gone_after_a_start(storage: LocalStorage) -> None:
    """Sources are forgotten at last."""
    table = opened(storage)
    rows = {"a": 1, "b": 2}
    table.commit_batch("0", {}, [], {STREAM: Kept(0, rows, lambda: rows)})
    table.commit_batch("1", {}, [], {STREAM: Kept(0, {"a": None}, lambda: {"b": 2})})

    assert opened(storage).rows == {STREAM: {"b": 2}}


def newest(storage: LocalStorage) -> str:
    """Return the path of the last state."""
    return max(stored.path for stored in storage.list("_table/state"))


def test_files_are_found_by_time(storage: LocalStorage) -> None:
    """A reader that asks for a time gets the files of that time alone."""
    table = opened(storage)
    batch(table, storage, "0", 1, 150)

    found = files(logs(storage), since=BEGIN.replace(hour=11), until=BEGIN.replace(hour=12))

    assert [entry.path.split("/")[2] for entry in found] == ["hour=11"]


def test_times_that_spark_cut_to_milliseconds_leave_no_line_out(storage: LocalStorage) -> None:
    """Its OPTIMIZE writes the greatest time of a file so, which is before the last line then."""
    table = opened(storage)
    begin = BEGIN + timedelta(microseconds=400)
    added = write_range(
        storage, [lines(1, 3, begin=begin)], FileName(STREAM, LIFE, 1, 3, table.writer)
    )
    table.commit_batch("0", {STREAM: Range(LIFE, 1, 3)}, added, kept(table))
    commit = max(Path(storage.url).glob("lines/_delta_log/*.json"))
    commit.write_text(commit.read_text().replace("10:02:00.001Z", "10:02:00.000Z"))

    last = begin + 2 * STEP
    assert len(files(logs(storage), since=last)) == 1
    [entry] = files(logs(storage))
    assert Condition(host="node-a", since=last).may_be_in(entry)


@pytest.mark.parametrize("damage", ["cut", "bit", "gone", "log"])
def test_what_is_damaged_is_told_and_nothing_is_touched(storage: LocalStorage, damage: str) -> None:
    """One sentence says what to do; no file is taken for a leftover."""
    table = opened(storage)
    batch(table, storage, "0", 1, 10)
    path = Path(storage.url) / newest(storage)
    if damage == "log":
        path = Path(storage.url) / LINES_AREA / "_delta_log" / f"{1:020d}.json"
    raw = path.read_bytes()
    if damage in ("cut", "log"):
        path.write_bytes(raw[:-5])
    elif damage == "bit":
        path.write_bytes(raw[:-5] + bytes([raw[-5] ^ 1]) + raw[-4:])
    else:
        path.unlink()
    before = table_files(Path(storage.url))

    with pytest.raises(Damaged) as told:
        opened(storage)

    assert ("_delta_log" if damage == "log" else path.name) in str(told.value).replace(
        "/lines ", "/lines/_delta_log "
    )
    assert table_files(Path(storage.url)) == before


def test_what_was_never_committed_is_not_read(storage: LocalStorage) -> None:
    """A batch that was cut short leaves files that no reader of the log sees, and verify knows."""
    table = opened(storage)
    batch(table, storage, "0", 1, 10)
    (left,) = write(storage, 11, 20)
    storage.write("lines/theirs.parquet", b"")
    table.close()

    opened(storage)

    assert keys_of(storage) == keys(1, 10)
    report = verify(storage, logs(storage))
    assert report.is_well
    assert report.unneeded == (left.path,)
    assert report.strange == ("lines/theirs.parquet",)


def test_another_pipeline_is_refused(storage: LocalStorage) -> None:
    """A path belongs to the pipeline that began it."""
    opened(storage).close()

    with pytest.raises(Refused, match="pipeline default/demo, and this is other/one"):
        opened(storage, pipeline="other/one")


def test_a_table_of_a_former_version_is_refused(storage: LocalStorage) -> None:
    """Its list of files is nobody's any more: one sentence says what to do."""
    storage.write("_table/commits/00000000000000000000.json", b"commit 1")

    with pytest.raises(Refused, match=r"former version.*choose another path"):
        logs(storage)


def test_columns_may_come_and_never_go(storage: LocalStorage) -> None:
    """Old files read with a new column as null; who does not know one leaves it so, and merges keep
    what it holds.
    """
    older = pa.schema([field for field in LINES if field.name != "resent"])
    opened(storage, schema=older).close()
    table = opened(storage)
    batch(table, storage, "0", 1, 10)
    table.close()
    former = opened(storage, schema=older)
    added = write_range(
        storage,
        [lines(11, 20).drop_columns(["resent"])],
        FileName(STREAM, LIFE, 11, 20, former.writer),
    )
    former.commit_batch("1", {STREAM: Range(LIFE, 11, 20)}, added, kept(former))
    for _ in range(2):
        found = DeltaTable(f"{storage.url}/lines").to_pyarrow_table()
        assert found["resent"].null_count == 20
        assert found.num_rows == 40
        upkeep(storage).compact(BEGIN.replace(day=23))
    assert len(files(logs(storage))) == 1

    place = LINES.get_field_index("idx")
    with pytest.raises(Refused, match=r"column idx is int32.*another name"):
        opened(storage, schema=LINES.set(place, pa.field("idx", pa.int64())))


def test_who_goes_on_meanwhile_keeps_the_table(storage: LocalStorage) -> None:
    """Whoever sees another one commit while it waits is refused, and told by whom."""
    first = opened(storage, holder="first")
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        batch(first, storage, "0", 1, 10)

    with pytest.raises(Held, match=r"first writes .*: stop it"):
        opened(storage, holder="second", wait=wait)

    assert waited == [PATIENCE_S]
    batch(first, storage, "1", 11, 20)


def test_a_silent_writer_is_waited_for_and_loses_the_table(storage: LocalStorage) -> None:
    """It cannot commit any more, whatever it wrote: the successor's table is whole."""
    sleeper = opened(storage, holder="first")
    batch(sleeper, storage, "0", 1, 10)
    left = write(storage, 11, 20, writer=sleeper.writer)
    waited: list[float] = []
    successor = opened(storage, holder="second", wait=waited.append)
    assert waited == [PATIENCE_S]
    assert successor.writer != sleeper.writer
    batch(successor, storage, "1", 11, 15)

    with pytest.raises(Overtaken, match="meanwhile: stop one of them"):
        sleeper.commit_batch("1", {STREAM: Range(LIFE, 11, 20)}, left, kept(sleeper))

    assert keys_of(storage) == keys(1, 15)
    batch(successor, storage, "2", 16, 20)
    assert verify(storage, logs(storage)).is_well


@pytest.mark.parametrize("is_before", [True, False])
def test_a_writer_of_the_same_name_takes_the_table_at_once(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, is_before: bool
) -> None:
    """A former process's last batch comes before or after: it is committed, or refused."""
    former = opened(storage, holder="same")
    batch(former, storage, "0", 1, 10)
    done: list[str] = []

    def last() -> None:
        batch(former, storage, "1", 11, 20)
        done.append("committed")

    if is_before:
        # Between what the successor reads and what it commits.
        save = state_module.States.save

        def saved(self: state_module.States, *arguments: object) -> object:
            monkeypatch.setattr(state_module.States, "save", save)
            last()
            return save(self, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(state_module.States, "save", saved)
        successor = opened(storage, holder="same")
    else:
        successor = opened(storage, holder="same")
        with pytest.raises(Overtaken):
            last()

    end = successor.state.cover.end_of(STREAM)
    assert end == Range(LIFE, 1, 20 if is_before else 10)
    assert keys_of(storage) == keys(1, 20 if is_before else 10)


class Killed(BaseException):
    """What a process sees of its end."""


class Cut:
    """A log that lets nothing be committed: the writer is killed before."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def commit(self, change: Change) -> None:
        raise Killed


@pytest.mark.parametrize("area", [ROLLUP_MINUTE, ROLLUP_SOURCE])
def test_counts_follow_though_a_crash_kept_them_from_it(storage: LocalStorage, area: str) -> None:
    """Lines are committed first; the next start commits the counts of that batch, once."""
    counted_batch(opened(storage), storage, 1, 50)
    of = logs(storage)
    table = opened(storage, of={**of, area: Cut(of[area])})  # type: ignore[dict-item]
    with pytest.raises(Killed):
        counted_batch(table, storage, 51, 100)
    assert keys_of(storage) == keys(1, 100)
    assert sum(counted(storage, area)) == 100

    for _ in range(2):
        opened(storage)

    assert [sum(counted(storage, each)) for each in (ROLLUP_MINUTE, ROLLUP_SOURCE)] == [200, 200]


class Beside:
    """A log whose next commit comes behind that of another writer, which *call* makes."""

    def __init__(self, log: Log, call: Callable[[], None]) -> None:
        self._log = log
        self._calls = [call]

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def commit(self, change: Change) -> None:
        if self._calls:
            self._calls.pop()()
        self._log.commit(change)


@pytest.mark.parametrize("area", [ROLLUP_MINUTE, ROLLUP_SOURCE])
def test_counts_that_the_former_writer_commits_meanwhile_end_no_successor(
    storage: LocalStorage, area: str
) -> None:
    """Two writers would end each other: the former one by its next batch, this one by the counts
    of the last one.
    """
    counted_batch(opened(storage), storage, 1, 50)
    of = logs(storage)
    former = opened(storage, of={**of, area: Cut(of[area])})  # type: ignore[dict-item]
    with pytest.raises(Killed):
        counted_batch(former, storage, 51, 100)
    number = former.state.transaction
    files_of = former.state.counted.files[area]

    def goes_on() -> None:
        of[area].commit(Change(operation="WRITE", added=files_of, transaction=number))

    fresh = logs(storage)
    beside = Beside(fresh[area], goes_on)
    successor = opened(storage, of={**fresh, area: beside})  # type: ignore[dict-item]
    counted_batch(successor, storage, 101, 150)

    with pytest.raises(Overtaken):
        counted_batch(former, storage, 101, 150)
    assert keys_of(storage) == keys(1, 150)
    assert [sum(counted(storage, each)) for each in (ROLLUP_MINUTE, ROLLUP_SOURCE)] == [300, 300]


def counted(storage: LocalStorage, area: str) -> list[int]:
    """Return how many lines each row of counts says."""
    table = DeltaTable(f"{storage.url}/{area}").to_pyarrow_table()
    return [int(count) for count in table["lines"].to_pylist()]


def test_starts_that_failed_keep_no_later_one_from_the_table(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many writers wrote their state, and could not commit that they begin."""
    batch(opened(storage), storage, "1", 1, 10)

    def refuse(self: DeltaLog, change: Change) -> None:
        raise Refused("not now")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaLog, "commit", refuse)
        for _ in range(BEGIN_ATTEMPTS + 1):
            with pytest.raises(Refused, match="not now"):
                opened(storage)
    monkeypatch.setattr(writer_module, "STATES_KEPT_S", 0.0)
    table = opened(storage)
    batch(table, storage, "2", 11, 20)
    table.prune()

    assert keys_of(storage) == keys(1, 20)
    assert len(list(storage.list("_table/state"))) <= 2


def test_upkeep_beside_a_writer_disturbs_neither(storage: LocalStorage) -> None:
    """Batches go on over a compaction and a retention that came between two of them."""
    table, keeper = opened(storage), upkeep(storage)
    for number in range(0, 60, 10):
        batch(table, storage, str(number), number + 1, number + 10)
        if number == 30:
            assert keeper.compact(BEGIN.replace(day=23)) != []
            keeper.clean(BEGIN)
    batch(table, storage, "last", 61, 70)

    assert keys_of(storage) == keys(1, 70)
    assert verify(storage, logs(storage)).is_well


def test_a_commit_of_something_else_is_no_harm_unless_it_changes_the_table(
    storage: LocalStorage,
) -> None:
    """Another program may compact or remove; who changes columns or properties is told about."""
    table = opened(storage)
    batch(table, storage, "0", 1, 10)
    batch(table, storage, "1", 11, 20)
    DeltaTable(f"{storage.url}/lines").optimize.compact()
    batch(table, storage, "2", 21, 30)
    assert keys_of(storage) == keys(1, 30)

    DeltaTable(f"{storage.url}/lines").alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(Overtaken, match=r"Another program changed .*: start again"):
        batch(table, storage, "3", 31, 40)

    batch(opened(storage), storage, "3", 31, 40)
    assert keys_of(storage) == keys(1, 40)


def test_the_commits_of_a_log_cost_the_same_however_many_files_there_are(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch reads nothing of the log."""
    table = opened(storage)
    batch(table, storage, "0", 1, 10)
    read: list[str] = []
    whole: Callable[[LocalStorage, str], bytes | None] = LocalStorage.read

    def noted(self: LocalStorage, path: str) -> bytes | None:
        read.append(path)
        return whole(self, path)

    monkeypatch.setattr(LocalStorage, "read", noted)
    monkeypatch.setattr("logpipeline_spark.formats.delta.DeltaTable", None)

    batch(table, storage, "1", 11, 20)

    assert read == []
    log = Path(storage.url) / LINES_AREA / "_delta_log"
    info = json.loads((log / f"{3:020d}.json").read_text().splitlines()[0])
    assert info["commitInfo"]["isBlindAppend"] is True


class Resending(LocalStorage):
    """A storage that takes equal bytes for its own, as a bucket must: an answer may be lost, and
    the request be sent again.
    """

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return super().put_if_absent(path, data) or self.read(path) == data


def test_of_two_who_write_the_same_one_loses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two starts of the same name have the same state, and may commit it in the same moment."""
    monkeypatch.setattr(delta_module, "time", SimpleNamespace(time_ns=lambda: 0))
    storage = Resending(tmp_path)
    state = opened(storage).state
    following = replace(state, transaction=state.transaction + 1)
    pair = [logs(storage)[LINES_AREA] for _ in range(2)]
    for log in pair:
        log.transaction()

    assert States(storage).save(following, {}) is not None
    assert States(storage).save(following, {}) is None
    first, second = pair
    first.commit(Change(operation="WRITE", transaction=following.transaction))
    with pytest.raises(Overtaken):
        second.commit(Change(operation="WRITE", transaction=following.transaction))
