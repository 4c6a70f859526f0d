"""Kills whoever changes a table: the writer, upkeep, and who erases, now at a fail point and now at
any moment of a batch, a merge, a clean-up or an erasure, with readers beside them all the time.

Loading what they need takes longer than all that they do between two kills. So `python -m
tables.nemesis` loads it once and forks them. It carries out the order that each line of its
standard input is, as JSON, and prints a report for each.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import random
import re
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from logpipeline import failpoints
from tables.actors import (
    ERASER,
    PHASES,
    UPKEEP,
    WRITER,
    Place,
    erase,
    keep,
    read_on,
    settle,
    shorten_grace,
    write,
)
from tables.board import Board, Facts
from tables.erased import mixed

# Fail points of each, and how often one is passed at most before a kill there.
POINTS = {
    WRITER: {
        "table.begun": 1,
        "table.file-written": 8,
        "table.state-written": 3,
        "table.committed": 8,
        "table.batch-committed": 2,
        "table.counted": 4,
    },
    UPKEEP: {
        "table.file-written": 3,
        "table.merge-written": 2,
        "table.committed": 3,
        "table.merge-committed": 2,
        "table.file-removed": 6,
    },
    ERASER: {
        "table.file-written": 3,
        "table.erasure-written": 1,
        "table.committed": 1,
        "table.erasure-committed": 1,
        "table.file-removed": 4,
    },
}
# The writer is frozen at any moment, and goes on when another one has taken the table over.
FROZEN = "frozen"
OVERTAKEN_WITHIN_S = 30.0
OVERTAKEN = re.compile(r"\b(Overtaken|Held|WrongRange|StorageFailed: What was being written .*): ")
# What is struck at a moment: of upkeep a clean-up as often as all else.
STRUCK = (
    (WRITER, "begin"),
    (WRITER, "batch"),
    (WRITER, "batch"),
    (WRITER, FROZEN),
    (UPKEEP, "compact"),
    (UPKEEP, "compact"),
    (UPKEEP, "retain"),
    (UPKEEP, "clean"),
    (UPKEEP, "clean"),
    (UPKEEP, "clean"),
    (ERASER, "erase"),
    (ERASER, "erase"),
    (ERASER, "clean"),
)
# Of those who are started, so many are to die at a fail point.
POINTS_SHARE = 0.5
# Who does not come to a fail point so soon, or to what it is to be struck at, is struck at any
# moment. It is wide, since other tests may use the processors.
POINT_WITHIN_S = 2.0
PHASE_WITHIN_S = 10.0
# How long a step takes of which none came to an end yet.
STEP_S = 0.04
# Of erasures, so many are without grace: only then a reader may fail.
HARSH_SHARE = 0.25
# Between two kills somebody may erase undisturbed, and all may get on.
ERASE_SHARE = 0.4
CALM_SHARE = 0.3
CALM_S_MAX = 10.0
POLL_S = 0.002
# A process that hangs ends by a signal, which is counted as a fault.
ENDS_WITHIN_S = 300
SETTLED_WITHIN_S = 120.0
SAID_WITHIN_S = 2.0


@dataclass(frozen=True, slots=True)
class Order:
    """So many kills of those at the table in *place*; *folder* is for what they say."""

    place: Place
    folder: str
    seed: int
    kills: int


@dataclass(slots=True)
class Report:
    """How often each was killed, and where; *queries* of each reader; what readers and upkeep said
    (*faults*), and who ended by itself (*ended*). The last *facts* say what must be in the table.
    """

    kills: dict[str, int] = field(default_factory=dict)
    queries: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def last(self) -> Facts:
        """The last facts."""
        told: dict[str, Any] = {
            name: tuple(found) if isinstance(found, list) else found
            for name, found in self.facts.items()
        }
        return Facts(**told)


@dataclass(slots=True)
class Actor:
    """A process; *point* is where it is to die."""

    pid: int
    point: str = ""


class Nemesis:
    """Starts and kills what *order* says."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._place = order.place
        self._folder = Path(order.folder)
        self._log = self._folder / "faults.log"
        self._chance = random.Random(order.seed)
        self._readers = tuple(order.place.readers)
        self._board = Board((WRITER, UPKEEP, ERASER, *self._readers), PHASES)
        self._running: dict[str, Actor] = {}
        self._kills: Counter[str] = Counter()
        self._ended: list[str] = []
        self._erasers = 0
        self._bag: list[tuple[str, str]] = []

    def run(self) -> Report:
        """Kill so often as is asked for, and let all come to an end."""
        try:
            self._start(WRITER)
            self._wait(lambda: self._board["committed"] > 0, ENDS_WITHIN_S)
            for each in (UPKEEP, *self._readers):
                self._start(each)
            while self._kills.total() < self._order.kills and not self._is_faulty:
                self._strike()
            self._settle()
        finally:
            for name in list(self._running):
                self._kill(name)
        return self._report()

    @property
    def _is_faulty(self) -> bool:
        return bool(self._ended) or self._log.exists()

    def _strike(self) -> None:
        if not self._bag:
            self._bag = list(STRUCK)
            self._chance.shuffle(self._bag)
        name, phase = self._bag.pop()
        for each in (WRITER, UPKEEP):
            # It came to its fail point while another one's turn was.
            if each not in self._running:
                self._start(each, is_to_die=True)
        if ERASER not in self._running and self._chance.random() < ERASE_SHARE:
            self._start(ERASER)
        if self._chance.random() < CALM_SHARE:
            self._be_calm()
        if phase == FROZEN:
            self._overtake()
            return
        if name not in self._running:
            self._start(name, is_to_die=True)
        elif phase == "begin":
            self._kill_counted(name)
            self._start(name)
        actor = self._running[name]
        if actor.point:
            self._wait(lambda: name not in self._running, POINT_WITHIN_S)
        else:
            self._wait(
                lambda: name not in self._running or self._board.phase_of(name) == phase,
                PHASE_WITHIN_S,
            )
            if name in self._running:
                took_s = self._board.took_s(name, phase) or STEP_S
                time.sleep(self._chance.uniform(0, took_s))
        if name in self._running:
            self._kill_counted(name)
        if name != ERASER:
            self._start(name, is_to_die=True)

    def _freeze(self, pid: int) -> None:
        while True:
            os.kill(pid, signal.SIGSTOP)
            # Only what stands still cannot lock it a moment later.
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            if not self._place.is_catalog_locked:
                return
            os.kill(pid, signal.SIGCONT)
            time.sleep(POLL_S)

    def _overtake(self) -> None:
        """Let the writer be another one's former one that knows nothing of it: it must end."""
        board = self._board
        if WRITER not in self._running or self._running[WRITER].point:
            return
        if not self._wait(lambda: board.phase_of(WRITER) == "batch", PHASE_WITHIN_S):
            # It may still be beginning, and could take the table over from the other one.
            return
        time.sleep(self._chance.uniform(0, board.took_s(WRITER, "batch") or STEP_S))
        former = self._running.pop(WRITER).pid
        self._freeze(former)
        turns = board.turns(WRITER, "batch")
        self._start(WRITER)
        self._wait(lambda: board.turns(WRITER, "batch") > turns, ENDS_WITHIN_S)
        begun = time.monotonic_ns()
        os.kill(former, signal.SIGCONT)
        status: list[int] = []

        def has_ended() -> bool:
            pid, found = os.waitpid(former, os.WNOHANG)
            status.extend([found] * bool(pid))
            return bool(pid)

        if not self._wait(has_ended, OVERTAKEN_WITHIN_S):
            # It says in its log where it is.
            os.kill(former, signal.SIGUSR1)
            if not self._wait(has_ended, SAID_WITHIN_S):
                os.kill(former, signal.SIGKILL)
                os.waitpid(former, 0)
        # It said for the other one that it does nothing.
        board[f"since.{WRITER}"] = begun
        code = os.waitstatus_to_exitcode(status[0]) if status else None
        if code != 1 or not OVERTAKEN.search(self._said(WRITER).read_text()):
            self._ended.append(f"a writer that was overtaken goes on, or ends with {code}")
        self._kills[f"{WRITER}: {FROZEN}, overtaken"] += 1

    def _be_calm(self) -> None:
        """Let the writer, upkeep and who erases come to the end of what they do."""
        board, running = self._board, self._running
        before = {each: board.turns(*each) for each in ((WRITER, "batch"), (UPKEEP, "clean"))}

        def is_done() -> bool:
            # Who died at a fail point meanwhile does nothing more.
            return ERASER not in running and all(
                name not in running or board.turns(name, phase) > was
                for (name, phase), was in before.items()
            )

        self._wait(is_done, CALM_S_MAX)

    def _kill_counted(self, name: str) -> None:
        """Kill *name*, and note what it was doing: between that look and the kill it is frozen."""
        os.kill(self._running[name].pid, signal.SIGSTOP)
        phase = self._board.phase_of(name) or "idle"
        self._kill(name)
        self._kills[f"{name}: {phase}"] += 1

    def _kill(self, name: str) -> None:
        actor = self._running.pop(name)
        os.kill(actor.pid, signal.SIGKILL)
        os.waitpid(actor.pid, 0)
        self._clear(name)

    def _clear(self, name: str) -> None:
        """Say for a dead process that it does nothing any more."""
        self._board.rest(name)
        if name == ERASER:
            self._board["harsh_ended"] = self._board["harsh_begun"]

    def _start(self, name: str, *, is_to_die: bool = False) -> None:
        point = ""
        if is_to_die and self._chance.random() < POINTS_SHARE:
            place, often = self._chance.choice(self._points_of(name))
            point = f"{place}:{self._chance.randint(1, often)}"
        pid = self._fork(self._work_of(name), name, point)
        self._running[name] = Actor(pid, point)

    def _points_of(self, name: str) -> list[tuple[str, int]]:
        # Delta's library removes files by itself.
        by_library = "table.file-removed" if self._place.format == "delta" else ""
        return sorted(each for each in POINTS[name].items() if each[0] != by_library)

    def _work_of(self, name: str) -> Callable[[], None]:
        place, board, log = self._place, self._board, self._log
        if name == WRITER:
            return lambda: write(place, board)
        if name == UPKEEP:
            return lambda: keep(place, board, log)
        if name == ERASER:
            self._erasers += 1
            number, has_grace = self._erasers, self._chance.random() >= HARSH_SHARE
            return lambda: erase(place, board, log, number=number, has_grace=has_grace)
        return lambda: read_on(place, board, name, log)

    def _fork(self, work: Callable[[], None], name: str, point: str) -> int:
        """Return the process that does *work*, and ends as the interpreter would."""
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            signal.alarm(ENDS_WITHIN_S)
            said = os.open(self._said(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for stream in (sys.stdout, sys.stderr):
                os.dup2(said, stream.fileno())
            faulthandler.register(signal.SIGUSR1)
            os.environ[failpoints.VARIABLE] = point
            # The place to die at is read from the environment when this is loaded.
            importlib.reload(failpoints)
            if self._place.format == "delta":
                shorten_grace()
            work()
            code = 0
        finally:
            if code:
                traceback.print_exc()
            # Nothing of the parent's is written or ended twice.
            os._exit(code)

    def _said(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _wait(self, condition: Callable[[], bool], within_s: float) -> bool:
        """Return whether *condition* came true; whoever ended meanwhile is noted."""
        deadline = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
            self._reap()
        return True

    def _reap(self) -> None:
        for name, actor in list(self._running.items()):
            pid, status = os.waitpid(actor.pid, os.WNOHANG)
            if not pid:
                continue
            del self._running[name]
            self._clear(name)
            code = os.waitstatus_to_exitcode(status)
            if code == -signal.SIGKILL and actor.point:
                self._kills[f"{name} at {actor.point.partition(':')[0]}"] += 1
            elif code:
                self._ended.append(f"{name} ended with {code}: {self._said(name).read_text()}")

    def _settle(self) -> None:
        self._board["stop"] = 1
        if not self._wait(lambda: not self._running, SETTLED_WITHIN_S):
            # Each says in its log where it is.
            for actor in self._running.values():
                os.kill(actor.pid, signal.SIGUSR1)
            self._wait(lambda: not self._running, SAID_WITHIN_S)
            self._ended.append(f"{', '.join(self._running)} did not end: see their logs")
        if not self._ended:
            pid = self._fork(lambda: settle(self._place, self._board), ERASER, "")
            self._running["settle"] = Actor(pid)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            del self._running["settle"]
            if code:
                self._ended.append(f"settling ended with {code}: {self._said(ERASER).read_text()}")

    def _report(self) -> Report:
        board = self._board
        counted = ("committed", "merges", "cleans", "cleans_waiting", "erasures", "excused")
        return Report(
            kills=dict(self._kills),
            queries={reader: board.turns(reader, "query") for reader in self._readers},
            faults=self._log.read_text().splitlines() if self._log.exists() else [],
            ended=self._ended,
            done={name: board[name] for name in counted},
            facts=asdict(board.facts()),
        )


def main() -> None:
    """Carry out one order after the other."""
    # With its first table pyarrow loads pandas, where that is installed.
    mixed(1, 1)
    for text in sys.stdin:
        asked = json.loads(text)
        order = Order(**{**asked, "place": Place(**asked["place"])})
        print(json.dumps(asdict(Nemesis(order).run())), flush=True)


if __name__ == "__main__":
    main()
