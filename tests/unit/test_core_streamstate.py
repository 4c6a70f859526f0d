"""A position names a message by the server's time; marks find where a stream is the same."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from logpipeline.records import StreamPosition
from logpipeline.streamstate import StreamState, Verdict, judge
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
