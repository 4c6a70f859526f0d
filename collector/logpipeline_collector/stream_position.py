"""Where to begin in a stream, and where to read on after checking that it is still the stream that
was read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logpipeline.nats.jetstream import JetStream
from logpipeline.records import StreamPosition
from logpipeline.statefile import StateBroken, read_state, write_state
from logpipeline.streamstate import StreamState, Verdict, judge, state_of, time_at
from logpipeline_collector.config import DeliverPolicy
from logpipeline_collector.stream_reader import ConsumerName

log = logging.getLogger(__name__)

KIND = "collector-marks"
VERSION = 1

# The consumer answers one question, and is deleted.
CONSUMER_INACTIVE_NS = 5_000_000_000

# Marks are dense at the newest end and sparse towards the oldest. After a short loss little is read
# again; after a long one reading need not begin at the start.
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
        """Add *position*, and forget marks at or beyond it, or in another stream."""
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
            ValueError: *data* is not encoded marks.
        """
        try:
            created = str(data["created"])
            rows = data["marks"][-MARKS_MAX:]
            return Marks(StreamPosition(created, int(at), int(time)) for at, time in rows)
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"not marks: {str(data)[:80]}") from error

    def _leads_to(self, position: StreamPosition) -> bool:
        last = self._positions[-1]
        return last.created == position.created and last.sequence < position.sequence

    def _most_dispensable(self) -> int:
        # The mark whose loss widens a gap least, as seen from the newest end.
        sequences = [position.sequence for position in self._positions]
        newest = sequences[-1]

        def widened(at: int) -> float:
            return (sequences[at + 1] - sequences[at - 1]) / (newest - sequences[at - 1])

        return min(range(1, len(sequences) - 1), key=widened)


def load_marks(path: Path) -> Marks:
    """Return the marks kept at *path*. Without marks, more is read again after a roll-back."""
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


class StreamMissing(Exception):
    """The stream does not exist."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"stream {stream} does not exist; run `logpipeline apply` to create it")


@dataclass(frozen=True, slots=True)
class Verified:
    """Where to read on, and after a roll-back, what had been read beyond that position.

    Messages up to *known_until_ns* were read before. Those without a range of their own are
    skipped. Nothing is committed before *settled_at* is passed, so that a crash repeats all of it.
    """

    verdict: Verdict
    position: StreamPosition
    stream: StreamState
    known_until_ns: int = 0
    settled_at: int = 0

    def is_known(self, time_ns: int) -> bool:
        """Return whether the message that the server stored at *time_ns* was read before."""
        return time_ns <= self.known_until_ns

    def is_settled(self, position: StreamPosition, *, pending: int) -> bool:
        """Return whether reading, which is at *position* with *pending* messages behind it, has
        passed what was read before.
        """
        return (
            position.sequence >= self.settled_at
            or position.time_ns > self.known_until_ns
            or pending == 0
        )


async def verify(js: JetStream, name: str, position: StreamPosition, marks: Marks) -> Verified:
    """Return where to read on in the stream *name*, after reading up to *position*.

    Raises:
        StreamMissing: the stream does not exist.
        NotSent, OutcomeUnknown, ApiError: the server could not be asked.
    """
    info = await js.stream_info(name)
    if info is None:
        raise StreamMissing(name)
    stream = state_of(info)
    found = await time_at(js, name, stream, position.sequence)
    verdict = judge(position, stream, found)
    if verdict is Verdict.GOOD:
        return going_on(position, stream)
    for mark in marks.newest_first():
        if mark.created == stream.created:
            found = await time_at(js, name, stream, mark.sequence)
            if is_common(mark, stream, found):
                return gone_back(verdict, position, stream, mark)
    return gone_back(verdict, position, stream, None)


async def still_passed(
    js: JetStream, name: str, stream: StreamState, passed: StreamPosition | None
) -> StreamPosition | None:
    """Return *passed* if the stream *name*, whose state is *stream*, still is what it was up to
    there; else None.

    Raises:
        NotSent, OutcomeUnknown, ApiError: the server could not be asked.
    """
    if passed is None:
        return None
    found = await time_at(js, name, stream, passed.sequence)
    return passed if judge(passed, stream, found) is Verdict.GOOD else None


def is_common(mark: StreamPosition, stream: StreamState, found_time_ns: int | None) -> bool:
    """Return whether *stream* still is the one that was read up to *mark*, where the message at
    the mark's sequence now has the time *found_time_ns* (None: there is no message).
    """
    if mark.created != stream.created or mark.sequence > stream.last:
        return False
    # What lies before the first message can neither be compared nor read again.
    return mark.sequence < stream.first or found_time_ns == mark.time_ns


def going_on(position: StreamPosition, stream: StreamState) -> Verified:
    """Return that reading goes on behind *position*, which *stream* still has."""
    known = StreamPosition(stream.created, position.sequence, position.time_ns)
    return Verified(Verdict.GOOD, known, stream)


def gone_back(
    verdict: Verdict, position: StreamPosition, stream: StreamState, common: StreamPosition | None
) -> Verified:
    """Return where to read on in *stream*, which lost messages up to *position* that were read:
    behind *common*, the newest mark that it still has, or from its beginning.
    """
    start = common if common is not None else StreamPosition(stream.created, 0, 0)
    return Verified(verdict, start, stream, position.time_ns, stream.last)


async def first_position(
    js: JetStream,
    stream: str,
    name: ConsumerName,
    *,
    policy: DeliverPolicy,
    start_time: str | None,
) -> StreamPosition:
    """Return the position behind which a group begins in a stream that it has never read, by
    *policy*; *name* is an unused consumer name. It is asked for once, at the first take-over, and
    kept in the epoch record: a crash right after that skips nothing.

    Raises:
        StreamMissing: the stream does not exist.
        NotSent, OutcomeUnknown, ApiError: the server could not be asked.
    """
    if policy == "all":
        return StreamPosition("", 0, 0)
    info = await js.stream_info(stream)
    if info is None:
        raise StreamMissing(stream)
    state = state_of(info)
    last = state.last
    if policy == "byStartTime":
        assert start_time is not None, "a resource without it is refused"
        last = await _before_time(js, stream, name, start_time)
    time_ns = await time_at(js, stream, state, last)
    return StreamPosition(state.created, last, time_ns or 0)


async def _before_time(js: JetStream, stream: str, name: ConsumerName, start_time: str) -> int:
    """Return the sequence before the first message of *start_time* or later."""
    # A consumer is made by the stream's leader; a direct get may be answered by a replica that does
    # not have the last messages yet.
    config = {
        "name": str(name),
        "ack_policy": "none",
        "deliver_policy": "by_start_time",
        "opt_start_time": start_time,
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": CONSUMER_INACTIVE_NS,
    }
    made = await js.consumer_create(stream, config, action="create")
    await js.consumer_delete(stream, str(name))
    return int(made["delivered"]["stream_seq"])
