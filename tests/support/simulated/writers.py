"""A program that writes a log and rotates it, in a simulated world."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulated.world import World

LINES_AT_ONCE = (1, 1, 2, 5, 20)
FILL_BYTES_MAX = 120
ROTATES = 0.01
# Of its time a program is busy so much, and writes so much more often then.
BUSY = 0.1
BUSY_TIMES = 40.0
BUSY_S = 60.0
# A shipper that is away for as long as these take to fill misses lines.
ROTATED_KEPT = 3


class Writer:
    """Writes numbered lines to the log at *path*, until the world's writers end."""

    def __init__(self, path: Path, random: Random, world: World) -> None:
        self.path = path
        self.lines = 0
        self._random = random
        self._world = world
        self._rotations = 0

    @property
    def host(self) -> str:
        """The host whose log it is."""
        return self.path.parent.name

    def line(self, number: int) -> bytes:
        """Return what the line *number* begins with."""
        return f"{self.host} {self.path.stem} {number} ".encode()

    async def run(self) -> None:
        """Write until the end."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        world = self._world
        while world.loop.time() < world.end_s:
            self._write(self._random.choice(LINES_AT_ONCE))
            if self._random.random() < ROTATES:
                self._rotate()
            await asyncio.sleep(self._random.expovariate(self._rate()))

    def _rate(self) -> float:
        """Return how often it writes now, in times a second."""
        # The same for all programs of a world: a node is busy, and with it all that is on it.
        busy = Random(f"{self._world.shape.seed} {self._world.loop.time() // BUSY_S}")
        times = BUSY_TIMES if busy.random() < BUSY else 1.0
        return times / self._world.shape.pause_s

    def _write(self, count: int) -> None:
        with self.path.open("ab") as file:
            for _ in range(count):
                fill = b"x" * self._random.randrange(FILL_BYTES_MAX)
                file.write(self.line(self.lines) + fill + b"\n")
                self.lines += 1
        self._world.disk.wrote(self.path)

    def _rotate(self) -> None:
        self._rotations += 1
        self.path.rename(self._rotated(self._rotations))
        self._rotated(self._rotations - ROTATED_KEPT).unlink(missing_ok=True)

    def _rotated(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")
