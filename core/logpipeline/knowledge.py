"""What a reader knows of a source: how far each generation is archived, and which ranges are
missing.

Pure: the same batches lead to the same knowledge, whether their bytes were written or only their
headers read.
"""

from __future__ import annotations

from typing import NamedTuple

from logpipeline.records import Committed
from logpipeline.wire import Batch, Previous

# kubelet keeps five generations, logrotate some weeks of them; the oldest are forgotten first.
GENERATIONS_MAX = 256
# Holes of a generation that can still be filled; the oldest further ones are only counted.
HOLES_MAX = 64


class Known(NamedTuple):
    """One generation: everything below *high* is archived, but for the *holes* ``(start, end)``."""

    name: str
    high: int
    holes: tuple[tuple[int, int], ...] = ()

    @property
    def missing(self) -> int:
        """Bytes of the holes."""
        return sum(end - start for start, end in self.holes)


class Knowledge(NamedTuple):
    """All that is known of one source; the generation that was seen last stands last.

    *given_up* is the bytes of holes that are no longer listed, and cannot be filled any more.
    """

    generations: tuple[Known, ...] = ()
    given_up: int = 0

    @property
    def missing(self) -> int:
        """Bytes of all holes."""
        return self.given_up + sum(known.missing for known in self.generations if known.holes)

    def find(self, name: str) -> int | None:
        """Return the place of the generation *name*."""
        for place in range(len(self.generations) - 1, -1, -1):
            if self.generations[place].name == name:
                return place
        return None

    def with_known(self, place: int | None, known: Known) -> Knowledge:
        """Return this with *known* at *place*, None for a new one; limits are kept, and what they
        cost is counted.
        """
        given_up, generations = self.given_up, self.generations
        surplus = len(known.holes) - HOLES_MAX
        if surplus > 0:
            given_up += sum(end - start for start, end in known.holes[:surplus])
            known = known._replace(holes=known.holes[surplus:])
        if place is not None:
            return Knowledge((*generations[:place], known, *generations[place + 1 :]), given_up)
        if len(generations) >= GENERATIONS_MAX:
            given_up += generations[0].missing
            generations = generations[1:]
        return Knowledge((*generations, known), given_up)


class Range(NamedTuple):
    """Bytes of a batch that are to be written; *is_late* where later bytes already were."""

    start: int
    end: int
    is_late: bool


class Decision(NamedTuple):
    """What to do with a batch, and what is known afterwards; *holes* are the new ones."""

    after: Knowledge
    ranges: tuple[Range, ...]
    holes: tuple[tuple[str, int, int], ...] = ()
    cut_bytes: int = 0
    is_unknown_chain: bool = False


NOTHING = Knowledge()


def decide(before: Knowledge, batch: Batch, *, is_from_midway: bool = False) -> Decision:
    """Return which bytes of *batch* are new, and what is known when they are archived.

    *is_from_midway* says that the reader left out on purpose what the stream held before it began:
    a source of which nothing is known begins where it is first seen.
    """
    knowledge, is_unknown_chain = before, False
    if batch.previous is not None and before.generations:
        knowledge, is_unknown_chain = _with_previous(before, batch.generation, batch.previous)
    place = knowledge.find(batch.generation)
    if place is not None:
        known = knowledge.generations[place]
    else:
        # What lies before the very beginning was left out on purpose.
        is_beginning = batch.begins or (is_from_midway and not before.generations)
        known = Known(batch.generation, batch.start if is_beginning else 0)
    after, ranges = _take(known, batch.start, batch.end)
    fresh = sum(part.end - part.start for part in ranges)
    holes = () if knowledge is before else _new_holes(before, knowledge)
    if batch.start > known.high:
        holes = (*holes, (batch.generation, known.high, batch.start))
    return Decision(
        knowledge.with_known(place, after),
        ranges,
        holes,
        batch.end - batch.start - fresh if ranges else 0,
        is_unknown_chain,
    )


def _take(known: Known, start: int, end: int) -> tuple[Known, tuple[Range, ...]]:
    if start == known.high:
        return Known(known.name, end, known.holes), (Range(start, end, False),)
    ranges: list[Range] = []
    holes: list[tuple[int, int]] = []
    for hole_start, hole_end in known.holes:
        first, last = max(hole_start, start), min(hole_end, end)
        if first >= last:
            holes.append((hole_start, hole_end))
            continue
        ranges.append(Range(first, last, is_late=True))
        holes.extend(part for part in ((hole_start, first), (last, hole_end)) if part[0] < part[1])
    if end > known.high:
        if start > known.high:
            holes.append((known.high, start))
        ranges.append(Range(max(start, known.high), end, is_late=False))
    return Known(known.name, max(end, known.high), tuple(holes)), tuple(ranges)


def _with_previous(
    before: Knowledge, generation: str, previous: Previous
) -> tuple[Knowledge, bool]:
    """Note what a batch of *generation* says about the one before it."""
    place = before.find(previous.generation)
    if place is None:
        if before.find(generation) is not None:
            return before, False
        # Nothing of it ever came: all of it is missing, and may still come late.
        holes = ((0, previous.length),) if previous.length else ()
        lost = Known(previous.generation, previous.length or 0, holes)
        return before.with_known(None, lost), True
    known = before.generations[place]
    if previous.length is None or previous.length <= known.high:
        return before, False
    hole = (known.high, previous.length)
    longer = Known(known.name, previous.length, (*known.holes, hole))
    return before.with_known(place, longer), False


def _new_holes(before: Knowledge, after: Knowledge) -> tuple[tuple[str, int, int], ...]:
    known = {(g.name, *hole) for g in before.generations for hole in g.holes}
    found = [(g.name, *hole) for g in after.generations for hole in g.holes]
    return tuple(hole for hole in found if hole not in known)


def committed_of(source: str, knowledge: Knowledge) -> Committed:
    """Return *knowledge* of *source* as it is told to shippers."""
    last = knowledge.generations[-1]
    holes = tuple((g.name, start, end) for g in knowledge.generations for start, end in g.holes)
    return Committed(source, last.name, last.high, holes)


def encode(knowledge: Knowledge) -> list[object]:
    """Return *knowledge* as JSON values."""
    return [knowledge.given_up, [list(known) for known in knowledge.generations]]


def decode(value: object) -> Knowledge:
    """Return what `encode` made.

    Raises:
        ValueError, TypeError: it is nothing of the kind.
    """
    if not isinstance(value, list):
        raise ValueError("no knowledge of a source")
    given_up, generations = value
    return Knowledge(
        tuple(
            Known(str(name), int(high), tuple((int(a), int(b)) for a, b in holes))
            for name, high, holes in generations
        ),
        int(given_up),
    )
