"""Deduplication: finds the bytes of a batch that are not written yet.

Pure: the same batches lead to the same state, whether their bytes were written or only their
headers read.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple

from logpipeline import checksum
from logpipeline.extents import (
    HOLES_MAX,
    Extent,
    GenerationState,
    Repeat,
    Sums,
    lose,
    missing_bytes,
    take,
)
from logpipeline.records import Committed
from logpipeline.spans import Span, inside, outside
from logpipeline.wire import Batch

# kubelet keeps five generations, logrotate some weeks of them; the oldest are forgotten first.
GENERATIONS_MAX = 256
# Sums of bytes go no further. A node may name any bytes as lost, and what a sum has to fit into is
# read by others: JSON of ours holds 64 bits, columns and metrics have a sign beside 63.
COUNT_MAX = 2**63 - 1
# Losses of a source that are listed; the oldest further ones are only counted.
LOSSES_MAX = 64


def counted(total: int) -> int:
    """Return *total*, a sum of bytes that others named, within the limits of such a sum."""
    return max(0, min(total, COUNT_MAX))


class Loss(NamedTuple):
    """Bytes that a shipper named as lost, and why; *time_ns* is when it did."""

    generation: str
    start: int
    end: int
    cause: str
    time_ns: int


class SourceState(NamedTuple):
    """The written ranges of one source; the generation that was seen last stands last.

    *written* and *lost* are bytes, since the source was first seen: of what is written, and of
    what a shipper named as lost. *losses* lists the latest of the latter; these may still be found
    and written. *given_up* is the bytes of holes that are no longer listed, and cannot be filled
    any more.
    """

    generations: tuple[GenerationState, ...] = ()
    given_up: int = 0
    written: int = 0
    lost: int = 0
    losses: tuple[Loss, ...] = ()

    @property
    def missing(self) -> int:
        """Bytes of all holes."""
        holes = sum(known.missing for known in self.generations if not known.is_whole)
        return counted(self.given_up + holes)

    def find(self, name: str) -> int | None:
        """Return the place of the generation *name*."""
        for place in range(len(self.generations) - 1, -1, -1):
            if self.generations[place].name == name:
                return place
        return None

    def with_known(self, place: int | None, known: GenerationState) -> SourceState:
        """Return this with *known* at *place*, None for a new one; limits are kept, and what they
        cost is counted.
        """
        given_up, generations = self.given_up, self.generations
        while len(known.extents) > HOLES_MAX + 1 and not known.is_chained:
            first, second, *rest = known.extents
            given_up += missing_bytes((first.end, second.start))
            known = known._replace(extents=(Extent(first.start, second.end), *rest))
        if place is not None:
            former = generations[place]
            if known.high > former.high and place < len(generations) - 1:
                # The one that grows stands last, whatever others were named meanwhile.
                generations = (*generations[:place], *generations[place + 1 :], known)
            else:
                generations = (*generations[:place], known, *generations[place + 1 :])
        else:
            if len(generations) >= GENERATIONS_MAX:
                given_up += generations[0].missing
                generations = generations[1:]
            generations = (*generations, known)
        return self._replace(generations=generations, given_up=counted(given_up))

    def without_oldest(self, left: int) -> SourceState:
        """Return this with the *left* newest generations only; holes of the others are counted."""
        given_up = self.given_up + sum(known.missing for known in self.generations[:-left])
        return self._replace(generations=self.generations[-left:], given_up=counted(given_up))


class Range(NamedTuple):
    """Bytes of a batch that are to be written; *is_late* where later bytes already were."""

    start: int
    end: int
    is_late: bool


class Decision(NamedTuple):
    """The decision about one batch. *after* is the state once the bytes of *ranges* are
    written, *holes* are the ranges that the batch shows to be missing.

    *is_misfit* says that the batch does not continue what is known of its generation: it is forged,
    garbled, or of another file; nothing may be concluded from it. *contradicted* is bytes that are
    written in one place twice, since one of two batches that both continue the file is forged.
    """

    after: SourceState
    ranges: tuple[Range, ...]
    holes: tuple[tuple[str, int, int], ...] = ()
    cut_bytes: int = 0
    is_unknown_chain: bool = False
    is_misfit: bool = False
    contradicted: int = 0


NOTHING = SourceState()


def decide(
    before: SourceState,
    batch: Batch,
    *,
    is_from_midway: bool = False,
    repeat: Repeat | None = None,
    sums: Sums | None = None,
) -> Decision:
    """Return which bytes of *batch* are new, and what is known when they are written. A batch that
    names a loss has no bytes to be written.

    *is_from_midway* says that the reader left out on purpose what the stream held before it began:
    a source of which nothing is known begins where it is first seen. *repeat* is what the batch
    says of itself, unless it is given. Without *sums*, the batch's bytes are believed.
    """
    if repeat is None:
        repeat = Repeat.MARKED if batch.resend else Repeat.NEVER
    state, is_unknown_chain = _with_previous(before, batch)
    place = state.find(batch.generation)
    is_midway = is_from_midway and not before.generations
    known = state.generations[place] if place is not None else GenerationState(batch.generation)
    known = _begun(known, batch, is_midway=is_midway)
    if batch.lost:
        after, named = lose(known, (batch.start, batch.end))
        state = _with_losses(state.with_known(place, after), batch, named)
        return Decision(state, (), is_unknown_chain=is_unknown_chain)
    taken = take(known, batch, repeat=repeat, sums=sums, is_midway=is_midway)
    if taken is None:
        return Decision(before, (), is_misfit=True)
    found, losses = 0, state.losses
    if known.lost:
        found, losses = _found(known, losses, taken.new)
    holes = () if state is before else _new_holes(before, state)
    if batch.start > known.high and taken.new:
        holes = (*holes, (batch.generation, known.high, batch.start))
    ranges = _ranges(taken.new, known.high)
    fresh = sum(part.end - part.start for part in ranges)
    state = state.with_known(place, taken.known)._replace(
        written=counted(state.written + fresh), lost=counted(state.lost - found), losses=losses
    )
    cut_bytes = batch.end - batch.start - fresh if ranges else 0
    return Decision(
        state, ranges, holes, cut_bytes, is_unknown_chain, contradicted=taken.contradicted
    )


def _begun(known: GenerationState, batch: Batch, *, is_midway: bool) -> GenerationState:
    """Return *known* with what *batch* says of where shipping of it began."""
    if is_midway and not batch.lost:
        return known._replace(begun=batch.start)
    if not batch.begins or known.begun or any(s.start < batch.start for s in known.extents):
        return known
    if batch.checksums is not None and batch.checksums.before != checksum.NOTHING:
        return known
    # What lies before was left out on purpose. It may come late, behind what follows it.
    return known._replace(begun=batch.start)


def _ranges(new: Iterable[Span], high: int) -> tuple[Range, ...]:
    """Return the ranges to be written, cut where late bytes end."""
    cut = [
        part
        for start, end in new
        for part in ((start, min(end, high)), (max(start, high), end))
        if part[0] < part[1]
    ]
    return tuple(Range(*part, is_late=part[0] < high) for part in cut)


def _with_losses(state: SourceState, batch: Batch, named: Iterable[Span]) -> SourceState:
    losses = [Loss(batch.generation, *span, batch.lost, batch.first_time_ns) for span in named]
    return state._replace(
        lost=counted(state.lost + sum(loss.end - loss.start for loss in losses)),
        losses=(*state.losses, *losses)[-LOSSES_MAX:],
    )


def _found(
    known: GenerationState, losses: tuple[Loss, ...], new: Sequence[Span]
) -> tuple[int, tuple[Loss, ...]]:
    """Return how many of the *new* bytes had been named as lost, and what stays lost."""
    found = sum(end - start for span in new for start, end in inside(span, known.lost))
    if not found:
        return 0, losses
    kept: list[Loss] = []
    for loss in losses:
        if loss.generation != known.name:
            kept.append(loss)
            continue
        parts = outside((loss.start, loss.end), new)
        kept += [loss._replace(start=start, end=end) for start, end in parts]
    return found, tuple(kept[-LOSSES_MAX:])


def _with_previous(before: SourceState, batch: Batch) -> tuple[SourceState, bool]:
    """Note what *batch* says about the generation before its own."""
    previous = batch.previous
    # A shipper without checksums keeps no account: what its predecessor lacks is missing. Where
    # there are some, losses are named, and another sender's word is not believed.
    if previous is None or batch.checksums is not None or not before.generations:
        return before, False
    if any(known.is_chained for known in before.generations):
        return before, False
    place = before.find(previous.generation)
    if place is None:
        if before.find(batch.generation) is not None:
            return before, False
        # Nothing of it ever came: all of it is missing, and may still come late.
        return before.with_known(
            None, GenerationState(previous.generation, claimed=previous.length or 0)
        ), True
    known = before.generations[place]
    if previous.length is None or previous.length <= known.high:
        return before, False
    return before.with_known(place, known._replace(claimed=previous.length)), False


def _new_holes(before: SourceState, after: SourceState) -> tuple[tuple[str, int, int], ...]:
    known = {(g.name, *hole) for g in before.generations for hole in g.holes}
    found = [(g.name, *hole) for g in after.generations for hole in g.holes]
    return tuple(hole for hole in found if hole not in known)


def committed_of(source: str, state: SourceState) -> Committed:
    """Return the state of the newest generation of *source*, with the holes of all, as it is
    reported to shippers.
    """
    holes = tuple((g.name, start, end) for g in state.generations for start, end in g.holes)
    return _committed(source, state.generations[-1], holes)


def all_committed_of(
    source: str, state: SourceState, only: Container[str] | None = None
) -> list[Committed]:
    """Return the state of each generation of *source*, or of those among *only*, oldest
    first.
    """
    return [
        _committed(source, known, tuple((known.name, start, end) for start, end in known.holes))
        for known in state.generations
        if only is None or known.name in only
    ]


def _committed(
    source: str, known: GenerationState, holes: tuple[tuple[str, int, int], ...]
) -> Committed:
    return Committed(source, known.name, known.high, holes, known.begun, known.checksum)


def encode(state: SourceState) -> dict[str, object]:
    """Return *state* as JSON values."""
    return {
        "strands": [
            [
                known.name,
                known.begun,
                _rows(known.extents),
                _rows(known.asides),
                known.lost,
                known.claimed,
            ]
            for known in state.generations
        ],
        "given_up": state.given_up,
        "written": state.written,
        "lost": state.lost,
        "losses": state.losses,
    }


def decode(value: object) -> SourceState:
    """Return the state that `encode` made, now or in a former version.

    Raises:
        ValueError, TypeError, KeyError: *value* is something else.
    """
    if isinstance(value, list):
        # Before there were checksums and losses.
        given_up, generations = value
        return SourceState(tuple(map(_former, generations)), int(given_up))
    if not isinstance(value, dict):
        raise ValueError("not the state of a source")
    generations = (
        map(_known, value["strands"]) if "strands" in value else map(_former, value["generations"])
    )
    return SourceState(
        tuple(generations),
        int(value["given_up"]),
        int(value["written"]),
        int(value["lost"]),
        tuple(
            Loss(str(name), int(start), int(end), str(cause), int(time_ns))
            for name, start, end, cause, time_ns in value["losses"]
        ),
    )


def _rows(extents: Iterable[Extent]) -> list[list[object]]:
    return [
        [
            extent.start,
            extent.end,
            None if extent.before is None else checksum.encode(extent.before),
            [[offset, checksum.encode(at)] for offset, at in extent.marks],
        ]
        for extent in extents
    ]


def _known(row: Sequence[Any]) -> GenerationState:
    name, begun, extents, asides, lost, claimed = row
    return GenerationState(
        str(name),
        int(begun),
        tuple(map(_extent, extents)),
        tuple((int(start), int(end)) for start, end in lost),
        int(claimed),
        tuple(map(_extent, asides)),
    )


def _extent(row: Sequence[Any]) -> Extent:
    start, end, before, marks = row
    return Extent(
        int(start),
        int(end),
        None if before is None else checksum.decode(before),
        tuple((int(offset), checksum.decode(at)) for offset, at in marks),
    )


def _former(row: Sequence[Any]) -> GenerationState:
    """Return a generation's state from a former version's row, which has one checksum at most."""
    name, high, holes, *rest = row
    at_end, begun = rest or (None, 0)
    spans = outside((int(begun), int(high)), [(int(start), int(end)) for start, end in holes])
    extents = [Extent(*span) for span in spans]
    if at_end is not None and extents and extents[-1].end == int(high):
        extents[-1] = extents[-1]._replace(marks=((int(high), checksum.decode(at_end)),))
    return GenerationState(str(name), int(begun), tuple(extents), claimed=int(high))
