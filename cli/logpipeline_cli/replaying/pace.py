"""The pace of a replay: messages of all partitions in the order of their times, and as far apart
as they were, or so many times faster.

The server's own replay policy paces each consumer for itself, from its own first message on: hosts
of two partitions would no longer be side by side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

IDLE = 1 << 63


class Pace:
    """Gives *partitions* their turns, *speed* times as fast as it was."""

    def __init__(self, partitions: Iterable[int], speed: float) -> None:
        self._speed = speed
        # The time of the next message of each partition; None while it is not known.
        self._next: dict[int, int | None] = dict.fromkeys(partitions)
        self._changed = asyncio.Condition()
        self._begun: tuple[int, float] | None = None

    async def turn(self, partition: int, time_ns: int) -> None:
        """Return when the message of *time_ns* is the next one, and due."""
        async with self._changed:
            self._next[partition] = time_ns
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self._is_first(partition))
        await asyncio.sleep(self.due_in_s(time_ns, asyncio.get_running_loop().time()))
        async with self._changed:
            self._next[partition] = None

    async def idle(self, partition: int) -> None:
        """Let nobody wait for *partition*: nothing comes of it now."""
        async with self._changed:
            self._next[partition] = IDLE
            self._changed.notify_all()

    async def done(self, partition: int) -> None:
        """Let nobody wait for *partition* any more."""
        async with self._changed:
            self._next.pop(partition, None)
            self._changed.notify_all()

    def due_in_s(self, time_ns: int, now_s: float) -> float:
        """Return how long a message of *time_ns* has to wait; the first one begins it all."""
        first_ns, begun_s = self._begun = self._begun or (time_ns, now_s)
        return max(begun_s + (time_ns - first_ns) / 1e9 / self._speed - now_s, 0.0)

    def _is_first(self, partition: int) -> bool:
        times = [(time, number) for number, time in self._next.items() if time is not None]
        return len(times) == len(self._next) and min(times)[1] == partition
