"""Defects that are planted into the product, one at a time, to see that a world shows them."""

from __future__ import annotations


def plant(name: str | None) -> None:
    """Have the product decide wrongly, as the defect *name* does; None leaves it as it is."""
    if name is not None:
        raise KeyError(name)
