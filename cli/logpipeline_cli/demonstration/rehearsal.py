"""One run of the demo: start everything, show it, stop writing, wait until all lines arrived."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from logpipeline import json_text
from logpipeline.lag import survey
from logpipeline.listing import files_below
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
from logpipeline.plan.trim import table_progress
from logpipeline.tables.progress import table_key
from logpipeline_cli.demonstration.screen import Frame, Progress, Screen
from logpipeline_cli.errors import CliError
from logpipeline_cli.local.supervisor import Supervisor
from logpipeline_cli.target import ask
from logpipeline_demo.outputs import Collected, CollectedCounter

ANSWER_DEADLINE_S = 5.0
STOP_DEADLINE_S = 20.0

EVERY_S = 0.5
LOOK_EVERY_S = 0.002
# The first line waits until all components have started; on a busy machine that takes long.
ARRIVES_WITHIN_S = 30.0
SAMPLES_MAX = 200

FRAME_EVERY_S = 1.0
# After writing has ended, only lines in flight have to arrive.
SETTLE_LOOK_EVERY_S = 0.2
# Each look asks the server about every stream, and Spark needs the processor meanwhile.
TABLE_LOOK_EVERY_S = 0.5
# All lines must have arrived within this time after writing ended.
SETTLE_DEADLINE_S = 90.0
# Spark starts within seconds on an idle machine, and within minutes on one that is very busy.
TABLE_DEADLINE_S = 240.0
# The shippers scan their folders every second or two. If nothing is in flight for so long and
# lines are missing, they are lost; the check names them.
QUIET_S = 5.0


class BusyApplication:
    """Writes the logs of fifty hosts below *root*, and a ledger of every line."""

    def __init__(self, root: Path, ledger: Path, seed: int) -> None:
        self._words = ["--root", str(root), "--ledger", str(ledger), "--seed", str(seed)]
        self._process: asyncio.subprocess.Process | None = None
        self.rotations = 0
        self.lines = 0

    async def start(self) -> None:
        """Start writing."""
        words = ["-m", "logpipeline_demo.application", *self._words, "--control"]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )

    async def ask(self) -> None:
        """Update the numbers of lines and rotations; a late answer is skipped."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        if process.returncode is not None:
            raise CliError(f"the busy application ended by itself with code {process.returncode}")
        process.stdin.write(b"status\n")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_DEADLINE_S):
                line = await process.stdout.readline()
            if line:
                answer = json_text.parse(line)
                self.lines, self.rotations = answer["lines"], answer["rotations"]

    async def stop(self) -> None:
        """Stop writing, after open lines and the ledger are complete."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_DEADLINE_S):
                await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise CliError(
                "the busy application did not stop in time, so that its ledger is incomplete"
            ) from None


class Probe:
    """Measures the latency: writes lines to *path*, and looks for them in the collectors'
    *outputs*. *first_s* is the latency of the first one.
    """

    def __init__(self, path: Path, outputs: Path) -> None:
        self.path = path
        self._outputs = outputs
        self._samples: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._found: Path | None = None
        self.first_s: float | None = None

    def prepare(self) -> None:
        """Create the file, so that it is watched from its beginning."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()

    async def run(self) -> None:
        """Measure until cancelled."""
        number = 0
        with self.path.open("ab", buffering=0) as file:
            while True:
                number += 1
                line = b"probe %d at %d\n" % (number, time.time_ns())
                started = time.monotonic()
                file.write(line)
                if await self._arrived(line, started + ARRIVES_WITHIN_S):
                    took_s = time.monotonic() - started
                    if self.first_s is None:
                        # It waited until every process had started, and does not count as latency.
                        self.first_s = took_s
                    else:
                        self._samples.append(took_s)
                await asyncio.sleep(EVERY_S)

    def percentile_s(self, share: float) -> float | None:
        """Return the time within which *share* (0 to 1) of the last lines arrived, if any did."""
        if not self._samples:
            return None
        ordered = sorted(self._samples)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    async def _arrived(self, line: bytes, until: float) -> bool:
        while time.monotonic() < until:
            await asyncio.sleep(LOOK_EVERY_S)
            if self._ends_with(line):
                return True
        return False

    def _ends_with(self, line: bytes) -> bool:
        if self._found is None or not self._found.exists():
            # The partition may have moved to another collector; the newest file is the one in use.
            found = [path for path in files_below(self._outputs) if path.name == self.path.name]
            if not found:
                return False
            self._found = max(found, key=lambda path: path.stat().st_mtime_ns)
        with self._found.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - len(line)))
            return file.read() == line


@dataclass(slots=True)
class Rehearsal:
    """The running demo."""

    supervisor: Supervisor
    application: BusyApplication
    probe: Probe
    counter: CollectedCounter
    started_s: float = field(default_factory=time.monotonic)
    _lines: int = 0
    _bytes: int = 0
    _at_s: float = 0.0

    async def run(self, screen: Screen, until: Callable[[], bool]) -> None:
        """Write and show frames until *until* returns True, then stop writing."""
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

    async def settle(self, screen: Screen, has_all: Callable[[Collected], bool]) -> bool:
        """Show frames until *has_all* is true and everything is committed, or no more lines arrive;
        return whether that happened within the deadline.
        """
        until_s = time.monotonic() + SETTLE_DEADLINE_S
        quiet_since_s = time.monotonic()
        while time.monotonic() < until_s:
            frame = await self._show(screen)
            if frame is None or frame.lag_messages:
                quiet_since_s = time.monotonic()
            elif has_all(frame.collected):
                return True
            elif frame.backlog_bytes or len(frame.shippers) < self._shippers():
                quiet_since_s = time.monotonic()
            if time.monotonic() - quiet_since_s >= QUIET_S:
                return True
            await asyncio.sleep(SETTLE_LOOK_EVERY_S)
        return False

    async def settle_table(self, progress: Progress) -> bool:
        """Wait until the table has all messages of the streams; return False after the deadline."""
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
            progress.update(f"{len(level)} of {len(states)} streams are complete{begun}")
            await asyncio.sleep(TABLE_LOOK_EVERY_S)
        return False

    def _shippers(self) -> int:
        return len(self.supervisor.pipeline.spec.local.shippers)

    async def _show(self, screen: Screen) -> Frame | None:
        """Show the present state; None if the server does not answer."""
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
        # Messages that the survey calls committed are in the files by now.
        collected = await asyncio.to_thread(self.counter.look)
        now_s = time.monotonic()
        span_s = now_s - (self._at_s or self.started_s)
        # A file that is renamed during the count is missing for that moment.
        lines, size = max(self._lines, collected.total), max(self._bytes, collected.bytes)
        frame = Frame(
            elapsed_s=now_s - self.started_s,
            partitions=partitions,
            shippers=answers["shipper"],
            collectors=answers["collector"],
            collected=collected,
            lines=lines,
            lines_per_s=(lines - self._lines) / span_s,
            bytes_per_s=(size - self._bytes) / span_s,
            rotations=self.application.rotations,
            latency_p50_s=self.probe.percentile_s(0.5),
            latency_p99_s=self.probe.percentile_s(0.99),
        )
        self._lines, self._bytes, self._at_s = lines, size, now_s
        return frame
