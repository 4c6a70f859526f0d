"""Many letters have few causes: entries are counted by what they have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from logpipeline_cli.letters.entries import Entry

# A reason that thousands of pods have makes as many groups; the further ones are counted as one.
GROUPS_MAX = 10_000
OTHERS = "(others)"


class Group(NamedTuple):
    """What the entries of a group have in common."""

    reason: str
    partition: int | None
    host: str
    source: str
    consumer: str


@dataclass(slots=True)
class Count:
    """How many there are, and from when to when, in nanoseconds since 1970; *waiting* are those
    that no collector has made letters of.
    """

    count: int = 0
    waiting: int = 0
    first_ns: int = 0
    last_ns: int = 0

    def add(self, entry: Entry) -> None:
        """Count one more."""
        self.first_ns = min(self.first_ns, entry.time_ns) if self.count else entry.time_ns
        self.last_ns = max(self.last_ns, entry.time_ns)
        self.count += 1
        self.waiting += entry.waits


class Groups:
    """The counts of all groups."""

    def __init__(self) -> None:
        self._counts: dict[Group, Count] = {}

    def add(self, entry: Entry) -> None:
        """Count *entry* in its group."""
        group = Group(
            entry.letter.reason, entry.partition, entry.host, entry.source, entry.letter.consumer
        )
        if group not in self._counts and len(self._counts) >= GROUPS_MAX:
            group = Group(OTHERS, None, "", "", "")
        self._counts.setdefault(group, Count()).add(entry)

    def sorted(self) -> list[tuple[Group, Count]]:
        """Return the groups, the largest first."""
        return sorted(self._counts.items(), key=lambda row: (-row[1].count, str(row[0])))
