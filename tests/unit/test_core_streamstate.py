"""What is known of a stream; a position names a message by the server's time; marks find where a
stream is the same.
"""

from __future__ import annotations

import itertools
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.nats.jetstream import JetStream, StoredMessage
from logpipeline.records import StreamPosition
from logpipeline.streamstate import StreamState, Verdict, judge, state_of, time_at
from logpipeline_collector.stream_position import MARKS_MAX, Marks

STREAM = StreamState(created="monday", first=1, last=1000)


def test_a_message_with_the_same_time_is_the_one_that_was_read() -> None:
    """Sequence and time agree."""
    assert judge(at(1000), STREAM, 1_000_000) is Verdict.GOOD


def test_a_sequence_that_was_used_again_is_noticed() -> None:
    """The message is there, but the server stored it at another time."""
    assert judge(at(500), STREAM, 777) is Verdict.ROLLED_BACK


def test_a_stream_that_is_shorter_than_what_was_read_went_back() -> None:
    """Nothing was stored since."""
    assert judge(at(1001), STREAM, None) is Verdict.ROLLED_BACK


def test_a_stream_of_the_same_name_is_not_the_same_stream() -> None:
    """It was deleted and made again, with sequences that begin at 1."""
    assert judge(at(500, created="sunday"), STREAM, 500_000) is Verdict.RECREATED


def test_an_expired_message_is_no_roll_back() -> None:
    """The stream went on behind it."""
    assert judge(at(500), StreamState("monday", 900, 1000), None) is Verdict.GOOD


def test_a_stream_that_was_emptied_is_no_roll_back() -> None:
    """A purge keeps the last sequence."""
    assert judge(at(1000), StreamState("monday", 1001, 1000), None) is Verdict.GOOD


def test_who_has_read_nothing_can_begin_anywhere() -> None:
    """There is nothing to compare."""
    assert judge(StreamPosition("", 0, 0), STREAM, None) is Verdict.GOOD


@given(st.lists(st.integers(1, 50), min_size=1, max_size=1000))
def test_marks_stay_few_and_dense_at_the_newest_end(steps: list[int]) -> None:
    """The last one is always there, and the gap behind a mark grows with its age only."""
    marks = Marks()
    sequence = 0
    for step in steps:
        sequence += step
        marks.add(at(sequence))

    kept = marks.newest_first()
    assert kept[0].sequence == sequence
    assert kept[-1].sequence == steps[0]
    assert len(kept) <= MARKS_MAX
    for newer, older in itertools.pairwise(kept):
        age = sequence - older.sequence
        assert newer.sequence - older.sequence <= max(101, age * 0.7)


def test_marks_beyond_a_position_are_forgotten() -> None:
    """After a roll-back they name messages that are no more."""
    marks = Marks(at(sequence) for sequence in (10, 20, 30))

    marks.add(at(20, time_ns=5))

    assert [(mark.sequence, mark.time_ns) for mark in marks.newest_first()] == [
        (20, 5),
        (10, 10_000),
    ]


def test_marks_of_another_stream_are_forgotten() -> None:
    """They say nothing about this one."""
    marks = Marks(at(sequence) for sequence in (10, 20))

    marks.add(at(15, created="tuesday"))

    assert [mark.created for mark in marks.newest_first()] == ["tuesday"]


def test_marks_survive_being_written() -> None:
    """What was encoded is decoded."""
    marks = Marks(at(sequence) for sequence in (10, 20))

    assert Marks.decode(marks.encode()).newest_first() == marks.newest_first()


def at(sequence: int, *, created: str = "monday", time_ns: int | None = None) -> StreamPosition:
    return StreamPosition(created, sequence, sequence * 1000 if time_ns is None else time_ns)


# An answer of nats-server 2.15 to STREAM.INFO, with the fields that are read.
INFO: dict[str, Any] = {
    "created": "2026-11-02T08:15:30.25Z",
    "config": {"subjects": ["lp.shop.web.part.*"], "max_age": 90_000_000_000},
    "state": {
        "messages": 4,
        "bytes": 1_002,
        "first_seq": 3,
        "last_seq": 7,
        "last_ts": "1970-01-01T00:00:05.000000001Z",
        "num_deleted": 1,
    },
}


def test_the_state_of_a_stream_is_what_its_server_says() -> None:
    """Ages are in seconds, times in nanoseconds."""
    assert state_of(INFO) == StreamState(
        created="2026-11-02T08:15:30.25Z",
        first=3,
        last=7,
        max_age_s=90.0,
        messages=4,
        bytes=1_002,
        last_time_ns=5_000_000_001,
        subjects=("lp.shop.web.part.*",),
        removed=1,
    )


def test_a_stream_that_never_had_a_message_has_no_time() -> None:
    """Its server gives the year 1 instead, and leaves out what is nothing."""
    state = dict.fromkeys(("messages", "bytes", "first_seq", "last_seq"), 0)

    found = state_of(
        {
            "created": "monday",
            "config": {},
            "state": {**state, "last_ts": "0001-01-01T00:00:00Z"},
        }
    )

    assert found == StreamState("monday", 0, 0)


@pytest.mark.parametrize("name", ["mirror", "sources", "subject_transform"])
def test_subjects_of_another_stream_are_not_its_own(name: str) -> None:
    """What is copied, or renamed, is stored under other subjects than it is published to."""
    assert state_of({**INFO, "config": {**INFO["config"], name: {"any": "thing"}}}).subjects == ()


@pytest.mark.parametrize(
    ("messages", "size", "average"), [(0, 0, 1), (4, 1_002, 250), (5, 4, 1), (1, 2, 2)]
)
def test_the_average_size_of_a_message_is_a_byte_at_least(
    messages: int, size: int, average: int
) -> None:
    """Whoever divides by it gets a number."""
    assert StreamState("monday", 1, 9, messages=messages, bytes=size).message_bytes == average


@pytest.mark.parametrize(
    ("first", "sequence", "asked"),
    [(5, 4, False), (5, 5, True), (5, 9, True), (5, 10, False), (0, 0, False), (0, 1, True)],
)
async def test_the_time_of_a_message_is_asked_for_where_it_can_be_there(
    first: int, sequence: int, asked: bool
) -> None:
    """Nobody asks the server for what is before the first, or behind the last."""
    js = cast(JetStream, Stored())

    found = await time_at(js, "LOGS", StreamState("monday", first, 9), sequence)

    assert found == (777 if asked else None)
    assert cast(Stored, js).asked == ([("LOGS", sequence)] if asked else [])


async def test_a_message_that_is_removed_has_no_time() -> None:
    """Others stand before and behind it."""
    assert await time_at(cast(JetStream, Stored(None)), "LOGS", STREAM, 5) is None


class Stored:
    """A stream whose messages are all stored at one time, in the place of JetStream."""

    def __init__(self, time_ns: int | None = 777) -> None:
        self.asked: list[tuple[str, int]] = []
        self._time_ns = time_ns

    async def message(self, stream: str, sequence: int) -> StoredMessage | None:
        """Return the message at *sequence*."""
        self.asked.append((stream, sequence))
        if self._time_ns is None:
            return None
        return StoredMessage("lp", sequence, self._time_ns, b"", b"")
