"""A sparse memory of what was read from a stream: where a server lost its tail, it tells how far
the stream is still the one that we know.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from logpipeline.records import StreamPosition
from logpipeline.statefile import StateBroken, read_state, write_state

log = logging.getLogger(__name__)

KIND = "collector-marks"
VERSION = 1

# Dense at the newest end, and ever thinner towards the oldest: a short loss costs a short second
# reading, and a long one is still found without beginning at the start.
MARKS_MAX = 64


class Marks:
    """Positions in one stream, rising, at most `MARKS_MAX`."""

    def __init__(self, positions: Iterator[StreamPosition] | None = None) -> None:
        self._positions: list[StreamPosition] = []
        for position in positions or ():
            self.add(position)

    def __len__(self) -> int:
        return len(self._positions)

    def add(self, position: StreamPosition) -> None:
        """Remember *position*; what lies at or beyond it, or in another stream, is forgotten."""
        if position.sequence == 0:
            self._positions.clear()
            return
        while self._positions and not self._leads_to(position):
            self._positions.pop()
        self._positions.append(position)
        if len(self._positions) > MARKS_MAX:
            del self._positions[self._most_dispensable()]

    def newest_first(self) -> list[StreamPosition]:
        """Return the positions, the highest sequence first."""
        return self._positions[::-1]

    def encode(self) -> dict[str, Any]:
        """Return the marks as JSON."""
        created = self._positions[-1].created if self._positions else ""
        return {"created": created, "marks": [[p.sequence, p.time_ns] for p in self._positions]}

    @staticmethod
    def decode(data: Any) -> Marks:
        """Return the marks that `encode` wrote.

        Raises:
            ValueError: these are none.
        """
        try:
            created = str(data["created"])
            rows = data["marks"][-MARKS_MAX:]
            return Marks(StreamPosition(created, int(at), int(time)) for at, time in rows)
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"no marks: {str(data)[:80]}") from error

    def _leads_to(self, position: StreamPosition) -> bool:
        last = self._positions[-1]
        return last.created == position.created and last.sequence < position.sequence

    def _most_dispensable(self) -> int:
        # The one whose loss widens a gap least, seen from the newest end.
        sequences = [position.sequence for position in self._positions]
        newest = sequences[-1]

        def widened(at: int) -> float:
            return (sequences[at + 1] - sequences[at - 1]) / (newest - sequences[at - 1])

        return min(range(1, len(sequences) - 1), key=widened)


def load_marks(path: Path) -> Marks:
    """Return the marks kept at *path*; without them a roll-back costs a longer second reading."""
    try:
        data = read_state(path, KIND, VERSION)
        return Marks.decode(data) if data is not None else Marks()
    except (StateBroken, ValueError) as error:
        log.warning("marks cannot be read", extra={"path": str(path), "reason": str(error)})
        return Marks()


def save_marks(path: Path, data: dict[str, Any]) -> None:
    """Keep encoded marks at *path*.

    Raises:
        OSError: they could not be written; the old ones stay.
    """
    write_state(path, KIND, VERSION, data)
