"""Parts hold all items in order, and none is larger than it may be."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from logpipeline.parts import in_parts


@given(st.lists(st.integers(0, 9)), st.integers(0, 20), st.one_of(st.none(), st.integers(1, 4)))
def test_parts_are_as_large_as_they_may_be(
    sizes: list[int], size_max: int, count_max: int | None
) -> None:
    """Only one item may be too large; and the next part's first item did not fit."""
    parts = list(in_parts(sizes, lambda size: size, size_max=size_max, count_max=count_max))

    def fits(part: list[int]) -> bool:
        return sum(part) <= size_max and (count_max is None or len(part) <= count_max)

    assert [size for part in parts for size in part] == sizes
    assert all(part and (len(part) == 1 or fits(part)) for part in parts)
    assert not any(fits([*part, following[0]]) for part, following in pairwise(parts))
