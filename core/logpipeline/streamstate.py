"""Check of a stream position: is the stream still the one that it was read from? A server that lost
its tail uses sequence numbers again, so a sequence that exists proves nothing; the server's time of
the message there does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from logpipeline.nats.jetstream import JetStream, time_ns_of


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream as the server describes it: *first* and *last* are sequences, *max_age_s* is how
    long it keeps a message, 0 for ever, *subjects* the filters of what it stores, none where that
    is not known. *removed* is how many messages behind the first are gone.
    """

    created: str
    first: int
    last: int
    max_age_s: float = 0.0
    messages: int = 0
    bytes: int = 0
    last_time_ns: int = 0
    subjects: tuple[str, ...] = ()
    removed: int = 0

    @property
    def message_bytes(self) -> int:
        """The average size of a message, at least one byte."""
        return max(self.bytes // self.messages, 1) if self.messages else 1


class Verdict(Enum):
    """The result of the check of a position."""

    GOOD = "good"
    PURGED = "purged"
    ROLLED_BACK = "rolled back"
    RECREATED = "recreated"


class Position(Protocol):
    """A place in a stream: the stream's creation, a sequence, and the server's time of the message
    there, 0 where it is not known.
    """

    @property
    def created(self) -> str: ...
    @property
    def sequence(self) -> int: ...
    @property
    def time_ns(self) -> int: ...


def judge(
    position: Position,
    stream: StreamState,
    found_time_ns: int | None,
    *,
    needs_all: bool = False,
) -> Verdict:
    """Return what *stream*, and the time of the message that now stands at the position's sequence
    (None: no message), say about *position*. Only a reader that *needs_all* messages behind it
    gets `PURGED` where some are gone; others find the gap themselves.
    """
    if position.created and position.created != stream.created:
        return Verdict.RECREATED
    if stream.last < position.sequence:
        return Verdict.ROLLED_BACK
    # A message that expired, or was removed, can no longer be compared.
    is_other = found_time_ns is not None and found_time_ns != position.time_ns
    if position.sequence and position.time_ns and is_other:
        return Verdict.ROLLED_BACK
    # The first of an empty stream is the one behind its last.
    is_purged = needs_all and stream.first > position.sequence + 1
    return Verdict.PURGED if is_purged else Verdict.GOOD


def state_of(info: dict[str, Any]) -> StreamState:
    """Return the state that JetStream's answer to STREAM.INFO describes."""
    state, config = info["state"], info["config"]
    last = int(state["last_seq"])
    # What comes from another stream, or is renamed, is stored under subjects that stand elsewhere.
    is_own = not any(config.get(name) for name in ("mirror", "sources", "subject_transform"))
    return StreamState(
        str(info["created"]),
        int(state["first_seq"]),
        last,
        max_age_s=int(config.get("max_age", 0)) / 1e9,
        messages=int(state["messages"]),
        bytes=int(state["bytes"]),
        last_time_ns=time_ns_of(state["last_ts"]) if last else 0,
        subjects=tuple(config.get("subjects") or ()) if is_own else (),
        removed=int(state.get("num_deleted", 0)),
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
