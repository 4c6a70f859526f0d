"""One clock for all commits of a process: often enough that shippers and readers hardly wait, and
only where something was read.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import Executor

from logpipeline_collector.owned_partition import Tenure

# How often rotation, compression and retention look for something to do.
MAINTAIN_EVERY_S = 2.0


class Committer:
    """Commits every tenure that was added, each at its own pace: one that waits stops no other."""

    def __init__(self, executor: Executor, *, interval_s: float, commit_bytes: int) -> None:
        self.beat_s = time.monotonic()
        self._executor = executor
        self._interval_s = interval_s
        self._commit_bytes = commit_bytes
        self._tenures: dict[Tenure, None] = {}
        self._running: dict[Tenure, asyncio.Task[None]] = {}
        self._poked = asyncio.Event()
        self._maintained_s: dict[Tenure, float] = {}

    def add(self, tenure: Tenure) -> None:
        """Commit *tenure* from now on."""
        self._tenures[tenure] = None

    async def remove(self, tenure: Tenure) -> None:
        """Commit *tenure* no more; returns when no commit of it is under way."""
        self._tenures.pop(tenure, None)
        self._maintained_s.pop(tenure, None)
        task = self._running.get(tenure)
        if task is not None:
            await asyncio.wait([task])

    def grown(self, tenure: Tenure) -> None:
        """Commit at once if *tenure* has more bytes than should wait for the clock."""
        if tenure.archive.dirty_bytes >= self._commit_bytes:
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
        for tenure in self._tenures:
            if tenure in self._running:
                continue
            # First, or a partition that always has something to commit would never come to it.
            if now_s - self._maintained_s.get(tenure, 0.0) >= MAINTAIN_EVERY_S:
                self._maintained_s[tenure] = now_s
                self._start(tenure, tenure.maintain(self._executor, time.time()))
            elif tenure.is_due:
                self._start(tenure, tenure.commit(self._executor))

    def _start(self, tenure: Tenure, work: asyncio._CoroutineLike[None]) -> None:
        task = asyncio.get_running_loop().create_task(work)  # kept until done, in *_running*
        self._running[tenure] = task
        task.add_done_callback(lambda done: self._running.pop(tenure, None))
