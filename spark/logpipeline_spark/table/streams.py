"""Which sequences of which streams a table covers. Pure: a cover and a batch give the next one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logpipeline_spark.errors import Refused
from logpipeline_spark.table.entry import Range


class WrongRange(Refused):
    """A batch that would double lines, or leave some out."""


@dataclass(frozen=True, slots=True)
class Cover:
    """*read* holds each stream's ranges in the order of their batches, joined where they adjoin;
    *lost* what of them was gone when it was read.
    """

    read: Mapping[str, tuple[Range, ...]] = field(default_factory=dict)
    lost: Mapping[str, tuple[Range, ...]] = field(default_factory=dict)

    def end_of(self, stream: str) -> Range | None:
        """Return the range in which *stream*'s committed part ends."""
        ranges = self.read.get(stream)
        return ranges[-1] if ranges else None

    def after(
        self,
        ranges: Mapping[str, Range],
        *,
        skipped: frozenset[str] = frozenset(),
        lost: Mapping[str, Sequence[Range]] | None = None,
    ) -> Cover:
        """Return the cover with a batch's *ranges* in it. *skipped* names streams of which there
        may be a hole before their range; *lost* are parts of ranges that were gone.

        Raises:
            WrongRange: a range overlaps what is committed, or leaves a hole that is not named.
        """
        read = dict(self.read)
        for stream, found in ranges.items():
            read[stream] = _joined(stream, read.get(stream, ()), found, stream in skipped)
        gone = dict(self.lost)
        for stream, parts in (lost or {}).items():
            gone[stream] = (*gone.get(stream, ()), *parts)
        return Cover(read, gone)

    def missing(self) -> Iterator[tuple[str, Range]]:
        """Give what was gone before it was read: what lies between two ranges of one life of a
        stream, and parts of ranges.
        """
        for stream, ranges in sorted(self.read.items()):
            for one, following in itertools.pairwise(ranges):
                if one.incarnation == following.incarnation:
                    yield stream, Range(one.incarnation, one.last + 1, following.first - 1)
            for gone in self.lost.get(stream, ()):
                yield stream, gone

    def to_data(self) -> Any:
        """Return this as JSON has it."""
        return {"read": _to_data(self.read), "lost": _to_data(self.lost)}

    @staticmethod
    def from_data(data: Any) -> Cover:
        """Read what `to_data` gave.

        Raises:
            ValueError, KeyError, TypeError: it is something else.
        """
        return Cover(_from_data(data["read"]), _from_data(data["lost"]))


def _joined(
    stream: str, ranges: tuple[Range, ...], found: Range, is_hole_known: bool
) -> tuple[Range, ...]:
    same = [known for known in ranges if known.incarnation == found.incarnation]
    if not same:
        return (*ranges, found)
    last = same[-1]
    if last is not ranges[-1]:
        raise WrongRange(
            f"{stream} was {found.incarnation} before it became {ranges[-1].incarnation}: "
            "start from the stream as it is now."
        )
    if found.first <= last.last:
        raise WrongRange(
            f"{stream} is committed to {last.last}, and {found.first}-{found.last} begins before "
            f"its end: start at {last.last + 1}."
        )
    if found.first > last.last + 1:
        if not is_hole_known:
            raise WrongRange(
                f"{stream} is committed to {last.last}, and {found.first}-{found.last} leaves out "
                f"what is between: start at {last.last + 1}."
            )
        return (*ranges, found)
    return (*ranges[:-1], Range(last.incarnation, last.first, found.last))


def _to_data(ranges: Mapping[str, tuple[Range, ...]]) -> Any:
    return {
        stream: [[each.incarnation, each.first, each.last] for each in found]
        for stream, found in ranges.items()
    }


def _from_data(data: Any) -> dict[str, tuple[Range, ...]]:
    return {stream: tuple(Range(*each) for each in found) for stream, found in data.items()}
