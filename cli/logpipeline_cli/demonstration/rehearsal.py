"""One run of the demo: start everything, show it, stop writing, wait until all has arrived."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from logpipeline.archiving import archive_key
from logpipeline.listing import files_below
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
from logpipeline.plan.readers import archive_progress
from logpipeline.survey import survey
from logpipeline_cli.answers import ask
from logpipeline_cli.demonstration.application import BusyApplication
from logpipeline_cli.demonstration.probe import Probe
from logpipeline_cli.demonstration.screen import Frame, Screen
from logpipeline_cli.local.supervisor import Supervisor

FRAME_EVERY_S = 1.0
# All that was written must have arrived within this time after writing ended.
SETTLE_DEADLINE_S = 90.0
# The shippers look through their folders this often: a file seen late shows as backlog by then.
SETTLED_FRAMES = 4


@dataclass(slots=True)
class Rehearsal:
    """The running demo."""

    supervisor: Supervisor
    application: BusyApplication
    probe: Probe
    started_s: float = field(default_factory=time.monotonic)
    _lines: int = 0
    _bytes: int = 0
    _at_s: float = 0.0

    async def run(self, screen: Screen, until: Callable[[], bool]) -> None:
        """Write and show until *until*, then go on showing until everything has arrived."""
        await self.application.start()
        probing = asyncio.create_task(self.probe.run())
        try:
            while not until():
                await asyncio.sleep(FRAME_EVERY_S)
                await self.application.ask()
                await self._show(screen)
        finally:
            probing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await probing
            await self.application.stop()

    async def settle(self, screen: Screen) -> bool:
        """Return whether all that was written has arrived within the deadline."""
        until_s = time.monotonic() + SETTLE_DEADLINE_S
        quiet = 0
        while time.monotonic() < until_s:
            await asyncio.sleep(FRAME_EVERY_S)
            frame = await self._show(screen)
            answers = frame is not None and len(frame.shippers) >= self._shippers()
            is_quiet = answers and not frame.backlog_bytes and not frame.lag_messages  # type: ignore[union-attr]
            quiet = quiet + 1 if is_quiet else 0
            if quiet >= SETTLED_FRAMES:
                return True
        return False

    async def settle_table(self) -> bool:
        """Return whether the table has all that the streams hold within the deadline."""
        supervisor, pipeline = self.supervisor, self.supervisor.pipeline
        key = archive_key(pipeline.namespace, pipeline.name)
        until_s = time.monotonic() + SETTLE_DEADLINE_S
        while time.monotonic() < until_s:
            states = await survey(supervisor.js, pipeline)
            progress = await archive_progress(supervisor.bucket, key)
            at = progress.streams if progress is not None else {}
            if all(s.stream in at and at[s.stream].sequence >= s.last_sequence for s in states):
                return True
            await asyncio.sleep(FRAME_EVERY_S)
        return False

    def _shippers(self) -> int:
        return len(self.supervisor.pipeline.spec.local.shippers)

    async def _show(self, screen: Screen) -> Frame | None:
        """Draw the moment; a server that is away leaves the screen as it was."""
        try:
            frame = await self._frame()
        except (NotSent, OutcomeUnknown, ApiError):
            return None
        screen.show(frame)
        return frame

    async def _frame(self) -> Frame:
        pipeline = self.supervisor.pipeline
        answers, partitions = await asyncio.gather(
            ask(self.supervisor.js.connection, pipeline.names.control_subject),
            survey(self.supervisor.js, pipeline),
        )
        tenures = [p for answer in answers["collector"] for p in answer["partitions"]]
        lines = sum(p.get("lines", 0) for p in tenures)
        count = sum(p.get("bytes", 0) for p in tenures)
        now_s = time.monotonic()
        span_s = now_s - (self._at_s or self.started_s)
        frame = Frame(
            elapsed_s=now_s - self.started_s,
            partitions=partitions,
            shippers=answers["shipper"],
            collectors=answers["collector"],
            lines=lines,
            # A collector that was started again counts from zero.
            lines_per_s=max(0, lines - self._lines) / span_s,
            bytes_per_s=max(0, count - self._bytes) / span_s,
            files=_count_files(self.supervisor.layout.data / "collectors"),
            rotations=self.application.rotations,
            latency_p50_s=self.probe.percentile_s(0.5),
            latency_p99_s=self.probe.percentile_s(0.99),
        )
        self._lines, self._bytes, self._at_s = lines, count, now_s
        return frame


def _count_files(collectors: Path) -> int:
    return sum(1 for logs in collectors.glob("*/logs") for _ in files_below(logs))
