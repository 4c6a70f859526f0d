"""How much a batch takes of each stream, and how it is shared among tasks. Only sizes on average
are known: the driver reads no payload.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

# A task of more than this takes long to repeat when its executor dies.
TASK_BYTES_MAX = 256 * 1024 * 1024
TASKS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Backlog:
    """Sequences from *first* to *last* of a stream; *message_bytes* is their size on average."""

    first: int
    last: int
    message_bytes: int

    @property
    def count(self) -> int:
        """Sequences of the range, also of messages that were deleted."""
        return max(self.last - self.first + 1, 0)

    @property
    def bytes(self) -> int:
        """What the range may hold."""
        return self.count * self.message_bytes


def ends(
    backlogs: Mapping[str, Backlog], bytes_max: int | None, count_max: int | None = None
) -> dict[str, int]:
    """Return up to which sequence to read each stream, so that all is about *bytes_max* and
    *count_max* messages: streams get their shares by what waits in them, and each that has
    something gets one message.
    """
    share = min(
        _share(bytes_max, sum(backlog.bytes for backlog in backlogs.values())),
        _share(count_max, sum(backlog.count for backlog in backlogs.values())),
    )
    return {
        name: b.first - 1 + (b.count if share >= 1 else min(max(int(b.count * share), 1), b.count))
        for name, b in backlogs.items()
    }


def _share(most: int | None, total: int) -> float:
    return 1.0 if most is None or total <= most else most / total


def is_early(backlogs: Mapping[str, Backlog], *, count_min: int, is_overdue: bool) -> bool:
    """Return whether a batch is to wait: for *count_min* messages, and until it is overdue."""
    return not is_overdue and sum(backlog.count for backlog in backlogs.values()) < count_min


def split(
    backlogs: Mapping[str, Backlog],
    *,
    tasks_min: int,
    task_bytes_max: int = TASK_BYTES_MAX,
) -> list[tuple[str, int, int]]:
    """Return (stream, first, last) of each task: contiguous, covering, at least *tasks_min* where
    there are so many messages, by size.
    """
    waiting = {name: backlog for name, backlog in backlogs.items() if backlog.count}
    total = sum(backlog.bytes for backlog in waiting.values())
    if not total:
        return []
    task_bytes = max(min(total / max(tasks_min, 1), task_bytes_max), total / TASKS_MAX)
    tasks: list[tuple[str, int, int]] = []
    for name, backlog in waiting.items():
        count = min(max(ceil(backlog.bytes / task_bytes - 1e-9), 1), backlog.count)
        edges = [backlog.first + backlog.count * n // count for n in range(count + 1)]
        tasks += [(name, edges[n], edges[n + 1] - 1) for n in range(count)]
    return tasks
