"""A sequence in parts that are small enough, whatever they are for: a message, memory, a read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def in_parts(
    items: Iterable[T],
    size_of: Callable[[T], int],
    *,
    size_max: int,
    count_max: int | None = None,
) -> Iterator[list[T]]:
    """Yield *items* in order, in parts of at most *count_max* items that together have the size
    *size_max* at most. An item that is larger is a part by itself.
    """
    part: list[T] = []
    part_size = 0
    for item in items:
        size = size_of(item)
        if part and (len(part) == count_max or part_size + size > size_max):
            yield part
            part, part_size = [], 0
        part.append(item)
        part_size += size
    if part:
        yield part
