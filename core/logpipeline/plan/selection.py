"""Which partitions a text such as ``0-3,7`` means."""

from __future__ import annotations


def selects(text: str, partition: int) -> bool:
    """Return whether *text*, numbers and ranges with commas between them, means *partition*."""
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if int(first) <= partition <= int(last or first):
            return True
    return False
