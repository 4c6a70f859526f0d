"""When acknowledged bytes are sent again, and from where. Decisions only: no clock, no connection.

A server may lose what it acknowledged. Evidence of that is needed, never mere lag: the last message
of our own subject is not the one that was acknowledged, sequences go back, a collector names a hole
or counts a roll-back more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from enum import Enum

from logpipeline import wire
from logpipeline.nats.jetstream import StoredMessage
from logpipeline_shipper.intents import Key
from logpipeline_shipper.positions import LastAck, Position

# A hole is filled again only when a collector had the time to read what filled it.
HOLE_INTERVAL_S = 30.0
HOLE_TRIES_MAX = 5
HOLES_TRACKED_MAX = 10_000
# An empty subject after this is taken for the stream's retention, not for loss.
EMPTY_SUBJECT_IS_LOSS_S = 3600.0
# Groups of collectors of one pipeline; more are a stranger's.
GROUPS_MAX = 16
GENERATIONS_MAX = 32

Hole = tuple[str, int, int]


def is_lost(last: LastAck, found: StoredMessage | None, now_s: float) -> bool:
    """Return whether *found*, the last message of a subject now, proves that *last* is gone.

    A later message of our own is none: it is one whose acknowledgement did not reach us.
    """
    if found is None:
        return now_s - last.time_s < EMPTY_SUBJECT_IS_LOSS_S
    if found.sequence != last.sequence:
        return found.sequence < last.sequence
    return _identifier(found) != last.identifier


def least(committed: Mapping[str, Position], generations: Sequence[str]) -> Position | None:
    """Return the position that every group has archived, or None where none has said anything.

    *generations* are those that were sent, oldest first; one that is not among them is older.
    """
    order = {name: index for index, name in enumerate(generations)}
    return min(
        committed.values(),
        key=lambda position: (order.get(position[0], -1), position[1]),
        default=None,
    )


def is_before(position: Position, frontier: Position, generations: Sequence[str]) -> bool:
    """Return whether *position* comes before *frontier* in the order of *generations*."""
    if position[0] == frontier[0]:
        return position[1] < frontier[1]
    order = {name: index for index, name in enumerate(generations)}
    return order.get(position[0], -1) < order.get(frontier[0], len(order))


class Due(Enum):
    """What to do about a hole that a collector names."""

    NOW = "now"
    LATER = "later"
    NEVER = "never"


class HoleTries:
    """How often each hole was filled: not too often, and not for ever."""

    def __init__(self) -> None:
        self._tries: OrderedDict[tuple[Key, Hole], tuple[int, float]] = OrderedDict()

    def due(self, key: Key, hole: Hole, now_s: float) -> Due:
        """Return what to do about *hole*; `Due.NOW` counts as a try, `Due.NEVER` comes once."""
        tries, last_s = self._tries.pop((key, hole), (0, -HOLE_INTERVAL_S))
        is_early = now_s - last_s < HOLE_INTERVAL_S
        if tries > HOLE_TRIES_MAX or (tries and is_early):
            self._tries[key, hole] = (tries, last_s)
            return Due.LATER
        self._tries[key, hole] = (tries + 1, now_s)
        if len(self._tries) > HOLES_TRACKED_MAX:
            self._tries.popitem(last=False)
        return Due.NEVER if tries == HOLE_TRIES_MAX else Due.NOW


class Rollbacks:
    """The count of roll-backs of each partition, as each group of collectors tells it."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = dict(counts)

    def rose(self, group: str, partition: int, count: int) -> bool:
        """Return whether *count* is more than what was heard before; the first word is none."""
        name = f"{partition}/{group}"
        known = self.counts.get(name)
        if known is None and len(self.counts) >= GROUPS_MAX * 1024:
            return False
        self.counts[name] = max(count, known or 0)
        return known is not None and count > known


def _identifier(found: StoredMessage) -> str:
    try:
        return wire.parse_headers(found.headers).get(wire.MESSAGE_ID, "")
    except wire.BadMessage:
        return ""
