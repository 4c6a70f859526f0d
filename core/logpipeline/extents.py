"""Extents of one generation of a source: its written bytes, and the batches that continue them.

Any client that may publish for a host may write a batch in the name of each of its sources. The
running checksum of the file proves which batches are the shipper's own: a batch belongs to what is
written if it continues it there. Nothing counts as written because of a batch that does not: its
bytes may be kept, but never in the place of others.

Pure: no clock and no connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from logpipeline.checksum import NOTHING, Checksum
from logpipeline.spans import Span, joined, outside
from logpipeline.wire import Batch

# Holes of a generation that can still be filled. Each second message of a stream may be
# deleted, and a hole takes 30 bytes of a snapshot.
HOLES_MAX = 1024
# Extents of a generation whose shipper sends checksums. A further batch that continues none of
# them is put aside: its shipper sends it again once it fills the holes.
EXTENTS_MAX = 256
# A hole that is wider is not counted as missing: more than streams hold of one file, so that it is
# rather a forged range that lies behind it. It fills like any other.
HOLE_BYTES_COUNTED_MAX = 64 * 1024**3
# Ends of batches at which the checksum is remembered: those in flight, and those that a forger may
# have put behind them.
MARKS_MAX = 4
# The same of extents that do not go back to where shipping began, shared by all of a generation. A
# batch that comes again is known there by a checksum alone, and would be written again without.
MARKS_APART_MAX = 256
# Extents beside the one that is continued; the oldest further ones are forgotten.
ASIDES_MAX = 8

# The running checksum at an offset inside of a batch; it takes the batch's bytes.
Sums = Callable[[int], Checksum]
Mark = tuple[int, Checksum]


class Repeat(Enum):
    """Whether a batch may hold bytes that came before."""

    NEVER = "its shipper says that it sends them for the first time"
    MARKED = "its shipper says that it may have sent them before"
    READ = "the message was read before, and the stream gives it again"


class Extent(NamedTuple):
    """Bytes ``[start, end)`` that came without a gap, each batch continuing the one before.
    *before* is the running checksum at *start*, *marks* are those at the last ends of batches,
    rising. Both are empty where a shipper sends no checksums.
    """

    start: int
    end: int
    before: Checksum | None = None
    marks: tuple[Mark, ...] = ()

    @property
    def span(self) -> Span:
        """Its bytes."""
        return self.start, self.end

    @property
    def after(self) -> Checksum | None:
        """The running checksum at its end."""
        return self.marks[-1][1] if self.marks and self.marks[-1][0] == self.end else None

    @property
    def is_believed(self) -> bool:
        """Whether there is no checksum that could contradict a batch."""
        return self.before is None and not self.marks

    def head(self, end: int) -> Extent:
        """Return its part before *end*."""
        return self._replace(end=end, marks=tuple(mark for mark in self.marks if mark[0] <= end))

    def tail(self, start: int) -> Extent:
        """Return its part from *start* on."""
        before = self.before if start == self.start else dict(self.marks).get(start)
        marks = tuple(mark for mark in self.marks if mark[0] > start)
        return Extent(start, self.end, before, marks)


class GenerationState(NamedTuple):
    """One generation, shipped from *begun* on. *extents* are written, in order; *lost* is named as
    lost, and written if it comes after all. *claimed* is how long a successor says that it is.

    *asides* are written as well, in the place of bytes of *extents*: one of both is forged.
    """

    name: str
    begun: int = 0
    extents: tuple[Extent, ...] = ()
    lost: tuple[Span, ...] = ()
    claimed: int = 0
    asides: tuple[Extent, ...] = ()

    @property
    def high(self) -> int:
        """The offset up to which it is written or named as lost, but for *holes*."""
        high = self.extents[-1].end if self.extents else self.begun
        if self.lost:
            high = max(high, self.lost[-1][1])
        return max(high, self.claimed)

    @property
    def checksum(self) -> Checksum | None:
        """Its running checksum at *high*, None if its shipper sends none."""
        if not self.extents:
            return NOTHING if self.high == self.begun else None
        last = self.extents[-1]
        return last.after if last.end == self.high else None

    @property
    def is_whole(self) -> bool:
        """Whether it certainly has no holes; cheap to ask."""
        extents = self.extents
        is_one = len(extents) == 1 and extents[0].start <= self.begun
        return is_one and not self.lost and self.claimed <= extents[0].end

    @property
    def holes(self) -> tuple[Span, ...]:
        """Ranges that never came."""
        if self.is_whole:
            return ()
        have = [extent.span for extent in self.extents]
        return tuple(outside((self.begun, self.high), [*have, *self.lost]))

    @property
    def missing(self) -> int:
        """Bytes of the holes, but for those that cannot be believed."""
        return 0 if self.is_whole else sum(map(missing_bytes, self.holes))

    @property
    def is_chained(self) -> bool:
        """Whether its shipper sends checksums."""
        return any(extent.marks for extent in self.extents)

    def is_anchored(self, extent: Extent) -> bool:
        """Return whether *extent* goes back to where shipping began, or to what came first."""
        return extent.start == self.begun


def missing_bytes(hole: Span) -> int:
    """Return how many bytes of *hole* count as missing."""
    size = hole[1] - hole[0]
    return size if size <= HOLE_BYTES_COUNTED_MAX else 0


class Taken(NamedTuple):
    """The result of taking a batch: *known* is the state once the bytes of the *new* spans are
    written. *contradicted* is bytes of
    others that one of both must have forged.
    """

    known: GenerationState
    new: tuple[Span, ...]
    contradicted: int = 0


def take(
    known: GenerationState,
    batch: Batch,
    *,
    repeat: Repeat,
    sums: Sums | None,
    is_midway: bool = False,
) -> Taken | None:
    """Return the new bytes of *batch*, or None where it does not continue what is known.

    Where it cannot *repeat* anything, what is written in its place is something else. Without
    *sums* only the ends of the batch are compared. *is_midway* says that what comes first of a
    generation need not be its begin.
    """
    last = known.extents[-1] if known.extents else None
    before, after = _sums_of(batch)
    is_next = last is not None and last.end == batch.start == known.high
    if last is not None and is_next and (last.after == before or last.is_believed):
        # The usual case.
        marks = () if after is None else (*last.marks, (batch.end, after))
        grown = last._replace(end=batch.end, marks=_kept(known, last.start, marks))
        extents = (*known.extents[:-1], grown)
        return Taken(known._replace(extents=extents), ((batch.start, batch.end),))
    if before is None and known.is_chained:
        return None
    return _Placing(known, batch, repeat, sums).place(is_midway=is_midway)


def lose(known: GenerationState, span: Span) -> tuple[GenerationState, list[Span]]:
    """Return the state once *span* was named as lost, and the parts that were not named before."""
    have = [extent.span for extent in known.extents]
    fresh = outside(span, [*have, *known.lost])
    # The oldest are missing then, which may be found just as well.
    lost = joined([*known.lost, *fresh])[-HOLES_MAX:]
    return known._replace(lost=tuple(lost)), fresh


class _Match(NamedTuple):
    """The comparison of a batch with an *extent*: they have the same checksums up to *matched*
    (None: nowhere); if *is_other*, they differ behind that.
    """

    extent: Extent
    matched: int | None
    is_other: bool


class _Placing:
    """Finds the place of one batch that is not simply the next one."""

    def __init__(
        self, known: GenerationState, batch: Batch, repeat: Repeat, sums: Sums | None
    ) -> None:
        self._known = known
        self._span = (batch.start, batch.end)
        self._before, self._after = _sums_of(batch)
        self._repeat = repeat
        self._sums = sums
        self._had: list[Span] = []
        self._asides: list[Extent] = []

    def place(self, *, is_midway: bool) -> Taken | None:
        """Return the new bytes, or None where the batch is to be put aside."""
        known, is_again = self._known, self._repeat is not Repeat.NEVER
        near = self._matches(known.extents)
        continued = [match for match in near if self._is_continued(match)]
        continued += [match for match in self._matches(known.asides) if self._is_continued(match)]
        if any(self._parts_unseen(match) for match in continued):
            return None
        if not continued:
            certain = [match for match in near if self._is_certain(match.extent)]
            if any(match.is_other or not is_again for match in certain):
                return None
            if certain:
                return Taken(known, ())
            if not is_midway and not self._may_stand_alone():
                return None
        made = Extent(*self._span, self._before, _marks((self._span[1], self._after)))
        extents = {match.extent for match in continued}
        self._asides = [extent for extent in known.asides if extent not in extents]
        for match in continued:
            made = self._joined(made, match)
        if is_again and self._span[0] < known.begun:
            # What the group, or the shipper, left out on purpose.
            self._had.append((self._span[0], known.begun))
        new = outside(self._span, self._had)
        if not new:
            return Taken(known, ())
        return self._taken(made, extents, new)

    def _is_certain(self, extent: Extent) -> bool:
        """Return whether a batch that has no checksum of *extent* in it gives way to it."""
        return self._known.is_anchored(extent) or self._repeat is Repeat.READ

    def _matches(self, extents: Iterable[Extent]) -> list[_Match]:
        start, end = self._span
        return [self._match(each) for each in extents if each.start <= end and each.end >= start]

    def _match(self, extent: Extent) -> _Match:
        matched: int | None = None
        for offset, checksum in (*_marks((extent.start, extent.before)), *extent.marks):
            found = self._sum_at(offset)
            if found is not None and found != checksum:
                return _Match(extent, matched, is_other=True)
            if found is not None:
                matched = offset
        return _Match(extent, matched, is_other=False)

    def _sum_at(self, offset: int) -> Checksum | None:
        start, end = self._span
        if self._before is None or not start <= offset <= end:
            return None
        if offset in self._span:
            return self._before if offset == start else self._after
        return self._sums(offset) if self._sums is not None else None

    def _is_continued(self, match: _Match) -> bool:
        return match.matched is not None or match.extent.is_believed or self._before is None

    def _may_stand_alone(self) -> bool:
        known = self._known
        if self._span[0] == known.begun and self._before not in (None, NOTHING):
            return False
        return not known.is_chained or len(known.extents) < EXTENTS_MAX

    def _joined(self, made: Extent, match: _Match) -> Extent:
        """Return *made* with the extent of *match*, and note what of the batch was had."""
        extent = match.extent
        if match.matched is not None and self._parts_at(match):
            # Up to here it is the same file, and from here on one of both is forged.
            parting = match.matched
            self._set_aside(extent.tail(parting))
            extent = extent.head(parting)
        if extent.start < extent.end:
            self._had.append((extent.start, extent.end))
        first = extent if extent.start < made.start else made
        marks = {**dict(made.marks), **dict(extent.marks)}
        if made.before is not None and made.start > extent.start:
            marks[made.start] = made.before
        kept = _kept(self._known, first.start, sorted(marks.items()))
        return Extent(first.start, max(made.end, extent.end), first.before, kept)

    def _parts_at(self, match: _Match) -> bool:
        """Return whether batch and extent go on differently behind what they have in common."""
        extent, end = match.extent, self._span[1]
        if match.is_other:
            return True
        is_compared = match.matched in (end, extent.end) or extent.end <= end
        return not is_compared and self._repeat is Repeat.NEVER

    def _parts_unseen(self, match: _Match) -> bool:
        """Return whether batch and extent differ where the extent's checksums are no longer kept.
        A batch that comes so late is a copy of written bytes, or forged.
        """
        extent = match.extent
        is_marked = match.matched != extent.start or len(extent.marks) < MARKS_MAX
        return match.matched is not None and not is_marked and self._parts_at(match)

    def _set_aside(self, extent: Extent) -> None:
        if extent.start < extent.end and not extent.is_believed:
            self._asides.append(extent)

    def _taken(self, made: Extent, joined_ones: set[Extent], new: list[Span]) -> Taken:
        known, kept = self._known, []
        for extent in known.extents:
            if extent in joined_ones:
                continue
            if extent.end <= made.start or extent.start >= made.end:
                kept.append(extent)
                continue
            head = extent.head(max(extent.start, made.start))
            self._set_aside(extent.tail(head.end))
            if head.start == head.end:
                continue
            if head.after is not None and head.after == made.before:
                marks = _kept(known, head.start, (*head.marks, *made.marks))
                made = Extent(head.start, made.end, head.before, marks)
            else:
                kept.append(head)
        before, now = _sizes(known.asides), _sizes(self._asides)
        lost = [part for span in known.lost for part in outside(span, new)]
        after = known._replace(
            begun=min(known.begun, made.start),
            extents=tuple(sorted([*kept, made], key=_start)),
            lost=tuple(lost),
            asides=tuple(self._asides[-ASIDES_MAX:]),
        )
        return Taken(after, tuple(new), max(0, now - before))


def _sums_of(batch: Batch) -> tuple[Checksum | None, Checksum | None]:
    sums = batch.checksums
    return (None, None) if sums is None else (sums.before, sums.after)


def _marks(*marks: tuple[int, Checksum | None]) -> tuple[Mark, ...]:
    return tuple((offset, checksum) for offset, checksum in marks if checksum is not None)


def _start(extent: Extent) -> int:
    return extent.start


def _kept(known: GenerationState, start: int, marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """Return the last of *marks*, as many as an extent from *start* on may have."""
    if start == known.begun:
        return tuple(marks[-MARKS_MAX:])
    return tuple(marks[-max(MARKS_MAX, MARKS_APART_MAX // max(1, len(known.extents))) :])


def _sizes(extents: Iterable[Extent]) -> int:
    return sum(extent.end - extent.start for extent in extents)
