"""Budget, sender, quarantine and counters: shared by all sources of one shipper."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from logpipeline.redaction import Redactor
from logpipeline_shipper.checkpoint import IntentLog
from logpipeline_shipper.config import BatchOptions
from logpipeline_shipper.publish import Sender
from logpipeline_shipper.quarantine import Quarantine

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


# First come, first served, so that a busy source does not starve the others.
class ByteBudget:
    """Bytes of memory that all sources share; a request that does not fit waits, and so do all
    later ones.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def try_take(self, size: int) -> bool:
        """Take *size* bytes if they fit and no source waits."""
        if self._waiting or not self._fits(size):
            return False
        self.used += size
        return True

    async def take(self, size: int) -> None:
        """Take *size* bytes as soon as they fit; a size above the limit fits when nothing is
        taken.
        """
        if self.try_take(size):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.give_back(size)
            raise

    def give_back(self, size: int) -> None:
        """Return *size* bytes, and serve the waiting sources."""
        assert 0 <= size <= self.used
        self.used -= size
        while self._waiting and (
            self._waiting[0][1].cancelled() or self._fits(self._waiting[0][0])
        ):
            wanted, future = self._waiting.popleft()
            if not future.cancelled():
                self.used += wanted
                future.set_result(None)

    def _fits(self, size: int) -> bool:
        return self.used + size <= self.limit or self.used == 0


@dataclass(slots=True)
class Totals:
    """Counters over all sources, including those that are gone."""

    progress: int = 0
    lines: int = 0
    filled_bytes: int = 0
    unhealed_bytes: int = 0
    unnamed_bytes: int = 0
    doubts: int = 0
    failures: int = 0


@dataclass(slots=True, kw_only=True)
class Shared:
    """The means of all sources. *changed* is called when there is something to save."""

    sender: Sender
    budget: ByteBudget
    intents: IntentLog
    quarantine: Quarantine
    options: BatchOptions
    redactor: Redactor
    threads: ThreadPoolExecutor
    spawn: Spawn
    changed: Callable[[], None]
    clock: Callable[[], float]
    # One source at a time compares and unpacks whole files: the others have a thread left.
    comparing: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_stopping: bool = False
    totals: Totals = field(default_factory=Totals)
