"""The generator's own account of what it wrote, which no part of the pipeline ever touches.

An attempt is in the kernel's hands before the write it announces, so that a generator killed at
any moment leaves at worst attempts whose outcome is unknown, and never a line without
its announcement. One record describes a whole call: its lines are computed again when checked.

The file is text, a record a line, its fields between spaces:

=====  ==========================================  ==================================
``v``  version, seed                               first record
``s``  number, kind, host, name                    a source; the others use its number
``a``  number, first, count, time, bytes, crc32    lines are about to be written
``w``  number, end                                 all announced lines before *end* are written
``l``  number, line, payload bytes                 this line is a long one
``p``  number, line, text bytes, time              this line is begun with a fragment
``x``  number, line, text bytes                    this line will never be finished
``e``  number, what, first, end, time, detail      renamed, truncated, deleted …; with the lines
=====  ==========================================  ==================================
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from logpipeline_demo.lines import Kind, SourceKey

VERSION = 1
# How many seconds of the ledger a power cut can destroy; a kill destroys nothing.
SYNC_INTERVAL_S = 1.0


class Intervals:
    """Disjoint ranges ``[first, end)`` in rising order."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        for first, end in ranges:
            self.add(first, end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._ends, strict=True)

    def __len__(self) -> int:
        """Return the number of elements."""
        return sum(self._ends) - sum(self._firsts)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._firsts, number) - 1
        return index >= 0 and number < self._ends[index]

    @property
    def first(self) -> int:
        """The smallest number; there must be one."""
        return self._firsts[0]

    @property
    def end(self) -> int:
        """One more than the largest number; there must be one."""
        return self._ends[-1]

    def add(self, first: int, end: int) -> list[tuple[int, int]]:
        """Add ``[first, end)`` and return the parts of it that were there already."""
        if first >= end:
            return []
        if not self._ends or self._ends[-1] < first:
            self._firsts.append(first)
            self._ends.append(end)
            return []
        low = bisect_left(self._ends, first)
        high = bisect_right(self._firsts, end)
        known = [
            (max(first, self._firsts[index]), min(end, self._ends[index]))
            for index in range(low, high)
        ]
        if low < high:
            first, end = min(first, self._firsts[low]), max(end, self._ends[high - 1])
        self._firsts[low:high] = [first]
        self._ends[low:high] = [end]
        return [(start, stop) for start, stop in known if start < stop]

    def within(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of ``[first, end)`` that are in the set."""
        low, high = bisect_right(self._ends, first), bisect_left(self._firsts, end)
        return [
            (max(first, self._firsts[index]), min(end, self._ends[index]))
            for index in range(low, high)
        ]

    def missing(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of ``[first, end)`` that are not in the set."""
        gaps = []
        for start, stop in self.within(first, end):
            if first < start:
                gaps.append((first, start))
            first = stop
        if first < end:
            gaps.append((first, end))
        return gaps

    def minus(self, other: Intervals) -> Intervals:
        """Return the numbers that are not in *other*."""
        return Intervals(gap for first, end in self for gap in other.missing(first, end))


class LedgerExists(FileExistsError):
    """A ledger records one run; two runs in one file would falsify both."""


class Ledger:
    """Appends records of attempted lines, written lines, and changes to files."""

    def __init__(self, path: Path, *, seed: int, sync_interval_s: float = SYNC_INTERVAL_S) -> None:
        self.seed = seed
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            message = f"{path} tells of an earlier run: remove it, or name another"
            raise LedgerExists(message) from None
        self._records: list[str] = [f"v {VERSION} {seed}"]
        self._sources = 0
        self._sync_interval_s = sync_interval_s
        self._synced_at = time.monotonic()
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def source(self, key: SourceKey, kind: Kind) -> int:
        """Announce a source and return its number."""
        number = self._sources
        self._sources += 1
        self._records.append(f"s {number} {kind} {quote(key.host)} {quote(key.name)}")
        return number

    def attempt(
        self, number: int, *, first: int, count: int, time_ns: int, size: int, crc: int
    ) -> None:
        """Announce *count* lines; to be flushed before they are written."""
        self._records.append(f"a {number} {first} {count} {time_ns} {size} {crc:08x}")

    def written(self, number: int, end: int) -> None:
        """Record that each announced line before *end* is in its file. The record may wait in
        memory.
        """
        self._records.append(f"w {number} {end}")

    def long_line(self, number: int, seq: int, payload_bytes: int) -> None:
        """Record that line *seq* has a payload of *payload_bytes*."""
        self._records.append(f"l {number} {seq} {payload_bytes}")

    def begun(self, number: int, seq: int, text_bytes: int, time_ns: int) -> None:
        """Record that line *seq* begins with a fragment of *text_bytes* of its own."""
        self._records.append(f"p {number} {seq} {text_bytes} {time_ns}")

    def abandoned(self, number: int, seq: int, text_bytes: int) -> None:
        """Record that only *text_bytes* of line *seq* were written, and no more will be."""
        self._records.append(f"x {number} {seq} {text_bytes}")

    def event(self, number: int, what: str, *, first: int, end: int, detail: str = "") -> None:
        """Record a change to a file that holds the lines from *first* up to *end*."""
        self._records.append(
            f"e {number} {what} {first} {end} {time.time_ns()} {quote(detail) or '-'}"
        )
        self.flush()

    def flush(self) -> None:
        """Write everything to the file, and sync it at intervals."""
        if self._records:
            data = memoryview(("\n".join(self._records) + "\n").encode())
            self._records.clear()
            while data:
                data = data[os.write(self._descriptor, data) :]
        if time.monotonic() - self._synced_at >= self._sync_interval_s:
            os.fsync(self._descriptor)
            self._synced_at = time.monotonic()

    def close(self) -> None:
        """Flush, sync and close; a second time does nothing."""
        if self._descriptor < 0:
            return
        self.flush()
        os.fsync(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1
