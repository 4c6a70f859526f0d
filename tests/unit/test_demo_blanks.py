"""Empty lines find their places if there is any way to place them all."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from logpipeline_demo.lines import SourceKey
from logpipeline_demo.settle import assign

KEY = SourceKey("node-a", "files/app.log")
graphs = st.lists(st.lists(st.integers(0, 4), unique=True, max_size=4), max_size=5)


@given(graphs)
def test_as_many_as_can_be_are_placed(candidates: list[list[int]]) -> None:
    """Each gets one of its own candidates, no two the same, and no way places more of them."""
    given_places = assign([[(KEY, seq) for seq in own] for own in candidates])
    placed = [place[1] for place in given_places if place]
    best = max(
        sum(seq in own for seq, own in zip(order, candidates, strict=False))
        for order in permutations(range(5))
    )

    assert len(placed) == len(set(placed)) == best
    for place, own in zip(given_places, candidates, strict=True):
        assert place is None or place[1] in own
