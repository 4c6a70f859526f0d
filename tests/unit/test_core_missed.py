"""What a table missed is written down once, bounded, and read with care."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.records import BadRecord
from logpipeline.tables.progress import RANGES_MAX, Missed, MissedRange


def gone(first: int, last: int, *, created: str = "then") -> MissedRange:
    """A range that was purged."""
    return MissedRange(created=created, first=first, last=last, at_ns=7)


def spans(missed: Missed) -> list[tuple[int, int]]:
    """The ranges of stream A."""
    return [(each.first, each.last) for each in missed.streams.get("A", ())]


def test_what_follows_on_is_one_range() -> None:
    """A table that stands still misses one range that grows, whatever is told twice."""
    missed = Missed()
    for last in (3, 3, 9):
        missed = missed.with_range("A", gone(1, last))

    assert (spans(missed), missed.messages) == ([(1, 9)], 9)


def test_what_a_table_read_in_between_is_not_missed() -> None:
    """It went on, and was overtaken again; another life of the stream counts anew."""
    missed = Missed().with_range("A", gone(1, 3)).with_range("A", gone(10, 12))
    anew = missed.with_range("A", gone(1, 2, created="later"))

    assert (spans(missed), missed.messages) == ([(1, 3), (10, 12)], 6)
    assert (spans(anew), anew.messages) == ([(1, 3), (10, 12), (1, 2)], 8)


def test_a_table_has_passed_what_it_missed_once_it_is_behind_it() -> None:
    """Or where the stream was made anew since."""
    missed = Missed().with_range("A", gone(1, 9))

    assert not missed.is_passed("A", created="then", done=9)
    assert missed.is_passed("A", created="then", done=10)
    assert missed.is_passed("A", created="later", done=0)
    assert missed.is_passed("B", created="then", done=0)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), max_size=60))
def test_a_record_is_bounded_and_read_as_it_was_written(steps: list[tuple[int, int]]) -> None:
    """However often a table is overtaken."""
    missed, at, total = Missed(), 0, 0
    for gap, length in steps:
        missed = missed.with_range("A", gone(at + gap + 1, at + gap + 1 + length))
        at, total = at + gap + 1 + length, total + length + 1

    assert missed.messages == total
    assert len(missed.streams.get("A", ())) == min(len(steps), RANGES_MAX)
    assert Missed.decode(missed.encode()) == missed


@pytest.mark.parametrize(
    "nonsense",
    [b"", b"[]", b'{"messages": "1", "streams": {}}', b'{"messages": 1, "streams": {"A": [1]}}',
     b'{"messages": -1, "streams": {}}',
     b'{"messages": 1, "streams": {"A": [{"created": 1, "first": 1, "last": 1, "at_ns": 1}]}}'],
)  # fmt: skip
def test_nonsense_in_the_bucket_is_refused(nonsense: bytes) -> None:
    """Whoever may write the key can write anything."""
    with pytest.raises(BadRecord):
        Missed.decode(nonsense)
