"""Texts such as ``0-3,7`` that name partitions, as far as rules look into them."""

from __future__ import annotations

PARTITIONS = r"^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$"
_FIRST = "int(part.split('-')[0])"
_LAST = "int(part.split('-')[part.split('-').size() - 1])"


def ranges(text: str) -> list[tuple[int, int]]:
    """Return the first and the last partition of each range in *text*."""
    bounds = (part.partition("-") for part in text.split(","))
    return [(int(first), int(last or first)) for first, _, last in bounds]


def is_rising(text: str) -> bool:
    """Return whether no range in *text* ends before it begins."""
    return all(first <= last for first, last in ranges(text))


def is_within(text: str, partitions: int) -> bool:
    """Return whether *text* names only partitions that there are."""
    return all(last < max(partitions, 1) for _, last in ranges(text))


def rising_cel(text: str) -> str:
    """Return `is_rising` of the CEL *text*."""
    return f"{text}.split(',').all(part, {_FIRST} <= {_LAST})"


def within_cel(text: str, partitions: str) -> str:
    """Return `is_within` of the CEL *text* and *partitions*."""
    count = f"({partitions} > 0 ? {partitions} : 1)"
    return f"{text}.split(',').all(part, {_LAST} < {count})"
