"""What is kept of a file and of a commit: the values that the state stores and everybody else in
here speaks of.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, NamedTuple

from logpipeline.records import Reached, StreamPosition
from logpipeline_collector.archive.render import Tail

SourceName = tuple[str, str]


class Stage(Enum):
    """Where a file is in its life."""

    NEW = "new"  # announced; what stands at its path may be ours, and is not committed
    ACTIVE = "active"
    ROTATED = "rotated"
    PACKED = "packed"  # rotated and compressed
    GONE = "gone"  # to be removed


class FileRow(NamedTuple):
    """A file as committed: its first *length* bytes, uncompressed.

    *place* is what its path would be if nothing else stood there. *moving_to* and *packing_to*
    announce a rename and a compression that were begun. *size* is what a packed file takes.
    """

    path: str
    place: str
    host: str
    stage: Stage
    begun_ns: int
    length: int
    tail: Tail | None = None
    rotated_ns: int = 0
    size: int = 0
    moving_to: str = ""
    packing_to: str = ""

    def encode(self) -> str:
        """Return the row as JSON."""
        # A tuple is a list in JSON; the stage's value replaces it in its place.
        return json.dumps((*self[:3], self.stage.value, *self[4:]), separators=(",", ":"))

    @staticmethod
    def decode(text: str) -> FileRow:
        """Return what `encode` made.

        Raises:
            ValueError, TypeError: it is nothing of the kind.
        """
        path, place, host, stage, begun_ns, length, tail, *rest = json.loads(text)
        kept = Tail(*tail) if tail is not None else None
        return FileRow(path, place, host, Stage(stage), begun_ns, length, kept, *rest)


class Rotations(NamedTuple):
    """The next number of a place's rotated files, and the time in the name of the last one: names
    must sort in the order of rotation, even when the clock goes back.
    """

    number: int
    stamp_s: int


class LocalCommit(NamedTuple):
    """The last commit of a folder; *previous* (epoch, and how far it was read) is what would be the
    last without it, None where it cannot be taken back.
    """

    number: int
    epoch: int
    position: StreamPosition
    rollbacks: int
    previous: tuple[int, Reached] | None

    @property
    def reached(self) -> Reached:
        """How far the stream was read."""
        return Reached(self.position, self.rollbacks)

    def encode(self) -> str:
        """Return the commit as JSON."""
        previous: tuple[Any, ...] | None = None
        if self.previous is not None:
            epoch, before = self.previous
            # Older programs read the first two.
            previous = (epoch, _list(before.position), before.rollbacks)
        return json.dumps((self.number, self.epoch, _list(self.position), self.rollbacks, previous))

    @staticmethod
    def decode(text: str) -> LocalCommit:
        """Return what `encode` made.

        Raises:
            ValueError, TypeError: it is nothing of the kind.
        """
        number, epoch, position, rollbacks, previous = json.loads(text)
        before = None
        if previous is not None:
            epoch_before, position_before, *told = previous
            rollbacks_before = told[0] if told else None
            before = (
                int(epoch_before),
                Reached(StreamPosition(*position_before), rollbacks_before),
            )
        return LocalCommit(number, epoch, StreamPosition(*position), rollbacks, before)


def _list(position: StreamPosition) -> tuple[str, int, int]:
    return position.created, position.sequence, position.time_ns
