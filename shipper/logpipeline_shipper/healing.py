"""What proves that a server lost what it had acknowledged, and how often a gap is filled. Decisions
only: no clock, no connection.

Evidence is needed, never mere lag: the last message of our own subject is not the one that was
acknowledged, sequences go back, a collector counts a roll-back more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from enum import Enum

from logpipeline import wire
from logpipeline.nats.jetstream import StoredMessage
from logpipeline_shipper.account import GROUPS_MAX, Gap
from logpipeline_shipper.intents import Key
from logpipeline_shipper.positions import LastAck

# A gap is filled again only when a collector had the time to read what filled it.
TRY_INTERVAL_S = 30.0
TRIES_MAX = 5
TRACKED_MAX = 10_000
# An empty subject after this is taken for the stream's retention, not for loss.
EMPTY_SUBJECT_IS_LOSS_S = 3600.0


def is_lost(last: LastAck, found: StoredMessage | None, now_s: float) -> bool:
    """Return whether *found*, the last message of a subject now, proves that *last* is gone.

    A later message of our own is none: it is one whose acknowledgement did not reach us.
    """
    if found is None:
        return now_s - last.time_s < EMPTY_SUBJECT_IS_LOSS_S
    if found.sequence != last.sequence:
        return found.sequence < last.sequence
    return _identifier(found) != last.identifier


class Due(Enum):
    """What to do about bytes that a collector lacks."""

    NOW = "now"
    LATER = "later"
    NEVER = "never"


class Tries:
    """How often each gap was filled: not too often, and not for ever."""

    def __init__(self) -> None:
        self._tries: OrderedDict[tuple[Key, str, int, int], tuple[int, float]] = OrderedDict()

    def due(self, key: Key, gap: Gap, now_s: float) -> Due:
        """Return what to do about *gap*; `Due.NOW` counts as a try, `Due.NEVER` comes once."""
        name = (key, gap.generation, gap.start, gap.end)
        tries, last_s = self._tries.pop(name, (0, -TRY_INTERVAL_S))
        is_early = now_s - last_s < TRY_INTERVAL_S
        if tries > TRIES_MAX or (tries and is_early):
            self._tries[name] = (tries, last_s)
            return Due.LATER
        self._tries[name] = (tries + 1, now_s)
        if len(self._tries) > TRACKED_MAX:
            self._tries.popitem(last=False)
        return Due.NEVER if tries == TRIES_MAX else Due.NOW


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
