"""What the demo shows while it runs: a screen on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from logpipeline.survey import PartitionState
from logpipeline_cli.output import bytes_text, seconds_text, table

_HOME = "\x1b[H\x1b[2J"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One moment of the demo."""

    elapsed_s: float
    partitions: list[PartitionState]
    shippers: list[dict[str, Any]]
    collectors: list[dict[str, Any]]
    lines: int
    lines_per_s: float
    bytes_per_s: float
    files: int
    rotations: int
    latency_p50_s: float | None
    latency_p99_s: float | None

    @property
    def lag_messages(self) -> int:
        """Messages that are stored and not yet committed."""
        return sum(state.lag_messages for state in self.partitions)

    @property
    def backlog_bytes(self) -> int:
        """Bytes that stand in log files and were not yet acknowledged."""
        return sum(answer.get("backlog_bytes", 0) for answer in self.shippers)


class Screen:
    """Draws frames on standard output."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()

    def show(self, frame: Frame) -> None:
        """Draw *frame*: all of it on a terminal, else one line."""
        text = _HOME + page(frame) if self._is_terminal else headline(frame)
        print(text, flush=True)


def headline(frame: Frame) -> str:
    """Return the moment in one line."""
    latency = ""
    if frame.latency_p50_s is not None and frame.latency_p99_s is not None:
        latency = (
            f", file to file {seconds_text(frame.latency_p50_s)}"
            f" (p99 {seconds_text(frame.latency_p99_s)})"
        )
    return (
        f"{frame.elapsed_s:5.0f} s  {frame.lines} lines archived, {frame.lines_per_s:.0f} lines/s, "
        f"{bytes_text(frame.bytes_per_s)}/s, {frame.files} files, {frame.rotations} rotations, "
        f"to send {bytes_text(frame.backlog_bytes)}, lag {frame.lag_messages} messages{latency}"
    )


def page(frame: Frame) -> str:
    """Return the moment as a page."""
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
