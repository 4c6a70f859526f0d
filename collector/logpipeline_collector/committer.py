"""One clock for all commits of a process: often enough that shippers and readers hardly wait, and
only where something was read.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import Executor

from logpipeline_collector.owned_partition import OwnedPartition

# How often rotation, compression and retention look for something to do.
MAINTAIN_EVERY_S = 2.0


class Committer:
    """Commits every owned that was added, each at its own pace: one that waits stops no other."""

    def __init__(self, executor: Executor, *, interval_s: float, commit_bytes: int) -> None:
        self.beat_s = time.monotonic()
        self._executor = executor
        self._interval_s = interval_s
        self._commit_bytes = commit_bytes
        self._owned: set[OwnedPartition] = set()
        self._running: dict[OwnedPartition, asyncio.Task[None]] = {}
        self._poked = asyncio.Event()
        self._maintained_s: dict[OwnedPartition, float] = {}

    def add(self, owned: OwnedPartition) -> None:
        """Commit *owned* from now on."""
        self._owned.add(owned)

    async def remove(self, owned: OwnedPartition) -> None:
        """Commit *owned* no more; returns when no commit of it is under way."""
        self._owned.discard(owned)
        self._maintained_s.pop(owned, None)
        task = self._running.get(owned)
        if task is not None:
            await asyncio.wait([task])

    def grown(self, owned: OwnedPartition) -> None:
        """Commit at once if *owned* has more bytes than should wait for the clock."""
        if owned.writer.dirty_bytes >= self._commit_bytes:
            self._poked.set()

    async def run(self) -> None:
        """Commit for ever."""
        try:
            while True:
                self._poked.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._interval_s):
                        await self._poked.wait()
                self.beat_s = time.monotonic()
                self._start_work()
        finally:
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _start_work(self) -> None:
        now_s = time.monotonic()
        for owned in self._owned:
            if owned in self._running:
                continue
            # First, or a partition that always has something to commit would never come to it.
            if now_s - self._maintained_s.get(owned, 0.0) >= MAINTAIN_EVERY_S:
                self._maintained_s[owned] = now_s
                self._start(owned, owned.maintain(self._executor, time.time()))
            elif owned.is_due:
                self._start(owned, owned.commit(self._executor))

    def _start(self, owned: OwnedPartition, work: asyncio._CoroutineLike[None]) -> None:
        task = asyncio.get_running_loop().create_task(work)  # kept until done, in *_running*
        self._running[owned] = task
        task.add_done_callback(lambda done: self._running.pop(owned, None))
