"""The states that a table's log names, read while its writer commits and removes former ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from logpipeline_spark.errors import Refused
from logpipeline_spark.formats.log import Logs
from logpipeline_spark.table import writer as writer_module
from logpipeline_spark.table.files import LINES
from logpipeline_spark.table.state import LOADS_MAX, STATE, last_state, number_of
from logpipeline_spark.table.storage import LocalStorage
from logpipeline_spark.table.writer import STATES_KEPT_S
from tables.made import batch, logs, opened


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path)


@pytest.fixture
def commit(storage: LocalStorage) -> Callable[[], int]:
    """Return a function that lets a writer commit and prune; it returns the commit's number."""
    table = opened(storage)

    def committed() -> int:
        last = table.state.batches + 1
        batch(table, storage, str(last), last, last)
        table.prune()
        return table.state.transaction

    return committed


def numbers_of(storage: LocalStorage) -> list[int]:
    """Return the numbers of all states that are stored."""
    return sorted(number_of(stored.path) or 0 for stored in storage.list(STATE))


def beside(
    monkeypatch: pytest.MonkeyPatch, storage: LocalStorage, commit: Callable[[], int]
) -> tuple[Logs, list[int | None]]:
    """Return logs, and the numbers that were read from them. Each time they are read, a batch is
    committed.
    """
    found = logs(storage)
    read: list[int | None] = []
    transaction = found[LINES].transaction

    def look() -> int | None:
        read.append(transaction())
        commit()
        return read[-1]

    monkeypatch.setattr(found[LINES], "transaction", look)
    return found, read


def test_a_state_is_found_however_often_its_writer_commits(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, commit: Callable[[], int]
) -> None:
    """Also by a reader that is slower than the writer."""
    commit()
    found, read = beside(monkeypatch, storage, commit)

    state, _ = last_state(storage, found)

    assert [state.transaction] == read


def test_a_state_that_is_never_found_is_not_looked_for_for_ever(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, commit: Callable[[], int]
) -> None:
    """A sentence says why."""
    monkeypatch.setattr(writer_module, "STATES_KEPT_S", 0.0)
    commit()
    found, read = beside(monkeypatch, storage, commit)

    with pytest.raises(Refused, match="so fast that what its log names is gone"):
        last_state(storage, found)
    assert len(read) == 2 * LOADS_MAX


def test_a_state_goes_once_it_was_not_needed_for_a_while(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, commit: Callable[[], int]
) -> None:
    """Neither earlier nor never; what former writers left goes at once."""
    now_s = 1000.0
    clock = SimpleNamespace(monotonic=lambda: now_s)
    monkeypatch.setattr(writer_module, "time", clock)
    begun = numbers_of(storage)
    first = commit()
    now_s += 1
    second = commit()
    assert numbers_of(storage) == [*begun, first, second]

    now_s += STATES_KEPT_S - 1
    third = commit()
    assert numbers_of(storage) == [first, second, third]
    now_s += 1
    fourth = commit()
    assert numbers_of(storage) == [second, third, fourth]

    table = opened(storage)
    batch(table, storage, "5", 5, 5)
    table.prune()
    assert numbers_of(storage) == [fourth, table.state.transaction - 1, table.state.transaction]
