"""Which partitions a text such as ``0-3,7`` means."""

from __future__ import annotations

from collections.abc import Iterable


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
