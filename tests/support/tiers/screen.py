"""What a person sees of a run: what began and ended, what is running, and at the end the account.

On a terminal the last line tells what is running now; elsewhere a line tells it now and then.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from alone import command_for
from tiers.process import StepProcess
from tiers.results import Result
from tiers.steps import Step

# Where nobody watches, a log gets a line this often: it shows that the run is alive.
QUIET_EVERY_S = 30.0
LIVE_EVERY_S = 1.0
SLOWEST_SHOWN = 10
FAILED_SHOWN = 40
REASON_CHARS_MAX = 200
WIDTH_DEFAULT = 100
CLEAR = "\r\x1b[K"


class Screen:
    """Writes to *out* what becomes of a run of the command *name*."""

    def __init__(self, name: str, out: TextIO = sys.stdout) -> None:
        self._name = name
        self._out = out
        self._is_terminal = out.isatty()
        self._began_s = time.monotonic()
        self._shown_s = self._began_s

    def began(self, step: Step) -> None:
        """Tell that *step* begins."""
        self._line(f"{self._clock()}  {step.name:18} begins: {step.shows}")

    def ended(self, step: Step, result: Result, log: Path) -> None:
        """Tell how *step* ended; one that failed shows all that it printed."""
        if result.is_reused:
            self._line(f"{self._clock()}  {step.name:18} passed before on these very files")
            return
        if not result.is_good:
            self._line(f"--- {step.name}: all that it printed, from {log}")
            self._line(log.read_text(errors="replace").rstrip())
            self._line(f"--- {step.name} ended with {result.code}")
        said = "passed" if result.is_good else "FAILED"
        if result.is_build and not result.is_good:
            said = "going on without it: ended"
        counts = f", {tests_text(result)}" if result.cases else ""
        times = f"{result.seconds:.0f} s, {result.cpu_s:.0f} CPU s"
        self._line(f"{self._clock()}  {step.name:18} {said} in {times}{counts}")

    def show(self, running: Sequence[StepProcess], waiting: Sequence[Step]) -> None:
        """Tell what is running, if it was not told for a while."""
        now_s = time.monotonic()
        if now_s - self._shown_s < (LIVE_EVERY_S if self._is_terminal else QUIET_EVERY_S):
            return
        self._shown_s = now_s
        parts = [f"{each.step.name} {each.progress()}" for each in running]
        text = f"{self._clock()}  running: {', '.join(parts)}; {len(waiting)} to come"
        if self._is_terminal:
            width = shutil.get_terminal_size((WIDTH_DEFAULT, 1)).columns
            print(f"{CLEAR}{text[: width - 1]}", end="", file=self._out, flush=True)
        else:
            print(text, file=self._out, flush=True)

    def account(self, results: Sequence[Result]) -> None:
        """Tell what took longest and what failed, and close with the counts."""
        seconds = time.monotonic() - self._began_s
        self._line("")
        self._line(f"{'STEP':20}{'SECONDS':>9}{'CPU S':>8}  TESTS")
        for result in sorted(results, key=lambda each: each.seconds, reverse=True):
            again = "(before) " if result.is_reused else ""
            tests = tests_text(result) if result.cases else ""
            row = f"{result.name:20}{result.seconds:9.0f}{result.cpu_s:8.0f}  {again}{tests}"
            self._line(row)
        cases = [case for result in results for case in result.cases]
        slowest = sorted(cases, key=lambda case: case.seconds, reverse=True)[:SLOWEST_SHOWN]
        self._line("\nThe slowest tests:" if slowest else "")
        for case in slowest:
            self._line(f"{case.seconds:9.1f} s  {case.name}")
        self._failures(results)
        counts = {name: sum(r.count(name) for r in results) for name in OUTCOMES}
        verdict = "FAILED" if any(result.fails_run for result in results) else "passed"
        self._line(f"\nmake {self._name}: {verdict} in {minutes_text(seconds)}")
        self._line(", ".join(f"{number} {name}" for name, number in counts.items()))

    def _failures(self, results: Sequence[Result]) -> None:
        for result in results:
            if not result.fails_run:
                continue
            failed = [case for case in result.cases if case.outcome == "failed"]
            self._line(f"\nFAILED: {result.name}")
            for case in failed[:FAILED_SHOWN]:
                self._line(f"  {command_for(case.name, result.program)}")
                # A log of a run is read from its end, and often only that is kept.
                for line in case.reason.splitlines():
                    self._line(f"      {line[:REASON_CHARS_MAX]}")
            if len(failed) > FAILED_SHOWN:
                self._line(f"  and {len(failed) - FAILED_SHOWN} more")

    def _clock(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._began_s), 60)
        return f"{minutes:3}:{seconds:02}"

    def _line(self, text: str) -> None:
        clear = CLEAR if self._is_terminal else ""
        print(f"{clear}{text}", file=self._out, flush=True)


OUTCOMES = ("passed", "failed", "skipped")


def tests_text(result: Result) -> str:
    """Return how many tests of a step came to what."""
    counts = {name: result.count(name) for name in OUTCOMES}
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number)


def minutes_text(seconds: float) -> str:
    """Return a span of time as people say it."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
