"""Finds the lines of one side of a comparison that the other side lacks, in any order.

There are two passes, so that neither side is held in memory: first over blocks of lines, then line
by line in those blocks that the other side does not have. The content of a line decides whether it
ends a block, so that both sides are cut alike wherever they begin. Equal lines are counted: two on
one side need two on the other.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

# A line ends a block if this many of the last bits of its CRC are 0: one in 256 does.
_END_BITS = 0xFF
BLOCK_LINES_MAX = 4096
# Lines outside of common blocks that are searched for one by one.
LEFT_LINES_MAX = 1_000_000
EXCERPT_BYTES = 120

Lines = Iterable[bytes]


class Block(NamedTuple):
    """Consecutive lines without their ends, and a key of 64 bits for them."""

    key: bytes
    lines: list[bytes]


class Missing(NamedTuple):
    """Lines that the other side lacks: their number, their *size* with their ends, and the
    beginning of the first one. *untold* more lines were too many to search for.
    """

    lines: int = 0
    size: int = 0
    first: bytes = b""
    untold: int = 0


class Line(NamedTuple):
    """A line that occurs so many *times*, with its *size* and its beginning."""

    times: int
    size: int
    first: bytes


@dataclass(slots=True)
class Left:
    """Lines outside of common blocks, by their keys; *untold* more were too many."""

    lines: dict[bytes, Line] = field(default_factory=dict)
    untold: int = 0

    def missing(self, found: Mapping[bytes, int]) -> Missing:
        """Return the lines that are more often here than in *found*, the other side's counts."""
        lacking = [
            line._replace(times=lacks)
            for key, line in self.lines.items()
            if (lacks := line.times - found.get(key, 0)) > 0
        ]
        return Missing(
            sum(line.times for line in lacking),
            sum(line.times * line.size for line in lacking),
            lacking[0].first if lacking else b"",
            self.untold,
        )


def blocks_of(lines: Lines) -> Iterator[Block]:
    """Yield *lines* in blocks."""
    held: list[bytes] = []
    for line in lines:
        held.append(line)
        if not zlib.crc32(line) & _END_BITS or len(held) == BLOCK_LINES_MAX:
            yield _block(held)
            held = []
    if held:
        yield _block(held)


def count(blocks: Iterable[Block], wanted: Container[bytes] | None = None) -> Counter[bytes]:
    """Return how often each block occurs; only of the *wanted* ones, or of all."""
    return Counter(block.key for block in blocks if wanted is None or block.key in wanted)


def left(blocks: Iterable[Block], same: Mapping[bytes, int]) -> Left:
    """Return the lines of *blocks* outside of *same*, the blocks that both sides have."""
    found = Left()
    for line in _outside(blocks, same):
        key = _key([line])
        if known := found.lines.get(key):
            found.lines[key] = known._replace(times=known.times + 1)
        elif len(found.lines) < LEFT_LINES_MAX:
            found.lines[key] = Line(1, len(line) + 1, line[:EXCERPT_BYTES])
        else:
            found.untold += 1
    return found


def count_left(
    blocks: Iterable[Block], same: Mapping[bytes, int], wanted: Container[bytes]
) -> Counter[bytes]:
    """Return how often each of the *wanted* lines occurs in *blocks* outside of *same*, the blocks
    that both sides have.
    """
    keys = (_key([line]) for line in _outside(blocks, same))
    return Counter(key for key in keys if key in wanted)


def _outside(blocks: Iterable[Block], same: Mapping[bytes, int]) -> Iterator[bytes]:
    """Yield the lines of *blocks* outside of *same*, in which each block has a number."""
    passed = dict(same)
    for block in blocks:
        if passed.get(block.key, 0) > 0:
            passed[block.key] -= 1
        else:
            yield from block.lines


def _block(lines: list[bytes]) -> Block:
    return Block(_key(lines), lines)


def _key(lines: list[bytes]) -> bytes:
    digest = hashlib.blake2b(digest_size=8)
    for line in lines:
        digest.update(b"%d:" % len(line))
        digest.update(line)
    return digest.digest()
