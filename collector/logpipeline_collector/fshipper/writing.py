"""Brings waiting lines to the disk: together where many come, durable within a second."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time

from logpipeline_collector.fshipper.config import LINGER_S, RETRY_S, SYNC_INTERVAL_S
from logpipeline_collector.fshipper.files import DayFiles
from logpipeline_collector.fshipper.intake import Intake

log = logging.getLogger(__name__)


class Writer:
    """Writes what *intake* has into *files*. While the disk is full it tries again, and the intake
    fills up. `problem` says why nothing is written.
    """

    def __init__(self, intake: Intake, files: DayFiles) -> None:
        self.problem: str | None = None
        self.bytes = 0
        self._intake = intake
        self._files = files
        self._left: dict[str, bytes] = {}
        self._came = asyncio.Event()
        self._is_stopping = False
        self._told_dropped = 0

    def wake(self) -> None:
        """Note that there is something to write."""
        self._came.set()

    def stop(self) -> None:
        """Let `run` end when everything is written, or cannot be."""
        self._is_stopping = True
        self._came.set()

    async def run(self) -> None:
        """Write until `stop`.

        Raises:
            SyncFailed: what was written may be gone, and nobody can make it good here.
        """
        synced_s, is_dirty = time.monotonic(), False
        while not self._is_stopping:
            due_s = synced_s + SYNC_INTERVAL_S - time.monotonic()
            await self._wait(max(due_s, 0.0) if is_dirty else None)
            is_dirty = await self._write() or is_dirty
            if is_dirty and time.monotonic() - synced_s >= SYNC_INTERVAL_S:
                await asyncio.to_thread(self._files.sync)
                synced_s, is_dirty = time.monotonic(), False
            self._tell_dropped()
            if not self._is_stopping:
                await asyncio.sleep(RETRY_S if self._left else LINGER_S)
        had_left = bool(self._left)
        await self._write()
        if had_left and not self._left:
            await self._write()
        if self._left:
            log.error("lines are lost: they cannot be written", extra={"reason": self.problem})
        await asyncio.to_thread(self._files.close)

    async def _wait(self, timeout_s: float | None) -> None:
        # What came while the disk was full has told so long ago.
        if not self._left and not self._intake.size:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._came.wait()
        self._came.clear()

    async def _write(self) -> bool:
        """Write what waits; return whether anything was written."""
        waiting = self._left or self._intake.give()
        if not waiting:
            return False
        before = self.bytes
        self._left = await asyncio.to_thread(self._append, waiting)
        return self.bytes > before

    def _append(self, waiting: dict[str, bytes]) -> dict[str, bytes]:
        """Append what *waiting* holds, and return what could not be."""
        left: dict[str, bytes] = {}
        problem = None
        for host, data in waiting.items():
            try:
                self._files.append(host, data, time.time())
                self.bytes += len(data)
            except OSError as error:
                left[host] = data
                problem = f"lines cannot be written: {os.strerror(error.errno or 0)}: {host}"
        if problem != self.problem:
            log.log(
                logging.ERROR if problem else logging.INFO,
                "lines cannot be written; it is tried again" if problem else "lines are written",
                extra={"reason": problem},
            )
        self.problem = problem
        return left

    def _tell_dropped(self) -> None:
        more = self._intake.dropped - self._told_dropped
        if more:
            self._told_dropped += more
            log.error(
                "lines are dropped: they come faster than the disk takes them",
                extra={"lines": more},
            )
