"""Which hours of lines a table no longer keeps. Counts of them stay: they are small, and what is
asked of a year is asked of them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta

from logpipeline_spark.table.commit import FileEntry
from logpipeline_spark.table.names import end_of, folder_of, has_lines, shown
from logpipeline_spark.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Limits:
    """How long lines are kept, and how many bytes of them; None is no limit."""

    age: timedelta | None = None
    total_bytes: int | None = None


def expired(snapshot: Snapshot, now: datetime, limits: Limits) -> list[str]:
    """Return the files of whole hours that go: those too old, then the oldest beyond the size.

    The newest hour stays, however large it is: it is being written.
    """
    hours: dict[str, list[FileEntry]] = defaultdict(list)
    for entry in snapshot.files.values():
        if has_lines(entry.path):
            hours[folder_of(shown(entry.path))].append(entry)
    total_bytes = sum(entry.bytes for entries in hours.values() for entry in entries)
    oldest_first = sorted(hours, key=lambda folder: (end_of(folder), folder))
    gone: list[str] = []
    for folder in oldest_first:
        is_old = limits.age is not None and end_of(folder) + limits.age <= now
        is_beyond = limits.total_bytes is not None and total_bytes > limits.total_bytes
        is_newest = end_of(folder) == end_of(oldest_first[-1])
        if is_old or (is_beyond and not is_newest):
            gone += [entry.path for entry in hours[folder]]
            total_bytes -= sum(entry.bytes for entry in hours[folder])
    return gone
