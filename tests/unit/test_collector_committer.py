"""Commits of many partitions on one clock: an error of one reaches the owner of that one."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logpipeline.records import StreamPosition
from logpipeline_collector import owned_partition
from logpipeline_collector.owned_partition import RECORD_WAITS, Committer, OwnedPartition
from logpipeline_collector.reports import ready
from logpipeline_collector.sink import SinkFull
from logpipeline_collector.stream_position import Marks
from waiting import eventually


class Owned:
    """A partition whose work fails by *error*, in commits or in maintenance."""

    def __init__(self, error: Exception | None, *, is_due: bool) -> None:
        self.error = error
        self.is_due = is_due
        self.failure: Exception | None = None
        self.works = 0

    async def commit(self, _: Any) -> None:
        """Fail, or count."""
        self.works += 1
        if self.error is not None:
            raise self.error

    async def maintain(self, executor: Any, _: float) -> None:
        """Fail as a commit does, where nothing is to be committed."""
        if not self.is_due:
            await self.commit(executor)


@pytest.mark.parametrize("is_due", [True, False], ids=["commit", "maintenance"])
async def test_an_error_of_the_work_itself_reaches_the_owner(is_due: bool) -> None:
    """The partition is not read on as if it were committed, and the others are committed."""
    error = KeyError("a mistake")
    failing, well = Owned(error, is_due=is_due), Owned(None, is_due=True)
    with ThreadPoolExecutor(1) as executor:
        committer = Committer(executor, interval_s=0.01, commit_bytes=1)
        for owned in (failing, well):
            committer.add(cast("OwnedPartition", owned))
        task = asyncio.create_task(committer.run())
        await eventually(lambda: failing.failure is error and well.works > 1, what="it is known")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert well.failure is None


class Held:
    """An epoch whose record the bucket does not take yet."""

    record = SimpleNamespace(
        epoch=1, refused=(), missed_messages=0, lost_bytes=0, snapshot_at=0, begun=0
    )

    def __init__(self) -> None:
        self.takes = asyncio.Event()

    async def advance(self, *_: Any, **__: Any) -> None:
        """Wait for the bucket."""
        await self.takes.wait()


class FullOnce:
    """A writer whose disk has no room at first."""

    lost_bytes = missing_bytes = 0

    def __init__(self) -> None:
        self.is_full = True

    def prepare(self, *_: Any, **__: Any) -> None:
        """Prepare nothing."""

    def write(self, _: Any) -> None:
        """Find no room, then room."""
        if self.is_full:
            self.is_full = False
            raise SinkFull(errno.ENOSPC, "no room")

    def confirm(self, _: Any) -> None:
        """Confirm nothing."""


def owned_with(writer: object, held: Held, goes_on: Callable[[], bool]) -> OwnedPartition:
    """Return a partition of which a message is not committed."""
    owned = OwnedPartition(
        partition=0,
        stream="LOGS_0",
        subjects=(),
        writer=cast("Any", writer),
        held=cast("Any", held),
        position=StreamPosition("then", 1, 1),
        rollbacks=0,
        marks=Marks(),
        assignment=lambda: 1,
        commit_bytes=1,
        committed_to=lambda *_: None,
        goes_on=goes_on,
    )
    owned.position = StreamPosition("then", 2, 2)
    return owned


async def test_a_commit_that_waits_is_shown_and_is_not_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For room, then for the state bucket: a restart would bring neither."""
    monkeypatch.setattr(owned_partition, "RECORD_WAIT_S", 0.0)
    monkeypatch.setattr(owned_partition, "FULL_RETRY_S", 0.0)
    held, problems = Held(), list[str | None]()

    def goes_on() -> bool:
        problems.append(owned.commit_problem)
        return True

    owned = owned_with(FullOnce(), held, goes_on)
    with ThreadPoolExecutor(1) as executor:
        commit = asyncio.create_task(owned.commit(executor))
        await eventually(lambda: problems.count(RECORD_WAITS) > 1, what="it is shown")
        held.takes.set()
        await commit

    assert problems[0] == "the disk is full: [Errno 28] no room"
    assert (owned.commit_problem, owned.failure, owned.is_clean) == (None, None, True)


class Full(FullOnce):
    """A writer whose disk has no room, not even to take back what is not committed."""

    is_closed = False

    def write(self, _: Any) -> None:
        """Find no room."""
        raise SinkFull(errno.ENOSPC, "no room")

    def discard(self) -> None:
        """Find no room."""
        raise SinkFull(errno.ENOSPC, "no room")

    def close(self) -> None:
        """Close."""
        self.is_closed = True


async def test_a_partition_that_is_not_wanted_does_not_wait_for_room() -> None:
    """Its owner hears that there is none, and can close it."""
    writer = Full()
    owned = owned_with(writer, Held(), goes_on=lambda: False)
    with ThreadPoolExecutor(1) as executor, pytest.raises(SinkFull):
        await owned.commit_all(executor)
    await owned.close()

    assert writer.is_closed


def test_a_collector_that_cannot_give_up_a_partition_is_not_ready() -> None:
    """Though the partition is assigned to another one."""
    owned = SimpleNamespace(problem=None, commit_problem="the disk is full", partition=7)
    worker = SimpleNamespace(partition=7, owned=owned, problem=None, is_wanted=False)
    context = SimpleNamespace(connection=SimpleNamespace(problem=None, is_connected=True))
    watch = SimpleNamespace(current=1, problem=None)

    assert ready(cast("Any", context), cast("Any", watch), [cast("Any", worker)]) == (
        "partition 7: the disk is full"
    )
