"""One run of the demo: start everything, show it, stop writing, wait until all has arrived."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
from logpipeline.plan.readers import table_progress
from logpipeline.survey import survey
from logpipeline.tables.progress import table_key
from logpipeline_cli.answers import ask
from logpipeline_cli.demonstration.application import BusyApplication
from logpipeline_cli.demonstration.archived import ArchiveCounter, Archived
from logpipeline_cli.demonstration.probe import Probe
from logpipeline_cli.demonstration.screen import Frame, Progress, Screen
from logpipeline_cli.local.supervisor import Supervisor

FRAME_EVERY_S = 1.0
# After writing has ended, only the lines that are under way have to arrive.
SETTLE_LOOK_EVERY_S = 0.2
# Each look asks the server about every stream, while Spark wants the processor.
TABLE_LOOK_EVERY_S = 0.5
# All that was written must have arrived within this time after writing ended.
SETTLE_DEADLINE_S = 90.0
# Spark starts within seconds on an idle machine, and within minutes on one that is very busy.
TABLE_DEADLINE_S = 240.0
# The shippers look through their folders every second or two. If nothing is under way for so long
# and lines are missing, they are lost; the check names them.
QUIET_S = 5.0


@dataclass(slots=True)
class Rehearsal:
    """The running demo."""

    supervisor: Supervisor
    application: BusyApplication
    probe: Probe
    counter: ArchiveCounter
    started_s: float = field(default_factory=time.monotonic)
    _lines: int = 0
    _bytes: int = 0
    _at_s: float = 0.0

    async def run(self, screen: Screen, until: Callable[[], bool]) -> None:
        """Write and show until *until*, then end all writing."""
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

    async def settle(self, screen: Screen, has_all: Callable[[Archived], bool]) -> bool:
        """Show until *has_all* holds and all is committed, or nothing more comes; return whether
        that came to pass within the deadline.
        """
        until_s = time.monotonic() + SETTLE_DEADLINE_S
        quiet_since_s = time.monotonic()
        while time.monotonic() < until_s:
            frame = await self._show(screen)
            if frame is None or frame.lag_messages:
                quiet_since_s = time.monotonic()
            elif has_all(frame.archived):
                return True
            elif frame.backlog_bytes or len(frame.shippers) < self._shippers():
                quiet_since_s = time.monotonic()
            if time.monotonic() - quiet_since_s >= QUIET_S:
                return True
            await asyncio.sleep(SETTLE_LOOK_EVERY_S)
        return False

    async def settle_table(self, progress: Progress) -> bool:
        """Return whether the table has all that the streams hold within the deadline."""
        supervisor, pipeline = self.supervisor, self.supervisor.pipeline
        key = table_key(pipeline.namespace, pipeline.name)
        until_s = time.monotonic() + TABLE_DEADLINE_S
        while time.monotonic() < until_s:
            states = await survey(supervisor.js, pipeline)
            record = await table_progress(supervisor.bucket, key)
            at = record.streams if record is not None else {}
            level = [s for s in states if s.stream in at]
            level = [s for s in level if at[s.stream].sequence >= s.last_sequence]
            if len(level) == len(states):
                return True
            begun = "" if at else "; Spark is starting"
            progress.tell(f"{len(level)} of {len(states)} streams are complete{begun}")
            await asyncio.sleep(TABLE_LOOK_EVERY_S)
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
        # What the survey calls committed is in the files by now.
        archived = await asyncio.to_thread(self.counter.look)
        now_s = time.monotonic()
        span_s = now_s - (self._at_s or self.started_s)
        # A file that is renamed in the middle of a look is missing for that moment.
        lines, size = max(self._lines, archived.total), max(self._bytes, archived.bytes)
        frame = Frame(
            elapsed_s=now_s - self.started_s,
            partitions=partitions,
            shippers=answers["shipper"],
            collectors=answers["collector"],
            archived=archived,
            lines=lines,
            lines_per_s=(lines - self._lines) / span_s,
            bytes_per_s=(size - self._bytes) / span_s,
            rotations=self.application.rotations,
            latency_p50_s=self.probe.percentile_s(0.5),
            latency_p99_s=self.probe.percentile_s(0.99),
        )
        self._lines, self._bytes, self._at_s = lines, size, now_s
        return frame
