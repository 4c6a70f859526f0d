"""A process of the pipeline that is kept running: it is started again with back-off when it
ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

from logpipeline.process import end_with_parent

log = logging.getLogger(__name__)

BACKOFF_FIRST_S = 0.2
BACKOFF_MAX_S = 10.0
# A process that ran so long had started properly: the back-off begins again.
STARTED_WELL_S = 30.0
STOP_DEADLINE_S = 25.0
# The log of a killed process is read for so long. A child of it may keep the log open for ever.
KILLED_DEADLINE_S = 5.0
LOG_BYTES_MAX = 10 * 1024 * 1024
LOG_LINE_BYTES_MAX = 64 * 1024

PARENT_VARIABLE = "LOGPIPELINE_PARENT"


@dataclass(slots=True)
class Part:
    """The process *name*, started by what *command* returns at each start. Its log goes to
    *log_file*, or to our standard error.
    """

    name: str
    command: Callable[[], Sequence[str]]
    log_file: Path | None
    on_line: Callable[[str, str], None] = lambda name, line: None
    on_start: Callable[[], None] = lambda: None
    environment: Mapping[str, str] = field(default_factory=dict)
    restarts: int = 0
    _process: asyncio.subprocess.Process | None = field(default=None)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def pid(self) -> int:
        """The id of the running process, or 0."""
        return self._process.pid if self._process and self._process.returncode is None else 0

    async def run(self) -> None:
        """Keep the process running until `stop`; when this returns or raises, it has ended."""
        try:
            await self._keep_running()
        finally:
            self.kill()
            self._stopped.set()

    async def stop(self) -> None:
        """Ask the process to stop, and return when it has; after the deadline it is killed."""
        # Only `run` starts and ends processes; so one that is being started now is stopped, too.
        self._stopping.set()
        await self._stopped.wait()

    async def _keep_running(self) -> None:
        backoff_s = BACKOFF_FIRST_S
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                end = f"code {await self._run_once()}"
            except OSError as error:
                # No memory, no descriptor: this may be temporary.
                end = str(error)
            except Exception as error:
                # Its process was ended: one whose log is not read would stand still.
                log.exception("the log of a part cannot be read", extra={"part": self.name})
                end = repr(error)
            if self._stopping.is_set():
                return
            if time.monotonic() - started > STARTED_WELL_S:
                backoff_s = BACKOFF_FIRST_S
            self.restarts += 1
            log.warning(
                "a part ended, starting it again",
                extra={"part": self.name, "reason": end, "wait_s": backoff_s},
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(backoff_s):
                    await self._stopping.wait()
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)

    async def _run_once(self) -> int:
        process = await self._launch()
        ending = asyncio.create_task(self._follow(process))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([ending, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not ending.done():
                await self._end(process, ending)
            return ending.result() if ending.done() else -signal.SIGKILL
        finally:
            # A process whose log is read no more would stop when the pipe is full.
            self.kill()
            ending.cancel()
            stopping.cancel()

    async def _follow(self, process: asyncio.subprocess.Process) -> int:
        """Copy the log of *process*, and return the exit code when both are at their end."""
        _, code = await asyncio.gather(self._copy_log(process), process.wait())
        return code

    async def _end(self, process: asyncio.subprocess.Process, ending: asyncio.Task[int]) -> None:
        with suppress(ProcessLookupError):
            process.terminate()
        _, late = await asyncio.wait([ending], timeout=STOP_DEADLINE_S)
        if late:
            log.warning("a part did not stop in time, killing it", extra={"part": self.name})
            self.kill()
            await asyncio.wait([ending], timeout=KILLED_DEADLINE_S)

    def kill(self) -> None:
        """Kill the process; `run` starts another one."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _launch(self) -> asyncio.subprocess.Process:
        # In a new session, so that Ctrl-C reaches only the supervisor, which stops its parts in
        # order.
        self._process = await asyncio.create_subprocess_exec(
            *self.command(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=None if self.log_file is None else asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=LOG_LINE_BYTES_MAX,
            env={**os.environ, **self.environment, PARENT_VARIABLE: str(os.getpid())},
        )
        self.on_start()
        return self._process

    async def _copy_log(self, process: asyncio.subprocess.Process) -> None:
        if self.log_file is None:
            return
        assert process.stderr is not None
        with BoundedLog(self.log_file) as file:
            while True:
                try:
                    line = await process.stderr.readline()
                except ValueError:
                    # Longer than the limit; asyncio has removed it from its buffer.
                    line = b"[a line of the log was too long]\n"
                if not line:
                    return
                file.write(line)
                # Our terminal may be gone; but if its log were not read any more, the part would
                # block.
                with suppress(OSError):
                    self.on_line(self.name, line.decode("utf-8", "replace").rstrip("\n"))


class BoundedLog:
    """A log file that is renamed to ``.1`` when it is full, so that there are at most two files.

    One that cannot be written is tried again with each line: whatever is wrong with it, the part
    must run on, and its lines must be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: FileIO | None = None
        self._problem = ""

    def __enter__(self) -> BoundedLog:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def write(self, line: bytes) -> None:
        """Append *line*; where that fails, the line is dropped, and the reason is logged once."""
        try:
            self._opened().write(line)
        except OSError as error:
            self._close()
            problem = str(error)
            if problem != self._problem:
                log.warning(
                    "the log of a part cannot be written; the part runs on",
                    extra={"at": str(self._path), "why": problem},
                )
            self._problem = problem
        else:
            self._problem = ""

    def _opened(self) -> FileIO:
        if self._file is not None:
            state = os.fstat(self._file.fileno())
            if state.st_size > LOG_BYTES_MAX:
                self._close()
                # A person who needs room may have removed the file.
                with suppress(FileNotFoundError):
                    self._path.replace(self._path.with_name(self._path.name + ".1"))
            elif not state.st_nlink:
                # Removed: the lines would go into a file that has no name.
                self._close()
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = FileIO(self._path, "ab")
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            with suppress(OSError):
                file.close()


def die_with_parent() -> None:
    """Make the kernel end this process when the supervisor that started it ends."""
    parent = os.environ.pop(PARENT_VARIABLE, "")
    if not parent or sys.platform != "linux":
        return
    end_with_parent()
    if os.getppid() != int(parent):
        sys.exit("the supervisor has ended")
