"""Snapshots are written when they are due, in an order in which a successor always finds one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from components.snapshot_site import EVERY_S, SnapshotSite
from logpipeline.group.ownership import Fenced
from logpipeline.nats.connection import NotSent
from logpipeline.records import StreamPosition
from logpipeline_collector import snapshot_schedule
from logpipeline_collector.snapshot_schedule import (
    LATE,
    LATE_AFTER_S,
    PERIODS_BETWEEN_LOOKS,
    URGENT_SNAPSHOT_S,
    SnapshotSchedule,
    has_snapshot,
    write_snapshot,
)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SnapshotSite]:
    """A partition whose clock stands."""
    with ThreadPoolExecutor(1) as executor:
        made = SnapshotSite(tmp_path, executor)
        clock = SimpleNamespace(monotonic=lambda: made.now_s)
        monkeypatch.setattr(snapshot_schedule, "time", clock)
        yield made


WRITTEN = ["remove unfinished", "make", "write", "point", "note", "drop former"]


async def test_a_snapshot_is_stored_before_the_former_one_goes(site: SnapshotSite) -> None:
    """What an attempt that broke off has left is removed first, since it takes room."""
    assert await write_snapshot(site.store, site.owned, site.executor) is None
    assert site.done == WRITTEN


@pytest.mark.parametrize(
    ("step", "is_away"),
    [
        ("remove unfinished", True),
        ("make", False),
        ("write", False),
        ("write", True),
        ("drop former", True),
    ],
)
async def test_a_snapshot_that_cannot_be_stored_leaves_the_former_one(
    site: SnapshotSite, step: str, is_away: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its room is freed, if that can be done now, and it is said why."""
    (site.away if is_away else site.broken).add(step)
    reason = await write_snapshot(site.store, site.owned, site.executor)
    why = "the server is away" if is_away else "it is full"

    assert reason == f"no snapshot of the sources' positions could be stored: {why}"
    assert reason in caplog.text
    begun = WRITTEN[: WRITTEN.index(step) + 1]
    cleaned = ["remove unfinished", "drop former"]
    assert site.done == begun + (cleaned[:1] if step == "remove unfinished" else cleaned)


async def test_a_snapshot_is_due_when_its_time_is_over(site: SnapshotSite) -> None:
    """From the begin of the last one on."""
    schedule = site.new_schedule()
    site.now_s += EVERY_S - 1
    schedule.begin_if_due()
    early = schedule._running
    site.now_s += 1
    schedule.begin_if_due()
    await ended(schedule)

    assert early is None
    assert site.done == WRITTEN
    assert site.counted("stored") == 1
    assert site.marks_path.exists()
    site.now_s += EVERY_S - 1
    schedule.begin_if_due()
    assert schedule._running is None


async def ended(schedule: SnapshotSchedule) -> None:
    """Return when what runs has ended."""
    assert schedule._running is not None
    await asyncio.wait([schedule._running])


async def test_behind_a_roll_back_a_snapshot_is_due_soon(site: SnapshotSite) -> None:
    """A successor could not learn from the stream what the last one lacks."""
    schedule = site.new_schedule()
    site.owned.is_snapshot_urgent = True
    site.now_s += URGENT_SNAPSHOT_S
    schedule.begin_if_due()
    await ended(schedule)

    assert site.done == WRITTEN


@pytest.mark.parametrize(
    ("sequence", "rollbacks", "is_stored", "done"),
    [
        pytest.param(30, 0, True, ["look"], id="it is there"),
        pytest.param(30, 0, False, ["look", *WRITTEN], id="it is gone"),
        pytest.param(0, 1, False, ["look", *WRITTEN], id="gone, and a roll-back is known"),
        pytest.param(0, 0, False, ["look"], id="nothing was ever committed"),
    ],
)
async def test_without_commits_record_and_snapshot_are_looked_at_now_and_then(
    site: SnapshotSite,
    sequence: int,
    rollbacks: int,
    is_stored: bool,
    done: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing else would notice that they are gone."""
    schedule = site.new_schedule()
    site.owned.is_snapshot_old, site.is_stored = False, is_stored
    site.owned.committed = StreamPosition("monday", sequence, sequence)
    site.owned.committed_rollbacks = rollbacks
    for _ in range(PERIODS_BETWEEN_LOOKS - 1):
        site.now_s += EVERY_S
        schedule.begin_if_due()
    assert schedule._running is None
    site.now_s += EVERY_S
    schedule.begin_if_due()
    await ended(schedule)

    assert site.done == done
    assert ("the snapshot is gone, written again" in caplog.text) is (len(done) > 1)


async def test_a_look_that_shows_another_owner_ends_ours(site: SnapshotSite) -> None:
    """At the next time that reading asks."""
    schedule = site.new_schedule()
    site.owned.is_snapshot_old, site.is_fenced = False, True
    site.now_s += EVERY_S
    schedule._periods = PERIODS_BETWEEN_LOOKS - 1
    schedule.begin_if_due()
    await ended(schedule)

    with pytest.raises(Fenced):
        schedule.begin_if_due()
    schedule.begin_if_due()


async def test_a_snapshot_that_takes_long_is_named_once(
    site: SnapshotSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And the next one anew."""
    may_end = asyncio.Event()

    async def write(*_words: object) -> None:
        await may_end.wait()

    monkeypatch.setattr(snapshot_schedule, "write_snapshot", write)
    schedule = site.new_schedule()
    named = []
    for _ in range(2):
        may_end.clear()
        site.now_s += EVERY_S
        schedule.begin_if_due()
        for seconds in (0, LATE_AFTER_S, 0.5, 0.5):
            site.now_s += seconds
            schedule.begin_if_due()
            named.append((site.counted("late"), site.owned.snapshot_problem))
        may_end.set()
        await ended(schedule)

    first = [(0, None), (0, None), (1, LATE), (1, LATE)]
    assert named == [*first, (1, None), (1, None), (2, LATE), (2, LATE)]
    assert caplog.text.count(LATE) == 2


@pytest.mark.parametrize("is_last", [True, False])
async def test_what_is_stopped_writes_no_more(
    site: SnapshotSite, monkeypatch: pytest.MonkeyPatch, is_last: bool
) -> None:
    """It has ended when that returns, and before the last one is begun."""
    begun, is_cancelled = asyncio.Event(), False

    async def write(*_words: object) -> None:
        nonlocal is_cancelled
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            is_cancelled = True
            raise

    monkeypatch.setattr(snapshot_schedule, "write_snapshot", write)
    schedule = site.new_schedule()
    await schedule.stop()
    site.now_s += EVERY_S
    schedule.begin_if_due()
    await begun.wait()
    site.owned.is_snapshot_old = False
    await (schedule.finish() if is_last else schedule.stop())

    assert is_cancelled
    assert schedule._running is None


@pytest.mark.parametrize("is_old", [True, False])
async def test_a_successor_finds_a_snapshot(site: SnapshotSite, is_old: bool) -> None:
    """At a release it is written if it is old, or gone."""
    site.owned.is_snapshot_old, site.is_stored = is_old, False
    await site.new_schedule().finish()
    first = list(site.done)
    site.is_stored = True
    await site.new_schedule().finish()

    assert first == WRITTEN
    assert site.done == first + (WRITTEN if is_old else [])


async def test_marks_that_cannot_be_saved_are_said(
    site: SnapshotSite, caplog: pytest.LogCaptureFixture
) -> None:
    """The snapshot is stored all the same."""
    site.marks_path.mkdir()
    await site.new_schedule().finish()

    assert site.done == WRITTEN
    assert "marks not saved" in caplog.text


@pytest.mark.parametrize(
    ("snapshot", "is_there", "is_away", "has_it"),
    [
        pytest.param(0, True, False, False, id="none was written"),
        pytest.param(1, True, False, True, id="it is there"),
        pytest.param(1, False, False, False, id="it is gone"),
        pytest.param(1, False, True, True, id="nobody answers"),
    ],
)
async def test_a_snapshot_is_gone_only_where_a_server_says_so(
    snapshot: int, is_there: bool, is_away: bool, has_it: bool
) -> None:
    """Else it would be written again and again."""

    async def look(sequence: int) -> bool:
        assert sequence == snapshot
        if is_away:
            raise NotSent("the server is away")
        return is_there

    store: Any = SimpleNamespace(is_there=look)
    record: Any = SimpleNamespace(snapshot=snapshot)

    assert await has_snapshot(store, record) is has_it
