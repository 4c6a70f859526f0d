"""The result of the oracle: numbers that must be 0, and locations for those that are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from logpipeline_demo.lines import SourceKey
from logpipeline_demo.outputs import Location

# Counts are exact; of the locations only so many are kept for each kind and source.
OFFENCES_KEPT_MAX = 100
EXCERPT_BYTES_MAX = 80


class Kind(StrEnum):
    """The kinds of wrong lines."""

    LOST = "lost"
    TWICE = "twice"
    OUT_OF_ORDER = "out of order"
    CORRUPT = "corrupt"
    INVENTED = "invented"
    LATE = "late"  # out of order, where that is allowed


@dataclass(frozen=True, slots=True)
class Offence:
    """Lines from *first* up to *end* of a source with the same thing wrong; or one line of no
    source.
    """

    kind: Kind
    key: SourceKey | None
    first: int | None
    end: int | None
    at: Location | None
    note: str = ""

    def __str__(self) -> str:
        lines = ""
        if self.first is not None and self.end is not None:
            one = self.end - self.first == 1
            lines = f" {self.first}" if one else f" {self.first}..{self.end - 1}"
        parts = [
            f"{self.kind}: {self.key or 'of no known source'}{lines}",
            f"at {self.at}" if self.at else "",
            self.note,
        ]
        return ", ".join(part for part in parts if part)


@dataclass(slots=True)
class SourceVerdict:
    """The result of one source."""

    key: SourceKey | None  # None: what belongs to no source
    expected: int = 0
    arrived: int = 0  # of the expected ones, each counted once
    recovered: int = 0  # arrived though it is unknown whether they were written
    lost_prefix: int = 0
    lost_middle: int = 0
    lost_tail: int = 0
    lost_removed: int = 0  # of the lost ones: their file was deleted or truncated
    twice: int = 0
    out_of_order: int = 0
    late: int = 0
    corrupt: int = 0
    invented: int = 0
    offences: list[Offence] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """Expected lines that were not found."""
        return self.lost_prefix + self.lost_middle + self.lost_tail

    @property
    def is_clean(self) -> bool:
        """Whether everything arrived once, intact, and in order where that is asked for."""
        return not (self.lost or self.twice or self.out_of_order or self.corrupt or self.invented)

    def tell(self, offence: Offence) -> None:
        """Keep *offence*, unless enough of its kind are kept."""
        if sum(known.kind == offence.kind for known in self.offences) < OFFENCES_KEPT_MAX:
            self.offences.append(offence)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file that was not checked, and why."""

    path: Path
    reason: str


@dataclass(slots=True)
class Verdict:
    """The result of a run."""

    sources: list[SourceVerdict] = field(default_factory=list)
    damaged: list[LeftOut] = field(default_factory=list)  # collected files that cannot be read
    left_out: list[LeftOut] = field(default_factory=list)  # real files that changed otherwise
    real_files: int = 0  # how many of the sources are files of this machine
    banners: int = 0  # lines that files begin with, all with the same one

    @property
    def lines(self) -> int:
        """Number of expected lines."""
        return self._sum("expected")

    @property
    def lost(self) -> int:
        """Expected lines that were not found."""
        return self._sum("lost")

    @property
    def twice(self) -> int:
        """Surplus copies of lines."""
        return self._sum("twice")

    @property
    def out_of_order(self) -> int:
        """Lines that are behind later ones of their source, where that is not allowed."""
        return self._sum("out_of_order")

    @property
    def late(self) -> int:
        """Lines that are behind later ones of their source, where that is allowed."""
        return self._sum("late")

    @property
    def corrupt(self) -> int:
        """Lines with other bytes than were written."""
        return self._sum("corrupt")

    @property
    def invented(self) -> int:
        """Lines that were not written, or not to this log."""
        return self._sum("invented")

    @property
    def is_clean(self) -> bool:
        """Whether no line is wrong. The caller checks that there were lines at all."""
        return not self.damaged and all(source.is_clean for source in self.sources)

    def summary(self) -> str:
        """Return the result in one line."""
        text = (
            f"checked: {self.lines} lines, {self.lost} lost, {self.twice} twice, "
            f"{self.out_of_order} out of order"
        )
        for count, word in ((self.corrupt, "corrupt"), (self.invented, "invented")):
            if count:
                text += f", {count} {word}"
        if self.damaged:
            text += f", {len(self.damaged)} files unreadable"
        return text

    def explain(self, limit: int = 20) -> str:
        """Return what is wrong, source by source, and the first *limit* offences with their
        places; what is wrong stands before what is allowed.
        """
        dirty = sorted(self._dirty(), key=_is_allowed)
        told = [*self._damage(), *(_numbers(source) for source in dirty)]
        told = told[:limit] + [f"… and {len(told) - limit} more"] * (len(told) > limit)
        offences = list(_fairly(source.offences for source in dirty))
        offences.sort(key=lambda offence: offence.kind is Kind.LATE)
        told += [str(offence) for offence in offences[:limit]]
        if len(offences) > limit:
            kinds = Counter(offence.kind.value for offence in offences[limit:])
            more = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
            told.append(f"… and more places: {more}")
        return "\n".join(told)

    def source(self, key: SourceKey) -> SourceVerdict:
        """Return the result of the source *key*."""
        return next(source for source in self.sources if source.key == key)

    def _dirty(self) -> Iterator[SourceVerdict]:
        return (source for source in self.sources if not source.is_clean or source.late)

    def _damage(self) -> Iterator[str]:
        return (f"unreadable: {file.path}: {file.reason}" for file in self.damaged)

    def _sum(self, name: str) -> int:
        return sum(getattr(source, name) for source in self.sources)


def excerpt(text: bytes) -> str:
    """Return the beginning of *text*, safe for a terminal."""
    shown = ascii(text[:EXCERPT_BYTES_MAX])[1:]
    return shown + ("…" if len(text) > EXCERPT_BYTES_MAX else "")


def _is_allowed(source: SourceVerdict) -> bool:
    return source.is_clean


def _numbers(source: SourceVerdict) -> str:
    counts = {
        f"lost (prefix {source.lost_prefix}, middle {source.lost_middle}, tail {source.lost_tail},"
        f" file gone {source.lost_removed})": source.lost,
        "twice": source.twice,
        "out of order": source.out_of_order,
        "late": source.late,
        "corrupt": source.corrupt,
        "invented": source.invented,
    }
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{source.key or 'of no known source'}: {source.expected} expected, {told}"


def _fairly(groups: Iterable[list[Offence]]) -> Iterator[Offence]:
    """Yield the first of every group, then the second of every group: no source hides another."""
    waiting = [iter(group) for group in groups]
    while waiting:
        remaining = []
        for group in waiting:
            if (offence := next(group, None)) is not None:
                yield offence
                remaining.append(group)
        waiting = remaining
