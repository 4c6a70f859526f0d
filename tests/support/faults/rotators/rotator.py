"""What a rotator is to these tests: a way to write lines to a log, and to have it rotated."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from faults.rotators.ledger import Writing

# Lines behind the header of each file: two files hold nothing but their headers.
LINES = (60, 0, 35, 0, 97)


class Rotator(ABC):
    """Writes to a log below *folder*, and rotates it there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.live.parent.mkdir(parents=True, exist_ok=True)

    @property
    def live(self) -> Path:
        """The file that is written to, where it always has the same name."""
        return self.folder / "logs" / "app.log"

    @abstractmethod
    def write(self, line: bytes) -> None:
        """Write *line*, so that a reader of the file sees it."""

    @abstractmethod
    async def rotate(self, writing: Writing) -> None:
        """Rotate once, and have the next file begin."""

    def close(self) -> None:  # noqa: B027  many have nothing to end
        """End what was started."""


class Quick(Rotator):
    """A rotator of which a call rotates; it runs in the writing process, so that nothing is written
    meanwhile.
    """

    @abstractmethod
    def turn(self) -> None:
        """Rotate once."""

    async def rotate(self, writing: Writing) -> None:
        await asyncio.to_thread(self.turn)
        writing.begin()


@dataclass(frozen=True, slots=True)
class Mode:
    """A row of the table: how its rotator is made in a folder, how many *lines* each file gets
    behind its header, and what a shipper reads below the folder. With *is_read_first* a shipper
    that runs has read everything before each rotation, and nothing is written meanwhile. One that
    *loses* lines leaves nothing of them that a shipper could see.
    """

    rotator: str
    mode: str
    make: Callable[[Path], Rotator]
    lines: tuple[int, ...] = LINES
    include: tuple[str, ...] = ("logs/**",)
    is_read_first: bool = False
    loses: bool = False

    @property
    def name(self) -> str:
        return f"{self.rotator}: {self.mode}"
