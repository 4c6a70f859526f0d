"""A small busy application on many hosts: which source writes how much next, and when its file is
rotated.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from logpipeline_demo.ledger import Ledger, LedgerExists
from logpipeline_demo.sources import (
    FILES_MAX_DEFAULT,
    PARTITIONS_DEFAULT,
    LogSource,
    host_names,
    sources_of,
)
from logpipeline_demo.writer import LogWriter

CALL_LINES_MAX = 20
BURST_ONE_IN = 500
BURST_LINES = (500, 1500)
# From time to time a source stops inside a line, and continues at its next turn.
TORN_ONE_IN = 40
# So small that every source rotates several times a minute, and so large that a shipper that was
# down for half a minute still finds every line in the files that are kept.
ROTATE_BYTES_DEFAULT = 64 * 1024
LINES_BETWEEN_MAX = 3

STEP_S = 0.025
# After a pause of the whole machine it makes up for this much, not for all of it at once.
CATCH_UP_S = 2.0
COMMAND_BYTES_MAX = 4096
# Descriptors of Python, the ledger and the standard streams.
DESCRIPTORS_ELSE = 64
COMMANDS = ("pause", "resume", "rotate", "burst", "status", "stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How the application treats its files."""

    rotate_bytes: int = ROTATE_BYTES_DEFAULT
    files_max: int | None = FILES_MAX_DEFAULT  # None: nothing is ever removed
    has_banners: bool = False  # plain files begin with the same line


class Application:
    """All sources, taking turns."""

    def __init__(
        self, sources: Sequence[LogSource], root: Path, ledger: Ledger, habits: Habits
    ) -> None:
        self.lines = 0
        self._ledger = ledger
        self._habits = habits
        self._rng = random.Random(f"{ledger.seed}/turns")
        kept, has_banner = habits.files_max, habits.has_banners
        writers = [
            LogWriter(source, root, ledger, files_max=kept, has_banner=has_banner)
            for source in sources
        ]
        self._rng.shuffle(writers)
        self._turns = deque(writers)
        ledger.flush()

    @property
    def banners(self) -> int:
        """Number of files that began with the common first line."""
        return sum(writer.banners for writer in self._turns)

    @property
    def rotations(self) -> int:
        """Number of rotations."""
        return sum(writer.rotations for writer in self._turns)

    def step(self, lines_max: int) -> int:
        """Write at least one line and at most about *lines_max*, bursts aside; return how many."""
        started = self.lines
        called: list[LogWriter] = []
        while self.lines - started < lines_max and len(called) < len(self._turns):
            writer = self._turns[0]
            self._turns.rotate(-1)
            lines = self._call_lines(lines_max - (self.lines - started))
            self.lines += lines
            writer.prepare(lines)
            called.append(writer)
        self._ledger.flush()
        for writer in called:
            writer.commit()
        for writer in called:
            self._afterwards(writer)
        return self.lines - started

    def burst(self) -> None:
        """Let the next source write a burst now."""
        lines = self._rng.randrange(*BURST_LINES)
        self._turns[0].write(lines)
        self.lines += lines

    def rotate(self) -> None:
        """Rotate every source's file now."""
        for writer in self._turns:
            self._rotate(writer)

    def close(self) -> None:
        """Finish every open line and close every file."""
        for writer in self._turns:
            writer.close()

    def _call_lines(self, lines_left: int) -> int:
        if self._rng.randrange(BURST_ONE_IN) == 0:
            return self._rng.randrange(*BURST_LINES)
        return min(self._rng.randrange(1, CALL_LINES_MAX + 1), lines_left)

    def _afterwards(self, writer: LogWriter) -> None:
        if writer.size >= self._habits.rotate_bytes:
            self._rotate(writer)
        elif self._rng.randrange(TORN_ONE_IN) == 0:
            self._tear(writer)

    def _tear(self, writer: LogWriter) -> None:
        text_bytes = len(writer.maker.line(writer.next_seq))
        if text_bytes < 2:
            return
        if self._rng.random() < 0.5:
            writer.write_partial(self._rng.randrange(1, text_bytes))
        else:
            writer.write_torn(1, self._rng.randrange(1, text_bytes))
        self.lines += 1

    def _rotate(self, writer: LogWriter) -> None:
        between = self._rng.randrange(LINES_BETWEEN_MAX + 1)
        self.lines += between
        if writer.source.kind == "cri":
            writer.rotate_kubelet(lines_between=between)
        else:
            writer.rotate_numbered(lines_between=between)


class Pace:
    """How many lines are due, so that *lines_per_second* come true over time."""

    def __init__(self, lines_per_second: float, now_s: float) -> None:
        self._rate = lines_per_second
        self._credit = 0.0
        self._at_s = now_s

    def due(self, now_s: float) -> int:
        """Return how many lines are due at *now_s*."""
        self._credit += (now_s - self._at_s) * self._rate
        self._at_s = now_s
        self._credit = min(self._credit, self._rate * CATCH_UP_S)
        return int(self._credit)

    def spend(self, lines: int) -> None:
        """Subtract written *lines*; after a burst fewer lines are due."""
        self._credit -= lines

    def skip_to(self, now_s: float) -> None:
        """Forget lines that were due up to *now_s*."""
        self._at_s = now_s


class Control:
    """Commands on standard input, a word a line. Its end stops the generator, whose
    parent is gone then.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._rest = b""

    def wait(self, timeout_s: float) -> list[str]:
        """Return the commands that arrive within *timeout_s*."""
        if self._descriptor is None:
            time.sleep(timeout_s)
            return []
        readable, _, _ = select.select([self._descriptor], [], [], timeout_s)
        if not readable:
            return []
        data = os.read(self._descriptor, COMMAND_BYTES_MAX)
        if not data:
            return ["stop"]
        *commands, self._rest = (self._rest + data)[-COMMAND_BYTES_MAX:].split(b"\n")
        return [command.decode(errors="replace").strip() for command in commands]


class Generator:
    """The loop around the application: time, commands, signals."""

    def __init__(self, application: Application, control: Control, lines_per_second: float) -> None:
        self._application = application
        self._control = control
        self._pace = Pace(lines_per_second, time.monotonic())
        self._is_paused = False
        self._is_stopped = False

    def stop(self) -> None:
        """End the loop at its next step; safe in a signal handler."""
        self._is_stopped = True

    def run(self, seconds: float | None) -> None:
        """Write lines until *seconds* have passed, or until it is stopped."""
        end_s = float("inf") if seconds is None else time.monotonic() + seconds
        while not self._is_stopped and time.monotonic() < end_s:
            for command in self._control.wait(STEP_S):
                self._obey(command)
            if self._is_paused:
                self._pace.skip_to(time.monotonic())
                continue
            while (due := self._pace.due(time.monotonic())) > 0 and not self._is_stopped:
                self._pace.spend(self._application.step(due))

    def _obey(self, command: str) -> None:
        match command:
            case "pause" | "resume":
                self._is_paused = command == "pause"
            case "rotate":
                self._application.rotate()
            case "burst":
                self._application.burst()
            case "stop":
                self.stop()
            case "status":
                pass
            case other:
                known = ", ".join(COMMANDS)
                print(f"unknown command {other!r}: one of {known}", file=sys.stderr, flush=True)
                return
        self._tell(command)

    def _tell(self, command: str) -> None:
        status = {
            "command": command,
            "lines": self._application.lines,
            "rotations": self._application.rotations,
            "paused": self._is_paused,
        }
        print(json.dumps(status), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the generator and return its exit code."""
    options = _parser().parse_args(arguments)
    hosts = host_names(options.hosts, seed=options.seed, partitions=options.partitions)
    sources = sources_of(hosts, seed=options.seed)
    _allow_descriptors(len(sources) + DESCRIPTORS_ELSE)
    try:
        ledger = Ledger(options.ledger, seed=options.seed)
        habits = Habits(rotate_bytes=options.rotate_bytes, files_max=options.keep)
        application = Application(sources, options.root, ledger, habits)
    except LedgerExists as error:
        print(error, file=sys.stderr)
        return 2
    except FileExistsError as error:
        message = f"{error.filename} is of an earlier run: --root wants an empty folder"
        print(message, file=sys.stderr)
        return 2
    control = Control(sys.stdin.fileno() if options.control else None)
    generator = Generator(application, control, options.lines_per_second)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: generator.stop())
    try:
        generator.run(options.seconds)
    finally:
        application.close()
        ledger.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="logpipeline_demo.application",
        description="Write the logs of a small busy application, and a ledger of them.",
    )
    parser.add_argument("--root", type=Path, required=True, help="folder of the hosts, empty")
    parser.add_argument("--ledger", type=Path, required=True, help="file to write the ledger to")
    parser.add_argument("--hosts", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=PARTITIONS_DEFAULT)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lines-per-second", type=float, default=4000)
    parser.add_argument("--seconds", type=float, help="end after this time; else at SIGTERM")
    parser.add_argument("--rotate-bytes", type=int, default=ROTATE_BYTES_DEFAULT)
    parser.add_argument(
        "--keep",
        type=lambda text: None if text == "all" else int(text),
        default=FILES_MAX_DEFAULT,
        help="files kept of each source, the live one counted, or 'all'",
    )
    parser.add_argument(
        "--control",
        action="store_true",
        help=f"obey commands on standard input ({', '.join(COMMANDS)}) until it ends",
    )
    return parser


def _allow_descriptors(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


if __name__ == "__main__":
    sys.exit(main())
