"""Python's own rotating handlers."""

from __future__ import annotations

import gzip
import logging
import shutil
from collections.abc import Callable
from logging.handlers import BaseRotatingHandler, RotatingFileHandler, TimedRotatingFileHandler
from pathlib import Path

from faults.rotators.rotator import Mode, Quick

KEPT = 9
DAY_S = 86_400


class Handler(Quick):
    """Writes by the handler that *make* makes, and has it roll over."""

    def __init__(self, folder: Path, make: Callable[[Path], BaseRotatingHandler]) -> None:
        super().__init__(folder)
        self._handler = make(self.live)

    def write(self, line: bytes) -> None:
        message = line.decode().removesuffix("\n")
        self._handler.handle(logging.makeLogRecord({"msg": message}))

    def turn(self) -> None:
        self._handler.doRollover()  # type: ignore[attr-defined]  # each has it, their base does not

    def close(self) -> None:
        self._handler.close()


class Timed(Handler):
    """Rolls over at the end of one day after the other: the name is the day that ended."""

    def turn(self) -> None:
        assert isinstance(self._handler, TimedRotatingFileHandler)
        self._days = getattr(self, "_days", 0) + 1
        self._handler.rolloverAt += self._days * DAY_S
        super().turn()


def _numbered(live: Path) -> BaseRotatingHandler:
    return RotatingFileHandler(live, backupCount=KEPT)


def _daily(live: Path) -> BaseRotatingHandler:
    return TimedRotatingFileHandler(live, when="midnight", backupCount=KEPT)


def _packing(live: Path) -> BaseRotatingHandler:
    """Return the handler of the cookbook, which packs what it moves away."""

    def pack(source: str, target: str) -> None:
        with open(source, "rb") as plain, gzip.open(target, "wb") as packed:
            shutil.copyfileobj(plain, packed)
        Path(source).unlink()

    handler = _numbered(live)
    handler.namer = lambda name: f"{name}.gz"
    handler.rotator = pack
    return handler


MODES = (
    Mode("Python RotatingFileHandler", "numbers", lambda folder: Handler(folder, _numbered)),
    Mode(
        "Python RotatingFileHandler",
        "`namer` and `rotator` of the cookbook: gzip",
        lambda folder: Handler(folder, _packing),
        is_read_first=True,
    ),
    Mode("Python TimedRotatingFileHandler", "midnight", lambda folder: Timed(folder, _daily)),
)
