"""Sets of line numbers as ranges: a clean archive of a million lines is one range, not a million
numbers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


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
        """Return how many numbers there are."""
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
