"""Which hours of lines a table no longer keeps. Counts of them stay: they are small, and what is
asked of a year is asked of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from logpipeline_spark.table.entry import FileEntry
from logpipeline_spark.table.names import end_of, folder_of


@dataclass(frozen=True, slots=True)
class Limits:
    """How long lines are kept, and how many bytes of them; None is no limit."""

    age: timedelta | None = None
    total_bytes: int | None = None


def expired(files: Iterable[FileEntry], now: datetime, limits: Limits) -> list[FileEntry]:
    """Return the files of whole hours that go: those too old, then the oldest beyond the size.

    The newest hour stays, however large it is: it is being written.
    """
    hours: dict[str, list[FileEntry]] = defaultdict(list)
    for entry in files:
        hours[folder_of(entry.path)].append(entry)
    total_bytes = sum(entry.bytes for entries in hours.values() for entry in entries)
    oldest_first = sorted(hours, key=lambda folder: (end_of(folder), folder))
    gone: list[FileEntry] = []
    for folder in oldest_first:
        is_old = limits.age is not None and end_of(folder) + limits.age <= now
        is_beyond = limits.total_bytes is not None and total_bytes > limits.total_bytes
        is_newest = end_of(folder) == end_of(oldest_first[-1])
        if is_old or (is_beyond and not is_newest):
            gone += hours[folder]
            total_bytes -= sum(entry.bytes for entry in hours[folder])
    return gone
