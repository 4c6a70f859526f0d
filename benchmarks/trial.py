"""One measurement: a file is handed to running processes, until all of it has arrived."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from logpipeline.listing import files_below
from processes import Cost, cost_of

POLL_S = 0.01
DEADLINE_S = 300


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of one run; *costs* by the names of the processes."""

    seconds: float
    bytes: int
    lines: int
    costs: dict[str, Cost]

    @property
    def mb_per_s(self) -> float:
        """Millions of bytes a second."""
        return self.bytes / 1e6 / self.seconds

    @property
    def lines_per_s(self) -> float:
        """Lines a second."""
        return self.lines / self.seconds

    @property
    def cpu_s_per_gb(self) -> float:
        """CPU seconds of all processes for a billion bytes."""
        return sum(cost.cpu_s for cost in self.costs.values()) / (self.bytes / 1e9)


def measure(
    *, source: Path, lines: int, place: Path, arrived: Callable[[], int], pids: dict[str, int]
) -> Trial:
    """Link *source* to *place*, where the processes *pids* find it, and wait until it has arrived.

    *arrived* returns the bytes that stand in the output.

    Raises:
        TimeoutError: not all of it arrived within the deadline.
    """
    size = source.stat().st_size
    before = {name: cost_of(pid) for name, pid in pids.items()}
    started = time.monotonic()
    os.link(source, place)
    while (done := arrived()) < size:
        if time.monotonic() - started > DEADLINE_S:
            raise TimeoutError(f"{done} of {size} bytes arrived within {DEADLINE_S} s")
        time.sleep(POLL_S)
    seconds = time.monotonic() - started
    after = {name: cost_of(pid) for name, pid in pids.items()}
    costs = {
        name: Cost(after[name].cpu_s - before[name].cpu_s, after[name].rss_bytes) for name in pids
    }
    return Trial(seconds, size, lines, costs)


def size_below(folder: Path) -> int:
    """Return the bytes of all files below *folder*."""
    return sum(path.stat().st_size for path in files_below(folder))
