"""The display of the running demo: a screen on a terminal, else a line from time to time."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

from logpipeline.lag import PartitionState
from logpipeline_cli.output import bytes_text, seconds_text, table
from logpipeline_demo.outputs import Collected

_HOME = "\x1b[H\x1b[2J"
# Without a terminal each line stays, so that fewer are printed.
PROGRESS_EVERY_S = 5.0
PROGRESS_ON_TERMINAL_EVERY_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The state of the demo at one moment."""

    elapsed_s: float
    partitions: list[PartitionState]
    shippers: list[dict[str, Any]]
    collectors: list[dict[str, Any]]
    collected: Collected
    lines: int
    lines_per_s: float
    bytes_per_s: float
    rotations: int
    latency_p50_s: float | None
    latency_p99_s: float | None

    @property
    def lag_messages(self) -> int:
        """Messages that are stored and not yet committed."""
        return sum(state.lag_messages for state in self.partitions)

    @property
    def backlog_bytes(self) -> int:
        """Bytes in log files that are not acknowledged yet."""
        return sum(answer.get("backlog_bytes", 0) for answer in self.shippers)


class Screen:
    """Draws frames on standard output."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()

    def show(self, frame: Frame) -> None:
        """Draw *frame*: all of it on a terminal, else one line."""
        text = _HOME + page(frame) if self._is_terminal else headline(frame)
        print(text, flush=True)


class Progress:
    """Prints, after the last frame, the current step and its progress."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._next_s = 0.0

    def begin(self, what: str) -> None:
        """Print the name of the next step."""
        print(what, flush=True)
        self._next_s = time.monotonic() + self._every_s

    def update(self, text: str) -> None:
        """Print the progress from time to time; on a terminal in place."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + self._every_s
        if self._is_terminal:
            print(f"  {text}\x1b[K", end="\r", flush=True)
        else:
            print(f"  {text}", flush=True)

    @property
    def _every_s(self) -> float:
        return PROGRESS_ON_TERMINAL_EVERY_S if self._is_terminal else PROGRESS_EVERY_S


def headline(frame: Frame) -> str:
    """Return *frame* as one line."""
    latency = ""
    if frame.latency_p50_s is not None and frame.latency_p99_s is not None:
        latency = (
            f", file to file {seconds_text(frame.latency_p50_s)}"
            f" (p99 {seconds_text(frame.latency_p99_s)})"
        )
    return (
        f"{frame.elapsed_s:5.0f} s  {frame.lines} lines collected, "
        f"{frame.lines_per_s:.0f} lines/s, {bytes_text(frame.bytes_per_s)}/s, "
        f"{frame.collected.files} files, "
        f"{frame.rotations} rotations, to send {bytes_text(frame.backlog_bytes)}, "
        f"lag {frame.lag_messages} messages{latency}"
    )


def page(frame: Frame) -> str:
    """Return *frame* as a page."""
    rows = [
        (
            state.partition,
            state.owner or "none",
            state.epoch,
            state.committed,
            state.lag_messages,
            seconds_text(state.lag_s) if state.lag_messages else "",
        )
        for state in frame.partitions
    ]
    partitions = table(("PARTITION", "OWNER", "EPOCH", "COMMITTED", "LAG", "AGE"), rows)
    return "\n\n".join((headline(frame), partitions, "Ctrl-C ends it and checks every line."))
