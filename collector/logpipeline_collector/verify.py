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
from logpipeline_collector.marks import Marks


class StreamMissing(Exception):
    """There is no such stream."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"stream {stream} does not exist; run `logpipeline apply` to create it")


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream as the server describes it: *first* and *last* are sequences."""

    created: str
    first: int
    last: int


class Verdict(Enum):
    """What became of a position."""

    GOOD = "good"
    ROLLED_BACK = "rolled back"
    RECREATED = "recreated"


@dataclass(frozen=True, slots=True)
class Verified:
    """Where to read on, and what had been read beyond it when the stream still was another one.

    Messages up to *known_until_ns* were read before: those without a range of their own must be
    skipped, and nothing is committed before *settled_at* is passed, so that a crash repeats it all.
    """

    verdict: Verdict
    position: StreamPosition
    stream: StreamState
    known_until_ns: int = 0
    settled_at: int = 0


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
    return StreamState(str(info["created"]), int(state["first_seq"]), int(state["last_seq"]))


async def verify(js: JetStream, name: str, position: StreamPosition, marks: Marks) -> Verified:
    """Return where to read on in the stream *name*, after reading up to *position*.

    Raises:
        StreamMissing: the stream is not there.
        NotSent, OutcomeUnknown, ApiError: the server could not be asked.
    """
    info = await js.stream_info(name)
    if info is None:
        raise StreamMissing(name)
    stream = state_of(info)
    found = await _time_at(js, name, stream, position.sequence)
    verdict = judge(position, stream, found)
    if verdict is Verdict.GOOD:
        known = StreamPosition(stream.created, position.sequence, position.time_ns)
        return Verified(verdict, known, stream)
    prefix = await _common_prefix(js, name, stream, marks)
    return Verified(verdict, prefix, stream, position.time_ns, stream.last)


async def _common_prefix(
    js: JetStream, name: str, stream: StreamState, marks: Marks
) -> StreamPosition:
    for mark in marks.newest_first():
        if mark.created != stream.created or mark.sequence > stream.last:
            continue
        # Below the first message nothing can be compared any more, nor read again.
        is_gone = mark.sequence < stream.first
        if is_gone or await _time_at(js, name, stream, mark.sequence) == mark.time_ns:
            return mark
    return StreamPosition(stream.created, 0, 0)


async def _time_at(js: JetStream, name: str, stream: StreamState, sequence: int) -> int | None:
    # A stream that never had a message names 0 as its first.
    if not max(stream.first, 1) <= sequence <= stream.last:
        return None
    stored = await js.message(name, sequence)
    return None if stored is None else stored.time_ns
