"""A process that was suspended (a laptop that slept, a paused machine) and goes on removes nothing
that others committed meanwhile, and deletes nothing that it committed itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse

from logpipeline_spark.formats import delta as delta_module
from logpipeline_spark.formats import iceberg as iceberg_module
from logpipeline_spark.formats import log as log_module
from logpipeline_spark.formats.delta import DeltaLog
from logpipeline_spark.formats.iceberg import IcebergLog
from logpipeline_spark.formats.log import Change, Conflict, Late, Log, Overtaken
from logpipeline_spark.table.files import LINES, ROLLUP_MINUTE, Range
from logpipeline_spark.table.storage import LocalStorage
from logpipeline_spark.table.writer import TableWriter
from tables.erased import FORMATS, SLEPT_HOURS, Evening, Lake, in_order, mixed
from tables.made import LIFE, STREAM, counted_batch, kept, upkeep

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


# Where a clean-up of each format may sleep, after it has read the log.
CLEAN_UPS: dict[str, tuple[type, str]] = {
    "delta": (DeltaLog, "_shorten"),
    "iceberg": (IcebergLog, "_expire"),
}


def _sleep_in_the_clean_up(
    format: str, area: str, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]
) -> list[bool]:
    """Let the clean-up of *area* sleep once, while *meanwhile* is done; return a list that is empty
    then.
    """
    owner, method = CLEAN_UPS[format]
    step, sleeps = getattr(owner, method), [True]

    def sleep(self: Any, *said: Any) -> None:
        if sleeps and self._area == area:
            sleeps.clear()
            meanwhile()
        step(self, *said)

    monkeypatch.setattr(owner, method, sleep)
    return sleeps


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_a_clean_up_that_slept_keeps_what_was_committed_meanwhile(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It removes only what was old before its sleep."""
    lake = FORMATS[format](tmp_path)
    table = lake.filled()

    def commit() -> None:
        lake.batch(table, 41, 60)
        lake.age(hours=SLEPT_HOURS)

    sleeps = _sleep_in_the_clean_up(format, LINES, monkeypatch, commit)
    upkeep(lake.storage, lake.new_logs()).clean(Evening.now(UTC))

    assert not sleeps
    assert lake.problems == ()
    assert in_order(lake.read()) == in_order(mixed(1, 60))


def test_an_iceberg_change_that_slept_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clean-up may have removed the lists of files that it wrote before it slept."""
    lake = FORMATS["iceberg"](tmp_path)
    lake.filled()
    replace, sleeps = IcebergLog._replace, [True]

    def sleep_after(self: IcebergLog, *change: Any) -> None:
        replace(self, *change)
        if sleeps:
            sleeps.clear()
            lake.age(hours=SLEPT_HOURS)
            monkeypatch.setattr(iceberg_module, "datetime", datetime)
            upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))

    log = lake.new_logs()[LINES]
    log.transaction()
    first, *others = sorted(log.files(), key=lambda entry: entry.first_us)
    monkeypatch.setattr(IcebergLog, "_replace", sleep_after)
    monkeypatch.setattr(iceberg_module, "datetime", Evening)
    log.commit(Change(operation="DELETE", removed=[first]))

    assert not sleeps
    assert lake.problems == ()
    assert len(in_order(lake.read())) == sum(entry.rows for entry in others)


@pytest.mark.parametrize("area", [LINES, ROLLUP_MINUTE])
@pytest.mark.parametrize("format", sorted(FORMATS))
def test_counts_of_a_batch_that_slept_during_a_clean_up_are_kept(
    format: str, area: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lines are committed, and its counts are committed when its writer goes on."""
    lake = FORMATS[format](tmp_path)
    table = lake.open()
    counted_batch(table, lake.storage, 1, 20)

    def commit_lines() -> None:
        with monkeypatch.context() as asleep:
            asleep.setattr(TableWriter, "_count", lambda self, area: None)
            counted_batch(table, lake.storage, 21, 40)
        lake.age(hours=SLEPT_HOURS)

    sleeps = _sleep_in_the_clean_up(format, area, monkeypatch, commit_lines)
    upkeep(lake.storage, lake.new_logs()).clean(Evening.now(UTC))
    table._catch_up()

    assert not sleeps
    assert lake.problems == ()


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_an_erasure_whose_answer_was_lost_keeps_what_it_wrote(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that is done, and reported as refused (its request was sent twice), is done."""
    lake = FORMATS[format](tmp_path)
    lake.filled()
    before = in_order(lake.read())
    _lose_one_answer(format, monkeypatch)
    proof = lake.erasure(host="web1").erase(datetime.now(UTC))

    assert lake.problems == ()
    assert in_order(lake.read()) == [row for row in before if row["host"] != "web1"]
    assert proof.lines == len([row for row in before if row["host"] == "web1"])


def _lose_one_answer(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = [True]
    if format == "delta":
        link: Callable[..., None] = os.link

        def link_twice(source: Path, target: Path) -> None:
            link(source, target)
            if losses and "_delta_log" in str(target):
                losses.clear()
                # NFS: the request was done, its answer lost, and it was sent again.
                raise FileExistsError(17, "File exists", str(target))

        monkeypatch.setattr(os, "link", link_twice)
        return
    commit = SqlCatalog.commit_table

    def commit_twice(catalog: SqlCatalog, *change: Any) -> CommitTableResponse:
        answer = commit(catalog, *change)
        if losses:
            losses.clear()
            raise CommitFailedException("409 Conflict")
        return answer

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_twice)


def test_a_delta_commit_that_meets_itself_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage that says that another one was first may hold what it was sent before."""
    lake = FORMATS["delta"](tmp_path)
    table = lake.filled()
    put, losses = LocalStorage.put_if_absent, [True]

    def answered_late(self: LocalStorage, path: str, data: bytes) -> bool:
        is_put = put(self, path, data)
        if losses and "_delta_log" in path:
            losses.clear()
            return False
        return is_put

    monkeypatch.setattr(LocalStorage, "put_if_absent", answered_late)
    lake.batch(table, 41, 60)
    losses.append(True)
    proof = lake.erasure(host="web1").erase(datetime.now(UTC))

    assert not losses
    assert lake.problems == ()
    kept_rows = [row for row in in_order(mixed(1, 60)) if row["host"] != "web1"]
    assert in_order(lake.read()) == kept_rows
    assert proof.lines == 120 - len(kept_rows)


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_an_erasure_that_takes_its_commit_for_refused_keeps_what_it_wrote(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the reason: it removes no file by what it believes of its commit."""
    lake = FORMATS[format](tmp_path)
    lake.filled()
    log: Any = type(lake.new_logs()[LINES])
    commit, mistakes = log.commit, [True]

    def misjudge(self: Log, change: Change) -> None:
        commit(self, change)
        if mistakes:
            mistakes.clear()
            raise Conflict("its own version, taken for another's")

    monkeypatch.setattr(log, "commit", misjudge)
    lake.erasure(host="web1").erase(datetime.now(UTC))

    assert not mistakes
    assert lake.problems == ()
    assert in_order(lake.read()) == [row for row in in_order(mixed(1, 40)) if row["host"] != "web1"]


@pytest.mark.parametrize("is_within", [False, True])
def test_a_delta_writer_that_slept_until_the_log_was_shortened_was_overtaken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_within: bool
) -> None:
    """Before its commit or within it: the number of the next version is free again, and what it
    puts there is in no later one.
    """
    monkeypatch.setattr(delta_module, "CHECKPOINT_EVERY", 2)
    lake = FORMATS["delta"](tmp_path)
    sleeper = lake.filled()

    def sleep() -> None:
        _sleep_until_the_log_is_shortened(lake, sleeper)

    if is_within:
        _sleep_in_the_commit("delta", monkeypatch, sleep)
    else:
        sleep()
    with pytest.raises(Overtaken, match="start again"):
        lake.batch(sleeper, 41, 60)

    assert lake.problems == ()
    assert in_order(lake.read()) == in_order(mixed(1, 40))
    lake.batch(lake.open(), 41, 60)
    assert in_order(lake.read()) == in_order(mixed(1, 60))


def test_a_delta_writer_that_slept_beside_merges_goes_on(tmp_path: Path) -> None:
    """It reads what came meanwhile, and commits behind it."""
    lake = FORMATS["delta"](tmp_path)
    sleeper = lake.filled()
    assert upkeep(lake.storage, lake.new_logs()).compact(datetime.now(UTC))
    _let_sleep(sleeper)
    lake.batch(sleeper, 41, 60)

    assert lake.problems == ()
    assert in_order(lake.read()) == in_order(mixed(1, 60))


def _sleep_until_the_log_is_shortened(lake: Lake, sleeper: TableWriter) -> None:
    """Let two days go by, in which others take the table over, and bring no lines."""
    log = sleeper._logs[LINES]
    following = Path(lake.storage.url) / LINES / "_delta_log" / f"{log.version() + 1:020d}.json"
    for _ in range(4):
        lake.open().close()
    upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))
    lake.age(hours=2 * 24)
    lake.open().close()
    upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))
    assert not following.exists()
    _let_sleep(sleeper)


def _let_sleep(sleeper: TableWriter) -> None:
    for log in sleeper._logs.values():
        assert isinstance(log, DeltaLog)
        log._looked -= timedelta(days=2)


def _sleep_in_the_commit(
    format: str, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]
) -> None:
    """Let the next commit sleep after its last look at the clock, while *meanwhile* is done."""
    put, write_metadata = LocalStorage.put_if_absent, SqlCatalog._write_metadata

    def sleep_before(self: LocalStorage, path: str, data: bytes) -> bool:
        if path.startswith(f"{LINES}/_delta_log/"):
            monkeypatch.setattr(LocalStorage, "put_if_absent", put)
            meanwhile()
        return put(self, path, data)

    def sleep_after(**said: Any) -> None:
        write_metadata(**said)
        monkeypatch.setattr(SqlCatalog, "_write_metadata", staticmethod(write_metadata))
        meanwhile()

    if format == "delta":
        monkeypatch.setattr(LocalStorage, "put_if_absent", sleep_before)
    else:
        monkeypatch.setattr(SqlCatalog, "_write_metadata", staticmethod(sleep_after))


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_a_batch_that_slept_within_its_commit_is_late(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other change came meanwhile, but a clean-up that removed the files of this one."""
    lake = FORMATS[format](tmp_path)
    table = lake.filled()
    lake.age(hours=SLEPT_HOURS)
    upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))
    begun, left = datetime.now(UTC), lake.write(table, 41, 60)

    def sleep() -> None:
        lake.age(hours=SLEPT_HOURS)
        upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))
        monkeypatch.setattr(log_module, "is_late", lambda since: since == begun)

    _sleep_in_the_commit(format, monkeypatch, sleep)
    ranges = {STREAM: Range(LIFE, 41, 60)}
    with pytest.raises(Late):
        table.commit_batch("41", ranges, left, kept(table), begun=begun)

    assert lake.problems == ()
    assert in_order(lake.read()) == in_order(mixed(1, 40))


def test_an_iceberg_clean_up_of_a_table_at_rest_makes_no_snapshot(tmp_path: Path) -> None:
    """What former snapshots had goes with them, and no change can bring it back."""
    lake = FORMATS["iceberg"](tmp_path)
    lake.filled()
    for _ in range(2):
        lake.age(hours=SLEPT_HOURS)
        upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))
        assert len(list(lake.new_logs()[LINES].history())) == 1
