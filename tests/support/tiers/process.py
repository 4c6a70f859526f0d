"""Runs one step as a process of its own, and ends it with everything that it started."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

from log_tails import tail_of
from tiers.results import Result, cases_in
from tiers.steps import ROOT, Step

ENDS_WITHIN_S = 20.0
POLL_S = 0.05
CODE_LIMIT = 124  # as timeout(1) ends
TAIL_BYTES = 4_096
PROGRESS_CHARS_MAX = 60
# How far pytest is, at the end of a row of dots.
PERCENT = re.compile(r"\[ *(\d+)%\]")


class StepProcess:
    """A step under way; what it prints goes to *log*."""

    def __init__(self, step: Step, folder: Path) -> None:
        self.step = step
        self.log = folder / f"{step.name}.log"
        self._report = folder / f"{step.name}.xml"
        self._began_s = time.monotonic()
        command = list(step.command)
        if step.has_tests:
            command += [f"--junitxml={self._report}", "-o", "junit_family=xunit1"]
        # A program that is not there is then an exit code and a line in the log.
        command = ["nice", "-n", str(max(step.nice, 0)), *command]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A group of its own: it is ended as a whole.
                start_new_session=True,
                # Where we run in the background of a shell, SIGINT is ignored, and a step that
                # inherits that would not hear the kind request to end.
                preexec_fn=partial(_begin, step.nice),  # noqa: PLW1509  this process has no threads
                env=_environment(),
            )

    @property
    def seconds(self) -> float:
        """How long it has been running."""
        return time.monotonic() - self._began_s

    def result(self) -> Result | None:
        """Return what it came to, once it has ended; a step that takes too long is ended here."""
        code, cpu_s = self._code_and_cpu()
        if code is None and self.seconds > self.step.limit_s:
            with self.log.open("a") as log:
                log.write(f"\n{self.step.name} took longer than {self.step.limit_s:.0f} s\n")
            self.end()
            code = CODE_LIMIT
        if code is None:
            return None
        return Result(
            self.step.name,
            self.step.command[0],
            code,
            self.seconds,
            cpu_s,
            cases_in(self._report),
            is_build=self.step.is_background,
        )

    def end(self) -> None:
        """End it: kindly, so that it cleans up, and by force where that takes too long."""
        for number in (signal.SIGINT, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            until_s = time.monotonic() + ENDS_WITHIN_S
            while time.monotonic() < until_s:
                if self._code_and_cpu()[0] is not None:
                    return
                time.sleep(POLL_S)

    def progress(self) -> str:
        """Return how far it is: pytest's percentage, or the last line of anything else."""
        tail = self.tail()
        found = PERCENT.findall(tail)
        if found:
            return f"{found[-1]} %"
        lines = [line.strip() for line in tail.splitlines() if line.strip()]
        return lines[-1][:PROGRESS_CHARS_MAX] if lines and not self.step.has_tests else "begins"

    def tail(self) -> str:
        """Return the end of what it printed."""
        return tail_of(self.log, TAIL_BYTES)

    def _code_and_cpu(self) -> tuple[int | None, float]:
        if self._process.returncode is not None:
            return self._process.returncode, 0.0
        ended, status, used = os.wait4(self._process.pid, os.WNOHANG)
        if not ended:
            return None, 0.0
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return self._process.returncode, used.ru_utime + used.ru_stime


def _begin(nice: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Most kernels give each session an equal share, however nice its processes are to those of
    # others: with a server or a pod in each of thirty sessions, a whole step has a thirtieth. Less
    # than zero is for root alone.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(nice))


def _environment() -> dict[str, str]:
    """Return ours, in which Python keeps what it has compiled: tests start thousands of processes,
    and each would compile the whole product anew.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONUNBUFFERED": "1"}
