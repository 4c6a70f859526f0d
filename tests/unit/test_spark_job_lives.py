"""A stream that was made anew or went back: where a table goes on, and what it counts as read."""

from __future__ import annotations

from typing import Any, cast

from logpipeline.nats.connection import NatsOptions
from logpipeline.streamstate import StreamState
from logpipeline_spark.job.batch import begin_anew
from logpipeline_spark.job.task import checked
from logpipeline_spark.lines.messages import groups
from logpipeline_spark.source import planning
from logpipeline_spark.source.client import Client
from logpipeline_spark.source.offsets import Position
from logpipeline_spark.source.options import SourceOptions
from logpipeline_spark.table.files import Range
from logpipeline_spark.table.state import Cover
from tables.messages import ORIGIN, foreign, message

STREAM = "LOGS_0"
BEFORE, NOW = "2026-11-20T10:00:00Z", "2026-11-26T10:00:00Z"
OPTIONS = SourceOptions(
    nats=NatsOptions(), streams=(STREAM,), partitions=1, subject="logs", fail_on_data_loss=False
)


class Server:
    """A stream whose messages have these times."""

    def __init__(self, times_ns: dict[int, int]) -> None:
        self._times_ns = times_ns

    def time_at(self, stream: str, state: StreamState, sequence: int) -> int | None:
        return self._times_ns.get(sequence)


def position(**changes: Any) -> Position:
    """The end of what was read, at a time when the clock was ahead."""
    fields: dict[str, Any] = {
        "created": BEFORE,
        "rollbacks": 0,
        "sequence": 1000,
        "time_ns": 5000,
        "after": 900,
    }
    return Position(**(fields | changes))


def begin(known: Position, state: StreamState, times_ns: dict[int, int]) -> Position:
    """Where a table goes on."""
    client = cast(Client, Server(times_ns))
    seen = {STREAM: state}
    return planning.begins(client, OPTIONS, {STREAM: known}, seen, reads_again=True)[STREAM]


def test_a_stream_that_was_made_anew_is_read_from_its_first_message() -> None:
    """Whatever times its messages have; up to the known one their ranges decide."""
    state = StreamState(NOW, first=1, last=100, messages=100, last_time_ns=4000)

    found = begin(position(), state, {100: 4000})

    assert (found.created, found.rollbacks, found.sequence) == (NOW, 0, 0)
    assert found.known_until_ns == 5000


def test_a_stream_that_went_back_is_read_again() -> None:
    """A second time, too, before it has passed the time that was read first."""
    state = StreamState(BEFORE, first=11, last=600, messages=590, last_time_ns=4000)

    once = begin(position(), state, {600: 4000})
    twice = begin(position(time_ns=4500, rollbacks=1, known_until_ns=5000), state, {600: 4000})

    assert (once.rollbacks, once.sequence, once.known_until_ns) == (1, 10, 5000)
    assert (twice.rollbacks, twice.sequence, twice.known_until_ns) == (2, 10, 5000)


def test_a_stream_that_comes_back_from_a_backup_is_another_incarnation() -> None:
    """After another one of its name was read: a table takes no range of an earlier incarnation."""
    former, between = position(), position(created=NOW, sequence=50)
    cover = Cover().after({STREAM: Range(former.incarnation, 1, 1000)})
    cover = cover.after({STREAM: Range(between.incarnation, 1, 50)})
    state = StreamState(BEFORE, first=1, last=1000, messages=1000, last_time_ns=4000)

    found = begin_anew(between, begin(between, state, {}), cover.read[STREAM])

    assert (found.created, found.rollbacks, found.sequence) == (BEFORE, 1, 0)
    cover.after({STREAM: Range(found.incarnation, 1, 10)})
    assert begin_anew(between, between, cover.read[STREAM]) == between


def test_messages_that_may_have_been_read_are_marked() -> None:
    """Those without a range count as read. A mark of their sender stays what it is."""
    sent = [
        message(b"new\n", 1)._replace(time_ns=10),
        message(b"again\n", 2, resend=True)._replace(time_ns=10),
        foreign(b"without a range", 3)._replace(time_ns=10),
        foreign(b"without a range", 4)._replace(time_ns=11),
        message(b"later\n", 5)._replace(time_ns=11),
    ]
    (group,) = groups(sent, ORIGIN)

    found = checked(group, 10)

    assert [(each.message.sequence, each.is_marked, each.is_resent) for each in found] == [
        (1, True, False),
        (2, True, True),
        (4, False, False),
        (5, False, False),
    ]
    assert checked(group, 0) == group
