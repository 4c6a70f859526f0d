"""What is kept of one source beside its files: what was sent, and what collectors confirmed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from logpipeline_shipper.files.chunks import Chunk
from logpipeline_shipper.healing import GENERATIONS_MAX, GROUPS_MAX, Hole, is_before, least
from logpipeline_shipper.intents import Intent
from logpipeline_shipper.positions import Position, SourceRecord


@dataclass(slots=True)
class Standing:
    """See `SourceRecord`; *in_flight* are the messages of the chunk that is being sent.

    *has_holes* is a collector's last word, of *told_s* on the loop's clock.
    """

    first: Position | None
    generations: list[str]
    committed: dict[str, Position]
    unasked: tuple[Position, Position] | None = None
    in_flight: dict[Intent, None] = field(default_factory=dict)  # a set in order
    has_holes: bool = False
    told_s: float = 0.0

    @staticmethod
    def of(record: SourceRecord) -> Standing:
        """Return what was saved; what was in flight then is the past's."""
        return Standing(
            record.first, list(record.generations), dict(record.committed), record.unasked
        )

    def record(self, saved: dict[str, Any] | None) -> SourceRecord:
        """Return what is to be saved, with the chain's own state."""
        return SourceRecord(
            saved=saved,
            intents=tuple(self.in_flight),
            first=self.first,
            generations=tuple(self.generations),
            committed=dict(self.committed),
            unasked=self.unasked,
        )

    def begin(self, generation: str, start: int) -> None:
        """Note that the bytes from *start* of *generation* are about to be sent."""
        if self.first is None:
            self.first = (generation, start)
        if generation not in self.generations:
            self.generations.append(generation)
            del self.generations[:-GENERATIONS_MAX]

    def pass_over(self, chunk: Chunk) -> None:
        """Note that nobody answers for the bytes of *chunk*, which were just sent."""
        here, end = (chunk.generation, chunk.start), (chunk.generation, chunk.end)
        start = here
        if self.unasked is not None and self._adjoins(self.unasked[1], here):
            start = self.unasked[0]
            if start[0] not in self.generations:
                start = (self.generations[0], 0)
        self.unasked = (start, end)

    def _adjoins(self, position: Position, next_one: Position) -> bool:
        if position[0] == next_one[0]:
            return position[1] == next_one[1]
        return next_one[1] == 0 and is_before(position, next_one, self.generations)

    def covers(self, hole: Hole) -> bool:
        """Return whether nobody answers for any byte of *hole*."""
        generation, start, end = hole
        if self.unasked is None:
            return False
        first, last = self.unasked
        begins_before = is_before((generation, start), first, self.generations)
        return not begins_before and not is_before(last, (generation, end), self.generations)

    def is_waived(self, position: Position) -> bool:
        """Return whether nobody answers for anything that is not confirmed of the bytes up to
        *position*.
        """
        return self.unasked is not None and self.unconfirmed(position) is None

    def unconfirmed(self, frontier: Position) -> Position | None:
        """Return where what was sent up to *frontier* is to be sent from again after a loss: as far
        as every group has confirmed, else from the first byte; None if nothing is. Bytes for
        which nobody answers are passed over where they come first.
        """
        start = least(self.committed, self.generations) or self.first
        if start is not None and self.unasked is not None:
            first, last = self.unasked
            if not is_before(start, first, self.generations) and is_before(
                start, last, self.generations
            ):
                start = last
        if start is None or not is_before(start, frontier, self.generations):
            return None
        return start

    def is_settled(self, position: Position) -> bool:
        """Return whether all up to *position* is archived, as far as was told."""
        archived = least(self.committed, self.generations)
        return archived == position and not self.has_holes

    def confirm(self, group: str, position: Position) -> None:
        """Take a group's word in; more groups than there may be are a stranger's."""
        if group in self.committed or len(self.committed) < GROUPS_MAX:
            self.committed[group] = position
