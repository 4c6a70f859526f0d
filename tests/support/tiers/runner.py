"""Runs the steps of a plan side by side, as many as the machine has processors for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from tiers.passed import Passed
from tiers.process import StepProcess
from tiers.results import Result
from tiers.schedule import startable, unknown_names
from tiers.screen import Screen
from tiers.steps import Step

LOOK_EVERY_S = 0.2


class Runner:
    """Runs steps, and shows on *screen* what becomes of them.

    *room* is how many processors may be kept busy; *passed* knows what need not run again.
    """

    def __init__(
        self, steps: Sequence[Step], folder: Path, screen: Screen, room: float, passed: Passed
    ) -> None:
        unknown = unknown_names(steps)
        assert not unknown, f"steps wait for {unknown}"
        self._waiting = list(steps)
        self._folder = folder
        self._screen = screen
        self._room = room
        self._passed = passed
        self._running: list[StepProcess] = []
        self._results: list[Result] = []

    def run(self, *, is_reusing: bool) -> list[Result]:
        """Run all steps, one that fails included, and return what they came to, in the order in
        which they ended.
        """
        if is_reusing:
            self._leave_out_what_passed()
        try:
            while self._waiting or self._running:
                self._start_what_can()
                time.sleep(LOOK_EVERY_S)
                self._collect()
                self._screen.show(self._running, self._waiting)
        finally:
            for each in self._running:
                each.end()
        return self._results

    def _leave_out_what_passed(self) -> None:
        for step in list(self._waiting):
            if result := self._passed.find(step):
                self._waiting.remove(step)
                self._results.append(result)
                self._screen.ended(step, result, Path())

    def _start_what_can(self) -> None:
        ended = {result.name for result in self._results}
        running = [each.step for each in self._running]
        for step in startable(self._waiting, running, ended, room=self._room):
            self._waiting.remove(step)
            self._running.append(StepProcess(step, self._folder))
            self._screen.began(step)

    def _collect(self) -> None:
        for each in list(self._running):
            result = each.result()
            if result is None:
                continue
            self._running.remove(each)
            self._results.append(result)
            if result.is_good:
                self._passed.add(each.step, result)
            self._screen.ended(each.step, result, each.log)
