"""What a reader knows of a source: how far each generation is archived, and which ranges are
missing.

Pure: the same batches lead to the same knowledge, whether their bytes were written or only their
headers read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from logpipeline.wire import Batch

# kubelet keeps five generations, logrotate some weeks of them; the oldest are forgotten first.
GENERATIONS_MAX = 256
# Holes of a generation that can still be filled; the oldest further ones are only counted.
HOLES_MAX = 64


@dataclass(frozen=True, slots=True)
class Known:
    """One generation: everything below *high* is archived, but for the *holes* ``(start, end)``."""

    name: str
    high: int
    holes: tuple[tuple[int, int], ...] = ()

    @property
    def missing(self) -> int:
        """Bytes of the holes."""
        return sum(end - start for start, end in self.holes)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """All that is known of one source; the generation that was seen last stands last."""

    generations: tuple[Known, ...] = ()

    @property
    def missing(self) -> int:
        """Bytes of all holes."""
        return sum(known.missing for known in self.generations)

    def find(self, name: str) -> int | None:
        """Return the place of the generation *name*."""
        for place in range(len(self.generations) - 1, -1, -1):
            if self.generations[place].name == name:
                return place
        return None


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes of a batch that are to be written; *is_late* where later bytes already were."""

    start: int
    end: int
    is_late: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with a batch, and what is known afterwards."""

    after: Knowledge
    ranges: tuple[Range, ...]
    cut_bytes: int = 0
    is_unknown_chain: bool = False


def decide(before: Knowledge, batch: Batch) -> Decision:
    """Return which bytes of *batch* are new, and what is known when they are archived."""
    knowledge, is_unknown_chain = _with_previous(before, batch)
    place = knowledge.find(batch.generation)
    if place is None:
        known = Known(batch.generation, batch.start if batch.begins else 0)
        generations = (*knowledge.generations, known)[-GENERATIONS_MAX:]
        place = len(generations) - 1
    else:
        generations = knowledge.generations
        known = generations[place]
    after, ranges = _take(known, batch.start, batch.end)
    fresh = sum(part.end - part.start for part in ranges)
    changed = (*generations[:place], after, *generations[place + 1 :])
    return Decision(Knowledge(changed), ranges, batch.end - batch.start - fresh, is_unknown_chain)


def _take(known: Known, start: int, end: int) -> tuple[Known, tuple[Range, ...]]:
    ranges: list[Range] = []
    holes: list[tuple[int, int]] = []
    for hole_start, hole_end in known.holes:
        first, last = max(hole_start, start), min(hole_end, end)
        if first >= last:
            holes.append((hole_start, hole_end))
            continue
        ranges.append(Range(first, last, is_late=True))
        holes.extend(part for part in ((hole_start, first), (last, hole_end)) if part[0] < part[1])
    high = known.high
    if end > high:
        if start > high:
            holes.append((high, start))
        ranges.append(Range(max(start, high), end, is_late=False))
        high = end
    return Known(known.name, high, tuple(holes[-HOLES_MAX:])), tuple(ranges)


def _with_previous(before: Knowledge, batch: Batch) -> tuple[Knowledge, bool]:
    """Note what *batch* says about the generation before its own."""
    previous = batch.previous
    if previous is None or not before.generations:
        return before, False
    place = before.find(previous.generation)
    if place is None:
        if before.find(batch.generation) is not None:
            return before, False
        if previous.length:
            # Nothing of it ever came: all of it is missing, and may still come late.
            lost = Known(previous.generation, previous.length, ((0, previous.length),))
            return Knowledge((*before.generations, lost)[-GENERATIONS_MAX:]), True
        return before, True
    known = before.generations[place]
    if previous.length is None or previous.length <= known.high:
        return before, False
    holes = (*known.holes, (known.high, previous.length))[-HOLES_MAX:]
    longer = replace(known, high=previous.length, holes=holes)
    return (
        Knowledge((*before.generations[:place], longer, *before.generations[place + 1 :])),
        False,
    )


def encode(knowledge: Knowledge) -> list[list[object]]:
    """Return *knowledge* as JSON values."""
    return [[k.name, k.high, [list(hole) for hole in k.holes]] for k in knowledge.generations]


def decode(values: object) -> Knowledge:
    """Return what `encode` made.

    Raises:
        ValueError, TypeError: it is nothing of the kind.
    """
    if not isinstance(values, list):
        raise ValueError("no list of generations")
    return Knowledge(
        tuple(
            Known(str(name), int(high), tuple((int(a), int(b)) for a, b in holes))
            for name, high, holes in values
        )
    )
