"""A table's upkeep is done again and again beside its batches, and says what keeps it from that."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from logpipeline_spark.job import service
from logpipeline_spark.job.service import JobNumbers, Keeper
from logpipeline_spark.table.compaction import Sizes
from logpipeline_spark.table.scan import files
from logpipeline_spark.table.storage import LocalStorage
from logpipeline_spark.table.upkeep import Limits, Upkeep
from tables.made import batch, logs, opened, upkeep
from waiting import eventually


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    """A table of two batches of hours that are over."""
    storage = LocalStorage(tmp_path / "table")
    table = opened(storage)
    batch(table, storage, "0", 1, 10)
    batch(table, storage, "1", 11, 20)
    return storage


def keeper_of(storage: LocalStorage, numbers: JobNumbers | None = None) -> Keeper:
    """Return who keeps the table."""
    made = upkeep(storage)
    return Keeper(made, numbers or JobNumbers(), limits=Limits(), sizes=Sizes())


def test_files_are_merged_and_counted(storage: LocalStorage) -> None:
    """One look does what is due."""
    numbers = JobNumbers()
    keeper = keeper_of(storage, numbers)
    keeper.keep()

    assert keeper.problem == ""
    assert len(files(logs(storage))) == 1
    assert numbers.metrics.value("files") == 1
    assert numbers.metrics.value("table_rows") == 40


def test_what_keeps_it_from_that_is_said_and_goes_with_its_cause(
    storage: LocalStorage, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged file stops neither batches nor the next look."""
    [first, _] = files(logs(storage))
    place = Path(storage.url) / first.path
    whole = place.read_bytes()
    place.write_bytes(bytes(len(whole)))
    keeper = keeper_of(storage)
    with caplog.at_level(logging.ERROR):
        keeper.keep()
    assert first.path in keeper.problem
    assert "is tried again" in caplog.text
    place.write_bytes(whole)
    keeper.keep()

    assert keeper.problem == ""


@pytest.mark.parametrize("limits", [Limits(), Limits(age=timedelta(hours=1))])
def test_a_damaged_hour_keeps_nothing_else_from_being_done(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    """Other hours are merged, old ones are removed, the damaged one too, and unneeded files go;
    the damage is reported all the same.
    """
    monkeypatch.setattr(service, "MERGES_MAX", 1)
    table = opened(storage)
    batch(table, storage, "2", 61, 70, stream="LOGS_1")
    batch(table, storage, "3", 71, 80, stream="LOGS_1")
    broken, *_ = sorted(files(logs(storage)), key=lambda entry: entry.first_us)
    (Path(storage.url) / broken.path).write_bytes(bytes(broken.bytes))
    cleaned: list[datetime] = []
    monkeypatch.setattr(Upkeep, "clean", lambda self, now: cleaned.append(now))
    numbers = JobNumbers()
    keeper = Keeper(upkeep(storage), numbers, limits=limits, sizes=Sizes())
    keeper.keep()

    assert broken.path in keeper.problem
    assert len(cleaned) == 1
    left = 0 if limits.age else 3
    assert len(files(logs(storage))) == left
    assert numbers.metrics.value("files") == left
    keeper.keep()
    assert (keeper.problem == "") == bool(limits.age)


def test_an_error_that_was_not_expected_is_reported_and_tried_again(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not end the upkeep for as long as the job runs."""

    def break_down(*_: object, **__: object) -> None:
        raise AttributeError("a defect")

    keeper = keeper_of(storage)
    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
        broken.setattr(Upkeep, "compact", break_down)
        keeper.keep()
    assert keeper.problem == "a defect"
    assert "AttributeError" in caplog.text
    keeper.keep()

    assert keeper.problem == ""


def test_all_files_are_looked_through_now_and_then_only(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket asks money for that."""
    cleaned: list[datetime] = []
    monkeypatch.setattr(Upkeep, "clean", lambda self, now: cleaned.append(now))
    keeper = keeper_of(storage)
    for _ in range(3):
        keeper.keep()
    assert len(cleaned) == 1
    keeper._clean_at_s -= service.CLEAN_EVERY_S
    keeper.keep()

    assert len(cleaned) == 2
    assert cleaned[0].tzinfo is UTC


async def test_it_goes_on_beside_the_block_and_ends_with_it(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches that come meanwhile are merged as well."""
    monkeypatch.setattr(service, "EVERY_S", 0.01)
    keeper = keeper_of(storage)
    table = opened(storage)
    with keeper.beside():
        await eventually(lambda: len(files(logs(storage))) == 1, what="one file")
        batch(table, storage, "2", 21, 30)
        await eventually(lambda: len(files(logs(storage))) == 1, what="one again")
    seen = files(logs(storage))
    batch(table, storage, "3", 31, 40)

    assert len(files(logs(storage))) == len(seen) + 1
