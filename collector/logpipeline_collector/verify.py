"""Where to read on in a stream after a look whether it still is the one that was read."""

from __future__ import annotations

from dataclasses import dataclass

from logpipeline.nats.jetstream import JetStream
from logpipeline.records import StreamPosition
from logpipeline.streamstate import StreamState, Verdict, judge, state_of, time_at
from logpipeline_collector.marks import Marks


class StreamMissing(Exception):
    """There is no such stream."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"stream {stream} does not exist; run `logpipeline apply` to create it")


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
    found = await time_at(js, name, stream, position.sequence)
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
        if is_gone or await time_at(js, name, stream, mark.sequence) == mark.time_ns:
            return mark
    return StreamPosition(stream.created, 0, 0)
