"""Runs a cell of the table: a rotator at work while a shipper runs, is down, or is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import warm
from components.shipping import CONTROL, HOST, STREAM, config_of, jetstream, make_stream, shipping
from faults.rotators.ledger import Arrivals, Counted, Writing, count
from faults.rotators.rotator import Mode, Rotator
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.connection import NoResponders, NotSent
from logpipeline.nats.jetstream import JetStream
from logpipeline_shipper import service
from logpipeline_shipper.config import ShipperConfig
from logpipeline_shipper.files.listing import HostSources
from waiting import WITHIN_S, eventually

FIRST_LINES = 20
LINES_AT_ONCE = 7
PAUSE_S = 0.002
# A cell that loses lines waits for so long, since these never arrive.
LOST_AFTER_S = 8.0
KILL_AFTER_S_MAX = 0.08
READ_OUT_S = 10.0
TICK_S = 0.1


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all times of the shipper as short as the one between two scans is here: a tenth."""
    monkeypatch.setattr(service, "TICK_S", TICK_S)


@dataclass
class Cell:
    """One rotator and its log, the shipper's configuration, and the messages that arrived."""

    mode: Mode
    rotator: Rotator
    writing: Writing
    config: ShipperConfig
    js: JetStream
    arrivals: Arrivals
    unseen: int = 0

    async def write(self, lines: int) -> None:
        """Write *lines* more, and let others run meanwhile."""
        for number in range(lines):
            self.writing.line()
            if number % LINES_AT_ONCE == 0:
                await asyncio.sleep(PAUSE_S)

    async def rotate_all(self, before: Callable[[int], Awaitable[None]]) -> None:
        """Write each file, and rotate behind all but the last; do *before* each rotation."""
        for number, lines in enumerate(self.mode.lines):
            await self.write(lines)
            await before(number)
            if number + 1 < len(self.mode.lines):
                self.writing.is_busy = lines > 0 and not self.mode.is_read_first
                await self.rotator.rotate(self.writing)

    async def until_arrived(self) -> None:
        """Return when all that was written has arrived, or will not."""
        with contextlib.suppress(AssertionError):
            await eventually(
                lambda: self.arrivals.has(self.writing.ledger, last=self.mode.loses),
                within_s=LOST_AFTER_S if self.mode.loses else WITHIN_S,
            )

    async def ask(self) -> None:
        """Note what the running shipper says that it, or one before it, never saw."""

        async def answer() -> bytes:
            try:
                return (await self.js.connection.request(f"{CONTROL}.status.shipper", b"")).data
            except (NoResponders, NotSent):
                return b""

        self.unseen = json.loads(await eventually(answer))["unseen_generations"]

    async def counted(self) -> Counted:
        """Return what came of it."""
        await self.arrivals.fetch()
        return count(self.writing.ledger, self.arrivals.messages, self.unseen)


async def up(cell: Cell, chance: random.Random) -> None:
    """The shipper runs all the time; before every other rotation it has read everything."""

    async def wait(number: int) -> None:
        if number % 2 == 0 or cell.mode.is_read_first:
            await cell.until_arrived()

    async with shipping(cell.config):
        cell.writing.begin()
        await cell.write(FIRST_LINES)
        await cell.until_arrived()
        await cell.rotate_all(wait)
        await cell.until_arrived()
        await cell.ask()


async def down(cell: Cell, chance: random.Random) -> None:
    """The shipper is stopped, the log is rotated, and the shipper is started again."""
    # It does not read to the last byte when it is stopped: the log goes on.
    async with shipping(replace(cell.config, read_out_s=0.0)):
        cell.writing.begin()
        await cell.write(FIRST_LINES)
        await cell.until_arrived()
    await cell.rotate_all(_nothing)
    async with shipping(cell.config):
        await cell.until_arrived()
        await cell.ask()


async def killed(cell: Cell, chance: random.Random) -> None:
    """The shipper is a process, and is killed at some moment of each file's life or of the rotation
    behind it, once it has sent something.
    """
    cell.writing.begin()
    process = _started(cell)
    await cell.until_arrived()
    killing = asyncio.create_task(_nothing(0))

    async def kill() -> None:
        nonlocal process
        before = len(cell.arrivals.messages)
        await eventually(lambda: _has_sent(cell, before), what="the shipper sends")
        await asyncio.sleep(chance.random() * KILL_AFTER_S_MAX)
        process.kill()
        await asyncio.to_thread(process.wait)
        process = _started(cell)

    async def next_kill(number: int) -> None:
        nonlocal killing
        await killing
        await cell.write(FIRST_LINES)
        killing = asyncio.create_task(kill())
        await asyncio.sleep(chance.random() * KILL_AFTER_S_MAX)

    try:
        await cell.rotate_all(next_kill)
        await killing
        await cell.until_arrived()
        await cell.ask()
    finally:
        killing.cancel()
        process.kill()
        process.wait()
    # The last run sends what the killed ones held back, and names what they lost.
    async with shipping(cell.config):
        await cell.until_arrived()


RUNS = {"up": up, "down": down, "killed": killed}


async def run(mode: Mode, how: str, server: EmbeddedServer, folder: Path, seed: str) -> Counted:
    """Return what came of a run of *mode* while the shipper is as *how* says."""
    async with _made(mode, server, folder) as cell:
        await RUNS[how](cell, random.Random(seed))
        return await cell.counted()


@asynccontextmanager
async def _made(mode: Mode, server: EmbeddedServer, folder: Path) -> AsyncIterator[Cell]:
    config = configured(folder, server.url, mode.include)
    async with jetstream(server) as js:
        await make_stream(js)
        rotator = mode.make(folder)
        try:
            writing = Writing(rotator.write)
            yield Cell(mode, rotator, writing, config, js, Arrivals(js, STREAM))
        finally:
            rotator.close()


def configured(folder: Path, url: str, include: tuple[str, ...]) -> ShipperConfig:
    """Return the configuration of a shipper of what *include* names below *folder*. When it is
    stopped, it sends first what it held back.
    """
    patterns = tuple(f"{folder}/{each}" for each in include)
    hosts = (HostSources(host=HOST, include=patterns),)
    return config_of(folder, url, hosts=hosts, read_out_s=READ_OUT_S)


async def _nothing(number: int) -> None:
    pass


async def _has_sent(cell: Cell, before: int) -> bool:
    await cell.arrivals.fetch()
    return len(cell.arrivals.messages) > before


def _started(cell: Cell) -> warm.AnyProcess:
    folder = cell.config.data.parent
    words = [str(folder), cell.config.nats.servers[0], *cell.mode.include]
    with (folder / "shipper.log").open("ab") as log:
        return warm.start(words, stdout=log, stderr=log, env=os.environ, target=f"{__name__}:main")


def main() -> int:
    """Be such a process."""
    folder, url, *include = sys.argv[1:]
    config = configured(Path(folder), url, tuple(include))

    async def serve() -> int:
        return await service.run(config, asyncio.Event())

    with pytest.MonkeyPatch.context() as monkeypatch:
        hurry(monkeypatch)
        return asyncio.run(serve())
