"""Texts such as ``0-3,7`` that name partitions, as far as rules look into them."""

from __future__ import annotations

from collections.abc import Iterable

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


def selects(text: str, partition: int) -> bool:
    """Return whether *text*, numbers and ranges with commas between them, means *partition*."""
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if int(first) <= partition <= int(last or first):
            return True
    return False


def selection_of(partitions: Iterable[int]) -> str:
    """Return the text that means exactly these *partitions*."""
    parts: list[list[int]] = []
    for partition in sorted(partitions):
        if parts and partition == parts[-1][1] + 1:
            parts[-1][1] = partition
        else:
            parts.append([partition, partition])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)
