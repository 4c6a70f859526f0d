"""No order of steps of the commit protocol puts a line into two folders, or into none."""

from __future__ import annotations

import pytest

from components.commit_protocol import Bounds, Twice, search


def test_no_order_of_steps_puts_a_line_into_two_folders_or_none() -> None:
    """Two collectors, one line that may be lost and stored again, three epochs: all there is."""
    assert search(Bounds(lines=1)) > 1000


def test_the_search_finds_the_hole_of_a_bare_sequence() -> None:
    """Without succession, as in records of older collectors, the line of a reader that woke behind
    a roll-back stands twice: so the search looks where it has to.
    """
    with pytest.raises(Twice, match="a line stands twice"):
        search(Bounds(is_succession_kept=False))
