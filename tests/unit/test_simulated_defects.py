"""The defects that are planted into simulated worlds, as far as no world is needed."""

from __future__ import annotations

from simulated import mutations


def test_each_planted_defect_has_its_place_in_the_product() -> None:
    """A name that the product gave up would plant nothing. That is asked when they are declared."""
    assert len({**mutations.DEFECTS, **mutations.ONE_DECISION}) >= 60
