"""One limit for all bytes that are read but not yet acknowledged: the file is the buffer, not us.

Waiters are served in the order in which they came, so that a busy source starves no other.
"""

from __future__ import annotations

import asyncio
from collections import deque


class ByteBudget:
    """Bytes that all sources share; the first one that does not fit waits, and all behind it."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def try_take(self, size: int) -> bool:
        """Take *size* bytes if nobody waits and they fit."""
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
        """Return *size* bytes, and let the next ones have them."""
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
