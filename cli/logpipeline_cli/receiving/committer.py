"""Groups what arrives within some milliseconds into one durable step, so that the cost of a sync is
shared, and says to each giver when its lines are durable.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from logpipeline.observe.metrics import Metrics
from logpipeline_cli.receiving.spool import Spool, SpoolFull

# A sync takes some milliseconds on a usual disk: waiting as long about halves their number.
LINGER_S = 0.01
GROUP_BYTES_MAX = 4 * 1024 * 1024
# What may wait in memory, also while the disk is full.
WAITING_BYTES_MAX = 64 * 1024 * 1024
# What it takes there besides its lines, as measured: of a short datagram it is nearly all.
GIVEN_BYTES = 450
NAME_BYTES = 100
FULL_AGAIN_AFTER_S = 0.5
# So long without a new line until files are synced and the redo log is emptied.
IDLE_S = 2.0

log = logging.getLogger(__name__)


class _Given(NamedTuple):
    lines: dict[str, bytes]
    state: Any
    line_count: int
    size: int
    memory: int
    done: asyncio.Future[None]


@dataclass(eq=False)
class Committer:
    """Commits to *spool*. With *waits* a full disk is waited for; else those who gave the lines
    get `SpoolFull`.
    """

    spool: Spool
    metrics: Metrics
    waits: bool
    linger_s: float = LINGER_S
    waiting_bytes_max: int = WAITING_BYTES_MAX
    _given: deque[_Given] = field(default_factory=deque)
    _waiting_bytes: int = 0
    _full_since_s: float | None = None
    _full_why: str = ""
    _refused_bytes: int = 0
    _is_released: bool = False
    _has_ended: bool = False
    # Lines that a stop gave up: those that the next start reads again, and those that are lost.
    _kept_lines: int = 0
    _dropped_lines: int = 0

    def __post_init__(self) -> None:
        self._arrived = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        # Only this thread touches the spool.
        self._thread = ThreadPoolExecutor(1, "spool")
        self._lines = self.metrics.counter("lines", "Lines that are durable in files.").labels()
        self._bytes = self.metrics.counter("bytes", "Bytes that are durable in files.").labels()
        self._commits = self.metrics.counter("commits", "Durable steps, each with a sync.").labels()
        self.metrics.watch(
            "disk_full",
            "1 while nothing can be written, as on a full disk, so that nothing is accepted.",
            lambda: float(self._full_since_s is not None),
        )
        self.metrics.watch(
            "waiting_bytes",
            "Bytes in memory for lines that are not durable yet.",
            lambda: float(self._waiting_bytes),
        )
        self.metrics.watch(
            "removed_files",
            "Rotated files that were removed since the start, to keep no more than --keep.",
            lambda: float(self.spool.removed_files),
        )

    @property
    def has_room(self) -> bool:
        """Whether more may be given now."""
        return self._waiting_bytes < self.waiting_bytes_max

    async def room(self) -> None:
        """Return once more may be given, or at once after `release`."""
        await self._has_room.wait()

    def release(self) -> None:
        """End all waiting for room: those who give are ending, and hold little."""
        self._is_released = True
        self._has_room.set()

    def give(self, lines: dict[str, bytes], count: int, state: Any = None) -> asyncio.Future[None]:
        """Take *count* whole lines, by the names of their files; the result is set once they are
        durable, or cancelled where they will not be. *state* is the position behind them.
        """
        size = sum(map(len, lines.values()))
        memory = size + GIVEN_BYTES + NAME_BYTES * len(lines) + sum(map(len, lines))
        done = asyncio.get_running_loop().create_future()
        given = _Given(lines, state, count, size, memory, done)
        self._count(memory)
        if self._has_ended:
            self._give_up([given])
            return done
        self._given.append(given)
        self._arrived.set()
        return done

    def why_not_ready(self) -> str | None:
        """Return why nothing can be written, or None."""
        return None if self._full_since_s is None else f"{self._full_why}: nothing is accepted"

    async def run(self, stop: asyncio.Event) -> None:
        """Commit lines as they are given, until *stop* is set and all of them are durable.

        Raises:
            OSError: the disk fails.
        """
        try:
            while not (stop.is_set() and not self._given):
                if not await self._wait(stop):
                    await self._tidy()
                    continue
                if not stop.is_set():
                    await asyncio.sleep(self.linger_s)
                await self._commit(self._take(), stop)
        finally:
            self._has_ended = True
            self.release()
            self._give_up(self._given)
            self._given.clear()
            self._thread.shutdown()

    def close(self) -> None:
        """Log how many lines will not become durable, once nothing more is given."""
        # Where lines are not waited for, their giver was told, and has them.
        if self._kept_lines:
            message = "lines are read again at the next start"
            log.warning(message, extra={"lines": self._kept_lines})
        if self._dropped_lines and self.waits:
            log.error("lines are dropped", extra={"lines": self._dropped_lines})

    async def _wait(self, stop: asyncio.Event) -> bool:
        """Return whether something was given before the receiver was idle for long."""
        if self._given:
            return True
        self._arrived.clear()
        waits = [asyncio.ensure_future(each.wait()) for each in (self._arrived, stop)]
        try:
            await asyncio.wait(waits, timeout=IDLE_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        return bool(self._given)

    def _take(self) -> list[_Given]:
        group: list[_Given] = []
        size = 0
        while self._given and (not group or size < GROUP_BYTES_MAX):
            given = self._given.popleft()
            group.append(given)
            size += given.size
        return group

    async def _commit(self, group: list[_Given], stop: asyncio.Event) -> None:
        parts: dict[str, list[bytes]] = {}
        for given in group:
            for name, data in given.lines.items():
                parts.setdefault(name, []).append(data)
        lines = {name: b"".join(data) for name, data in parts.items()}
        state = group[-1].state
        while True:
            try:
                await self._call(lambda: self.spool.commit(lines, state))
            except OSError:
                # It ends the process. Some of them may be in the redo log.
                self._give_up(group)
                raise
            except SpoolFull as error:
                self._note_full(error)
                if self.waits and stop.is_set():
                    # And all later groups: a smaller one that fits would commit its position, and
                    # the lines of this one would never be read again.
                    self._give_up([*group, *self._given])
                    self._given.clear()
                    return
                if not self.waits:
                    self._refused_bytes = sum(given.size for given in group)
                    self._settle(group, error)
                    return
                await asyncio.sleep(FULL_AGAIN_AFTER_S)
                continue
            self._note_full(None)
            self._commits.inc()
            self._settle(group, None)
            return

    def _settle(self, group: list[_Given], error: SpoolFull | None) -> None:
        for given in group:
            self._count(-given.memory)
            if error is None:
                self._lines.inc(given.line_count)
                self._bytes.inc(given.size)
            if given.done.done():
                continue
            if error is None:
                given.done.set_result(None)
            else:
                given.done.set_exception(error)

    def _give_up(self, group: Iterable[_Given]) -> None:
        for given in group:
            self._count(-given.memory)
            given.done.cancel()
            # What has a position is read from there by the next start.
            if given.state is None:
                self._dropped_lines += given.line_count
            else:
                self._kept_lines += given.line_count

    async def _tidy(self) -> None:
        # Only a full disk is waited for. After a sync that failed the next one may succeed without
        # the bytes, and the redo log would be emptied, which alone has them.
        try:
            await self._call(self.spool.checkpoint)
            if self._full_since_s is not None:
                # A load balancer that follows readiness sends nothing by which room would show.
                size = min(self._refused_bytes, GROUP_BYTES_MAX)
                await self._call(lambda: self.spool.try_room(size))
                self._note_full(None)
        except SpoolFull as error:
            if self._full_since_s is None:
                log.warning("the files could not be synced", extra={"reason": str(error)})

    def _note_full(self, error: SpoolFull | None) -> None:
        if error is not None and self._full_since_s is None:
            self._full_since_s, self._full_why = time.monotonic(), str(error)
            log.error("nothing can be written, or accepted", extra={"reason": str(error)})
        elif error is None and self._full_since_s is not None:
            seconds = round(time.monotonic() - self._full_since_s, 1)
            self._full_since_s = None
            log.info("lines can be written again", extra={"seconds": seconds})

    def _count(self, memory: int) -> None:
        self._waiting_bytes += memory
        if self.has_room or self._is_released:
            self._has_room.set()
        else:
            self._has_room.clear()

    async def _call(self, function: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, function)
