"""Runs the small busy application as a process of its own, so that it can be paused, overtaken and
killed like any other:

    python -m logpipeline_demo.generator --root DIR --ledger FILE --seconds 20
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from logpipeline_demo.application import ROTATE_BYTES_DEFAULT, Application, Habits
from logpipeline_demo.ledger import Ledger, LedgerExists
from logpipeline_demo.source_files import FILES_MAX_DEFAULT
from logpipeline_demo.sources import PARTITIONS_DEFAULT, host_names, sources_of

STEP_S = 0.025
# After a pause of the whole machine it makes up for this much, not for all of it at once.
CATCH_UP_S = 2.0
COMMAND_BYTES_MAX = 4096
# Descriptors of Python, the ledger and the standard streams.
DESCRIPTORS_ELSE = 64
COMMANDS = ("pause", "resume", "rotate", "burst", "status", "stop")


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
        """Take *lines* off; a burst is paid for by the quiet after it."""
        self._credit -= lines

    def skip_to(self, now_s: float) -> None:
        """Owe nothing for the time up to *now_s*."""
        self._at_s = now_s


class Control:
    """Commands on standard input, a word a line. Its end stops the generator: whoever started it
    is gone.
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
        prog="logpipeline_demo.generator",
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
