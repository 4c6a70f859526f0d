"""Commits of many partitions on one clock: an error of one reaches the owner of that one."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from logpipeline_collector.owned_partition import Committer, OwnedPartition
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
        await eventually(
            lambda: failing.failure is error and well.works > 1, within_s=30, what="it is known"
        )
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert well.failure is None
