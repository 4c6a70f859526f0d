"""A snapshot that takes long is named, and holds nothing up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest

from components.snapshot_site import SnapshotSite
from logpipeline_collector import snapshot_schedule
from logpipeline_collector.snapshot_schedule import LATE
from logpipeline_collector.snapshots import SnapshotStore


class Made(SnapshotSite):
    """A schedule whose snapshots wait for *may_end*, and end with *outcome*."""

    def __init__(self, folder: Path, executor: Executor) -> None:
        super().__init__(folder, executor, every_s=0.0)
        self.may_end = asyncio.Event()
        self.begun = 0
        self.outcome: str | None = None
        self.schedule = self.new_schedule()

    async def snapshot(self, store: SnapshotStore, owned: object, executor: Executor) -> str | None:
        self.begun += 1
        await self.may_end.wait()
        return self.outcome

    async def until_ended(self) -> None:
        """Return when what was begun has ended."""
        running = self.schedule._running
        assert running is not None
        await asyncio.wait([running])


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    with ThreadPoolExecutor(1) as executor:
        made = Made(tmp_path, executor)
        monkeypatch.setattr(snapshot_schedule, "write_snapshot", made.snapshot)
        yield made


async def until_begun(made: Made, count: int) -> None:
    while made.begun < count:
        made.schedule.begin_if_due()
        await asyncio.sleep(0)


async def test_reading_goes_on_while_a_snapshot_waits(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is written at a time; that it takes long is said once, and over when it is stored."""
    await until_begun(made, 1)
    monkeypatch.setattr(snapshot_schedule, "LATE_AFTER_S", -1.0)
    made.schedule.begin_if_due()
    made.schedule.begin_if_due()

    assert made.begun == 1
    assert made.owned.snapshot_problem == LATE
    assert made.counted("late") == 1
    made.may_end.set()
    await made.until_ended()
    assert made.owned.snapshot_problem is None
    assert made.counted("stored") == 1


async def test_a_snapshot_that_fails_is_counted_and_tried_again(made: Made) -> None:
    """What was wrong is shown until one is stored."""
    made.outcome = "the stream is full"
    made.may_end.set()
    await until_begun(made, 1)
    await made.until_ended()

    assert made.owned.snapshot_problem == "the stream is full"
    assert made.counted("failed") == 1
    made.outcome = None
    await until_begun(made, 2)
    await made.until_ended()
    assert made.owned.snapshot_problem is None


async def test_a_release_waits_for_no_snapshot_and_says_so(
    made: Made, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A successor reads more then."""
    monkeypatch.setattr(snapshot_schedule, "RELEASE_DEADLINE_S", 0.01)
    await until_begun(made, 1)
    await made.schedule.finish()

    assert made.counted("failed") == 1
    assert any("before the partition was released" in str(vars(r)) for r in caplog.records)
