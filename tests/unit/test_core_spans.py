"""Ranges of bytes are added, taken away and cut as sets of bytes are."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.spans import Span, inside, joined, outside, size_of

# Some are empty, some the wrong way round, and many touch.
SPANS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=6)


def bytes_of(spans: list[Span]) -> set[int]:
    """Return each byte of *spans*."""
    return {byte for start, end in spans for byte in range(start, end)}


def assert_is_shortest(spans: list[Span]) -> None:
    """See that no two of *spans* could be one, none is empty, and all are in order."""
    assert all(start < end for start, end in spans)
    assert all(former[1] < later[0] for former, later in pairwise(spans))


@given(SPANS)
def test_joined_spans_have_the_same_bytes(spans: list[Span]) -> None:
    """In as few spans as there can be, in order."""
    assert bytes_of(joined(spans)) == bytes_of(spans)
    assert_is_shortest(joined(spans))
    assert size_of(joined(spans)) == len(bytes_of(spans))


@given(SPANS, st.tuples(st.integers(0, 12), st.integers(0, 12)))
def test_a_span_has_a_part_inside_and_one_outside(spans: list[Span], span: Span) -> None:
    """Each byte of it is in one of the two."""
    within, without = inside(span, spans), outside(span, spans)

    assert bytes_of(within) == bytes_of([span]) & bytes_of(spans)
    assert bytes_of(without) == bytes_of([span]) - bytes_of(spans)
    assert_is_shortest(within)
    assert_is_shortest(without)


@pytest.mark.parametrize(
    ("spans", "made"),
    [
        ([(0, 3), (3, 5)], [(0, 5)]),
        ([(4, 5), (0, 3)], [(0, 3), (4, 5)]),
        ([(0, 9), (2, 3)], [(0, 9)]),
        ([(2, 2)], []),
    ],
)
def test_spans_that_touch_are_one(spans: list[Span], made: list[Span]) -> None:
    """Empty spans are left out."""
    assert joined(spans) == made
