"""The search through the commit protocol, with wider bounds than a unit test has time for."""

from __future__ import annotations

import pytest

from components.commit_protocol import Bounds, search


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "bounds",
    [Bounds(lines=2, epochs=2), Bounds(collectors=3, lines=1, epochs=3)],
    ids=["two-lines", "three-collectors"],
)
def test_no_order_of_steps_within_wider_bounds_doubles_or_loses_a_line(bounds: Bounds) -> None:
    """More lines, and a third collector that comes back after the other two."""
    assert search(bounds) > 50_000
