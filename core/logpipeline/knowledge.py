"""What a reader knows of a source: how far each generation is archived, and which ranges are
missing.

Pure: the same batches lead to the same knowledge, whether their bytes were written or only their
headers read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from logpipeline import checksum
from logpipeline.checksum import Checksum
from logpipeline.records import Committed
from logpipeline.spans import Span, inside, outside
from logpipeline.wire import Batch, Previous

# kubelet keeps five generations, logrotate some weeks of them; the oldest are forgotten first.
GENERATIONS_MAX = 256
# A rotator that keeps a month of days keeps fewer.
GENERATIONS_TOLD_MAX = 32
# Holes of a generation that can still be filled; the oldest further ones are only counted. Somebody
# may delete each second message of a stream, and a hole takes 30 bytes of a snapshot.
HOLES_MAX = 1024
# Losses of a source that are listed; the oldest further ones are only counted.
LOSSES_MAX = 64


class Known(NamedTuple):
    """One generation: everything from *begun* to *high* is archived or named as lost, but for the
    *holes* ``(start, end)``. *checksum* is its running checksum at *high*, None if its shipper
    sends none.
    """

    name: str
    high: int
    holes: tuple[tuple[int, int], ...] = ()
    checksum: Checksum | None = None
    begun: int = 0

    @property
    def missing(self) -> int:
        """Bytes of the holes."""
        return sum(end - start for start, end in self.holes)


class Loss(NamedTuple):
    """Bytes that a shipper named as lost, and why; *time_ns* is when it did."""

    generation: str
    start: int
    end: int
    cause: str
    time_ns: int


class Knowledge(NamedTuple):
    """All that is known of one source; the generation that was seen last stands last.

    *archived* and *lost* are bytes, since the source was first seen: of what is archived, and of
    what a shipper named as lost. *losses* lists the latest of the latter; these may still be found
    and archived. *given_up* is the bytes of holes that are no longer listed, and cannot be filled
    any more.
    """

    generations: tuple[Known, ...] = ()
    given_up: int = 0
    archived: int = 0
    lost: int = 0
    losses: tuple[Loss, ...] = ()

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
            generations = (*generations[:place], known, *generations[place + 1 :])
        else:
            if len(generations) >= GENERATIONS_MAX:
                given_up += generations[0].missing
                generations = generations[1:]
            generations = (*generations, known)
        return self._replace(generations=generations, given_up=given_up)


class Range(NamedTuple):
    """Bytes of a batch that are to be written; *is_late* where later bytes already were."""

    start: int
    end: int
    is_late: bool


class Decision(NamedTuple):
    """The decision about one batch. *after* is the knowledge once the bytes of *ranges* are
    written, *holes* are the ranges that the batch shows to be missing.

    *is_misfit* says that the batch does not continue what is known of its generation: it is forged,
    garbled, or of another file; nothing may be concluded from it. So is one whose bytes up to the
    offset *known* do not have the checksum there.
    """

    after: Knowledge
    ranges: tuple[Range, ...]
    holes: tuple[tuple[str, int, int], ...] = ()
    cut_bytes: int = 0
    is_unknown_chain: bool = False
    is_misfit: bool = False
    known: tuple[int, Checksum] | None = None


NOTHING = Knowledge()


def decide(before: Knowledge, batch: Batch, *, is_from_midway: bool = False) -> Decision:
    """Return which bytes of *batch* are new, and what is known when they are archived. A batch that
    names a loss has no bytes to be written.

    *is_from_midway* says that the reader left out on purpose what the stream held before it began:
    a source of which nothing is known begins where it is first seen.
    """
    knowledge, is_unknown_chain = before, False
    if batch.previous is not None and batch.checksums is None and before.generations:
        # A shipper without checksums keeps no account: what its predecessor lacks is missing.
        knowledge, is_unknown_chain = _with_previous(before, batch.generation, batch.previous)
    place = knowledge.find(batch.generation)
    is_midway = is_from_midway and not before.generations
    known = knowledge.generations[place] if place is not None else _new(batch, is_midway)
    if _is_misfit(known, batch):
        return Decision(before, (), is_misfit=True)
    after, ranges = _take(known, batch.start, batch.end)
    if batch.begins and after.begun < batch.start:
        # It comes late: what lies before it never was to come.
        holes_after = tuple(
            part for hole in after.holes for part in outside(hole, [(0, batch.start)])
        )
        after = after._replace(holes=holes_after, begun=batch.start)
    if batch.checksums is not None and batch.end > known.high:
        after = after._replace(checksum=batch.checksums.after)
    elif batch.end > known.high:
        after = after._replace(checksum=None)
    found, losses = _found(knowledge.losses, batch)
    ranges = (*found, *ranges)
    fresh = sum(part.end - part.start for part in ranges)
    holes = () if knowledge is before else _new_holes(before, knowledge)
    if batch.start > known.high:
        holes = (*holes, (batch.generation, known.high, batch.start))
    knowledge = knowledge.with_known(place, after)
    if batch.lost:
        named = tuple(
            Loss(batch.generation, part.start, part.end, batch.lost, batch.first_time_ns)
            for part in ranges
        )
        knowledge = knowledge._replace(
            lost=knowledge.lost + fresh, losses=(*losses, *named)[-LOSSES_MAX:]
        )
        return Decision(knowledge, (), holes, is_unknown_chain=is_unknown_chain)
    knowledge = knowledge._replace(
        archived=knowledge.archived + fresh,
        lost=knowledge.lost - sum(part.end - part.start for part in found),
        losses=losses,
    )
    cut_bytes = batch.end - batch.start - fresh if ranges else 0
    overlap = None
    if known.checksum is not None and batch.checksums and batch.start < known.high < batch.end:
        overlap = (known.high, known.checksum)
    return Decision(knowledge, ranges, holes, cut_bytes, is_unknown_chain, known=overlap)


def _new(batch: Batch, is_midway: bool) -> Known:
    if batch.begins:
        # What lies before was left out on purpose, and its checksum begins here.
        return Known(batch.generation, batch.start, (), checksum.NOTHING, batch.start)
    if is_midway:
        return Known(batch.generation, batch.start, begun=batch.start)
    return Known(batch.generation, 0, (), checksum.NOTHING)


def _is_misfit(known: Known, batch: Batch) -> bool:
    if known.checksum is None or batch.checksums is None or batch.start != known.high:
        return False
    return batch.checksums.before != known.checksum


def _take(known: Known, start: int, end: int) -> tuple[Known, tuple[Range, ...]]:
    if start == known.high:
        return known._replace(high=end), (Range(start, end, False),)
    span = (start, end)
    ranges = [Range(*part, is_late=True) for part in inside(span, known.holes)]
    holes = [part for hole in known.holes for part in outside(hole, [span])]
    if end > known.high:
        if start > known.high:
            holes.append((known.high, start))
        ranges.append(Range(max(start, known.high), end, is_late=False))
    return known._replace(high=max(end, known.high), holes=tuple(holes)), tuple(ranges)


def _found(losses: tuple[Loss, ...], batch: Batch) -> tuple[tuple[Range, ...], tuple[Loss, ...]]:
    """Return the bytes of *batch* that had been named as lost, and what stays lost."""
    if batch.lost or not losses:
        return (), losses
    span = (batch.start, batch.end)
    mine: list[Span] = []
    kept: list[Loss] = []
    for loss in losses:
        if loss.generation != batch.generation:
            kept.append(loss)
            continue
        mine.append((loss.start, loss.end))
        parts = outside((loss.start, loss.end), [span])
        kept += [loss._replace(start=start, end=end) for start, end in parts]
    found = tuple(Range(*part, is_late=True) for part in inside(span, mine))
    return found, tuple(kept[-LOSSES_MAX:])


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
    """Return what is known of the newest generation of *source*, with the holes of all, as it is
    told to shippers.
    """
    holes = tuple((g.name, start, end) for g in knowledge.generations for start, end in g.holes)
    return _told(source, knowledge.generations[-1], holes)


def all_committed_of(source: str, knowledge: Knowledge) -> list[Committed]:
    """Return what is known of each generation of *source* that may still be on disk, oldest
    first.
    """
    return [
        _told(source, known, tuple((known.name, start, end) for start, end in known.holes))
        for known in knowledge.generations[-GENERATIONS_TOLD_MAX:]
    ]


def _told(source: str, known: Known, holes: tuple[tuple[str, int, int], ...]) -> Committed:
    return Committed(source, known.name, known.high, holes, known.begun, known.checksum)


def encode(knowledge: Knowledge) -> dict[str, object]:
    """Return *knowledge* as JSON values."""
    generations = [
        [known.name, known.high, known.holes, _sum(known.checksum), known.begun]
        for known in knowledge.generations
    ]
    return {
        "generations": generations,
        "given_up": knowledge.given_up,
        "archived": knowledge.archived,
        "lost": knowledge.lost,
        "losses": knowledge.losses,
    }


def decode(value: object) -> Knowledge:
    """Return what `encode` made, now or in a former version.

    Raises:
        ValueError, TypeError, KeyError: it is nothing of the kind.
    """
    if isinstance(value, list):
        # Before there were checksums and losses.
        given_up, generations = value
        return Knowledge(tuple(map(_known, generations)), int(given_up))
    if not isinstance(value, dict):
        raise ValueError("no knowledge of a source")
    return Knowledge(
        tuple(map(_known, value["generations"])),
        int(value["given_up"]),
        int(value["archived"]),
        int(value["lost"]),
        tuple(
            Loss(str(name), int(start), int(end), str(cause), int(time_ns))
            for name, start, end, cause, time_ns in value["losses"]
        ),
    )


def _known(row: Sequence[Any]) -> Known:
    name, high, holes, *rest = row
    told, begun = rest or (None, 0)
    return Known(
        str(name),
        int(high),
        tuple((int(start), int(end)) for start, end in holes),
        None if told is None else checksum.decode(told),
        int(begun),
    )


def _sum(value: Checksum | None) -> str | None:
    return None if value is None else checksum.encode(value)
