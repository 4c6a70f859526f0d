"""Whether a stream is still the one that a position was read from. A server that lost its tail
uses sequence numbers again, so a sequence that exists proves nothing: the server's time of the
message at it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from logpipeline.nats.jetstream import JetStream
from logpipeline.records import StreamPosition


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream as the server describes it: *first* and *last* are sequences, *max_age_s* is how
    long it keeps a message, 0 for ever.
    """

    created: str
    first: int
    last: int
    max_age_s: float = 0.0


class Verdict(Enum):
    """What became of a position."""

    GOOD = "good"
    ROLLED_BACK = "rolled back"
    RECREATED = "recreated"


def judge(position: StreamPosition, stream: StreamState, found_time_ns: int | None) -> Verdict:
    """Return what *stream*, and the time of the message that now stands at the position's sequence
    (None: no message), say about *position*.
    """
    if position.created and position.created != stream.created:
        return Verdict.RECREATED
    if position.sequence == 0:
        return Verdict.GOOD
    if stream.last < position.sequence:
        return Verdict.ROLLED_BACK
    # A message that expired, or was removed, can no longer be compared.
    if found_time_ns is None or found_time_ns == position.time_ns:
        return Verdict.GOOD
    return Verdict.ROLLED_BACK


def state_of(info: dict[str, Any]) -> StreamState:
    """Return what JetStream's answer to STREAM.INFO says about the stream."""
    state = info["state"]
    return StreamState(
        str(info["created"]),
        int(state["first_seq"]),
        int(state["last_seq"]),
        int(info["config"].get("max_age", 0)) / 1e9,
    )


async def time_at(js: JetStream, name: str, stream: StreamState, sequence: int) -> int | None:
    """Return the server's time of the message at *sequence*, or None where there is none (any
    more).
    """
    # A stream that never had a message names 0 as its first.
    if not max(stream.first, 1) <= sequence <= stream.last:
        return None
    stored = await js.message(name, sequence)
    return None if stored is None else stored.time_ns
