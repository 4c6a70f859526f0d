"""Whether all lines of one side stand on the other, wherever they stand there.

Two passes, so that neither side is kept in memory: first by blocks of lines, whose ends the lines
themselves say, so that both sides cut alike wherever they begin; then line by line, only in blocks
that the other side does not have. Equal lines are counted: two here need two there.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

# A line ends a block if this many of the last bits of its CRC are 0: one in 256 does.
_END_BITS = 0xFF
BLOCK_LINES_MAX = 4096
# Lines that the blocks of the other side do not explain, and that are looked for one by one.
LEFT_LINES_MAX = 1_000_000
EXCERPT_BYTES = 120

Lines = Iterable[bytes]


class Block(NamedTuple):
    """Lines that follow each other, without their ends, and the 64 bits that stand for them."""

    key: bytes
    lines: list[bytes]


class Missing(NamedTuple):
    """Lines that the other side lacks: how many, their *size* with their ends, and how the first of
    them begins. *untold* more were too many to be looked for.
    """

    lines: int = 0
    size: int = 0
    first: bytes = b""
    untold: int = 0


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


def missing_of(
    here: Callable[[], Iterator[Block]], there: Callable[[], Iterator[Block]]
) -> Missing:
    """Return which lines of *here* are not *there*; each is called once or twice, for all of its
    blocks.
    """
    wanted = Counter(block.key for block in here())
    found = Counter(block.key for block in there() if block.key in wanted)
    same = wanted & found
    if same == wanted:
        return Missing()
    left: Counter[bytes] = Counter()
    begins: dict[bytes, tuple[int, bytes]] = {}
    untold = 0
    for line in _outside(here(), same):
        key = _key([line])
        if key not in left and len(left) >= LEFT_LINES_MAX:
            untold += 1
            continue
        left[key] += 1
        begins.setdefault(key, (len(line) + 1, line[:EXCERPT_BYTES]))
    for line in _outside(there(), same):
        if left.get(key := _key([line]), 0) > 0:
            left[key] -= 1
    return _missing(left, begins, untold)


def _missing(
    left: Mapping[bytes, int], begins: Mapping[bytes, tuple[int, bytes]], untold: int
) -> Missing:
    lacking = {key: count for key, count in left.items() if count > 0}
    first = begins[next(iter(lacking))][1] if lacking else b""
    size = sum(count * begins[key][0] for key, count in lacking.items())
    return Missing(sum(lacking.values()), size, first, untold)


def _outside(blocks: Iterable[Block], same: Mapping[bytes, int]) -> Iterator[bytes]:
    """Yield the lines of *blocks*, without as many blocks as both sides have."""
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
