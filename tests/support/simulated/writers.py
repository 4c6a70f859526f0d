"""A program that writes a log and rotates it, in a simulated world."""

from __future__ import annotations

import asyncio
import shutil
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from simulated import clock

if TYPE_CHECKING:
    from simulated.world import World

LINES_AT_ONCE = (1, 1, 2, 5, 20)
BURST_LINES = 200
BURST = 0.01
FILL_BYTES_MAX = 120
ROTATES = 0.04
# How it rotates: the file is renamed, and a new one made with the next line; or it is written to
# once more before that; or it is copied and emptied. The youngest rotated file gets the number 1,
# or the next one, or the time.
WAYS = ("rename", "rename", "copytruncate", "late")
NAMES = ("first", "next", "time")
# A shipper that is away for as long as these take to fill misses lines.
ROTATED_KEPT = 4
# A rotator looks at a log now and then. A log that is rotated before a shipper has ever seen it, at
# that very moment, cannot be told from two that begin alike.
ROTATED_EVERY_S = 8.0
# A file that is copied and emptied goes on to be written a moment later.
COPYING_S = 0.05


class Writer:
    """Writes numbered lines to the log at *path*, whenever the world is busy."""

    def __init__(self, path: Path, random: Random, world: World) -> None:
        self.path = path
        # The size of each line that was written, with its end.
        self.sizes: list[int] = []
        self.way = random.choice(WAYS)
        self.names = random.choice(NAMES)
        self._random = random
        self._world = world
        self._rotations = 0
        self._rotated: list[Path] = []
        self._named_s = 0.0
        self._rotated_at_s = 0.0
        # Where it writes once more before it begins a new file.
        self._late: Path | None = None

    @property
    def host(self) -> str:
        """The host whose log it is."""
        return self.path.parent.name

    @property
    def lines(self) -> int:
        """How many lines it wrote."""
        return len(self.sizes)

    async def run(self, until_s: float) -> None:
        """Write until *until_s*."""
        world = self._world
        while world.loop.time() < until_s:
            is_burst = self._random.random() < BURST
            self.write(BURST_LINES if is_burst else self._random.choice(LINES_AT_ONCE))
            if self._random.random() < ROTATES:
                await self._rotate()
            await asyncio.sleep(self._random.expovariate(1 / world.shape.pause_s))

    def write(self, count: int, *, line_bytes: int = 0, path: Path | None = None) -> None:
        """Write *count* lines, each of *line_bytes* or of some length, to the log or to *path*."""
        path, self._late = path or self._late or self.path, None
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            for _ in range(count):
                head = f"{self.host} {self.path.stem} {self.lines} ".encode()
                size = line_bytes - len(head) - 1 if line_bytes else None
                fill = b"x" * (self._random.randrange(FILL_BYTES_MAX) if size is None else size)
                line = head + fill + b"\n"
                file.write(line)
                self.sizes.append(len(line))
        self._world.disk.wrote(path)

    async def _rotate(self) -> None:
        now_s = self._world.loop.time()
        if not self.path.exists() or now_s - self._rotated_at_s < ROTATED_EVERY_S:
            return
        self._rotated_at_s = now_s
        self._rotations += 1
        target = self._free_name()
        if self.way == "copytruncate":
            shutil.copyfile(self.path, target)
            self._world.disk.wrote(target)
            await asyncio.sleep(COPYING_S * self._random.random())
            with self.path.open("r+b") as file:
                file.truncate()
            self._world.disk.wrote(self.path)
        else:
            self.path.rename(target)
            self._late = target if self.way == "late" else None
        self._rotated.append(target)

    def _free_name(self) -> Path:
        """Return the name of the next rotated file; the oldest one goes."""
        while len(self._rotated) >= ROTATED_KEPT:
            self._rotated.pop(0).unlink()
        if self.names == "next":
            return self.path.with_name(f"{self.path.name}.{self._rotations}")
        if self.names == "time":
            shown = datetime.fromtimestamp(clock.EPOCH_S + self._rotated_s(), UTC)
            return self.path.with_name(f"{self.path.name}-{shown:%Y%m%d-%H%M%S}")
        for number, path in enumerate(self._rotated):
            self._rotated[number] = path.rename(
                self.path.with_name(f"{self.path.name}.{len(self._rotated) + 1 - number}")
            )
        return self.path.with_name(f"{self.path.name}.1")

    def _rotated_s(self) -> float:
        # Two that rotate within one second would have one name.
        self._named_s = max(self._named_s + 1, self._world.loop.time() // 1)
        return self._named_s
