"""Ranges of line numbers behave as the sets of numbers that they stand for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logpipeline_demo.ledger import Intervals

ranges = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)


def numbers(pairs: list[tuple[int, int]]) -> set[int]:
    return {number for first, end in pairs for number in range(first, end)}


@given(added=ranges)
def test_a_set_of_ranges_is_a_set(added: list[tuple[int, int]]) -> None:
    """After any additions it holds what a set would, in disjoint rising ranges, and each addition
    names what was there before.
    """
    intervals, model = Intervals(), set[int]()
    for first, end in added:
        assert numbers(intervals.add(first, end)) == model & set(range(first, end))
        model |= set(range(first, end))

    flat = [bound for pair in intervals for bound in pair]
    assert numbers(list(intervals)) == model
    assert flat == sorted(set(flat))
    assert len(intervals) == len(model)
    assert all((number in intervals) == (number in model) for number in range(41))


@given(added=ranges, others=ranges, window=st.tuples(st.integers(0, 40), st.integers(0, 40)))
def test_what_is_in_a_window_and_what_is_not_are_all_of_it(
    added: list[tuple[int, int]], others: list[tuple[int, int]], window: tuple[int, int]
) -> None:
    """`within`, `missing` and `minus` agree with the operations on sets."""
    intervals, model, seen = Intervals(added), numbers(added), set(range(*window))

    assert numbers(intervals.within(*window)) == model & seen
    assert numbers(intervals.missing(*window)) == seen - model
    assert numbers(list(intervals.minus(Intervals(others)))) == model - numbers(others)
