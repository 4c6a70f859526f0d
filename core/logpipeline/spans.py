"""Union, difference and intersection of byte ranges, which are pairs ``(start, end)``."""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[int, int]


def joined(spans: Iterable[Span]) -> list[Span]:
    """Return the same bytes in as few spans as there can be, in their order."""
    made: list[Span] = []
    for start, end in sorted(spans):
        if start >= end:
            continue
        if made and start <= made[-1][1]:
            made[-1] = (made[-1][0], max(end, made[-1][1]))
        else:
            made.append((start, end))
    return made


def outside(span: Span, others: Iterable[Span]) -> list[Span]:
    """Return the parts of *span* that lie in none of *others*."""
    start, end = span
    parts: list[Span] = []
    for first, last in joined(others):
        if first >= end:
            break
        if start < first:
            parts.append((start, first))
        start = max(start, last)
    if start < end:
        parts.append((start, end))
    return parts


def inside(span: Span, others: Iterable[Span]) -> list[Span]:
    """Return the parts of *span* that lie in one of *others*."""
    start, end = span
    parts = [(max(start, first), min(end, last)) for first, last in others]
    return joined(parts)


def size_of(spans: Iterable[Span]) -> int:
    """Return how many bytes *spans* have, of which no two may overlap."""
    return sum(end - start for start, end in spans)
