"""Compares lines that carry no number with the lines that are expected: a source's lines may
repeat, and may be spread over several chains.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

# How many ways to merge the chains are followed at once; repeated lines make more of them.
MERGES_MAX = 10_000


@dataclass(slots=True)
class LineDiff:
    """What is wrong, as indices: of expected lines, or (chain, line) of archived ones."""

    lost: list[int] = field(default_factory=list)
    twice: list[tuple[int, int]] = field(default_factory=list)
    out_of_order: list[tuple[int, int]] = field(default_factory=list)
    invented: list[tuple[int, int]] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is."""
        return not (self.lost or self.twice or self.out_of_order or self.invented)


def split_lines(data: bytes) -> list[bytes]:
    """Return the lines of *data*, each with its newline, if it has one."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def line_diff(
    must: Sequence[bytes], may: Sequence[bytes], chains: Sequence[Sequence[bytes]]
) -> LineDiff:
    """Compare *chains* with the lines that *must* be there, and those after them that *may*.

    Nothing is wrong exactly if the chains can be merged, each in its order, to *must* and a
    beginning of *may*.
    """
    diff = LineDiff()
    if is_merge(must, may, chains):
        return diff
    places: dict[bytes, deque[int]] = {}
    for index, line in enumerate([*must, *may]):
        places.setdefault(line, deque()).append(index)
    for number, chain in enumerate(chains):
        highest = -1
        for position, line in enumerate(chain):
            waiting = places.get(line)
            if waiting is None:
                diff.invented.append((number, position))
            elif not waiting:
                diff.twice.append((number, position))
            else:
                index = waiting.popleft()
                if index < highest:
                    diff.out_of_order.append((number, position))
                highest = max(highest, index)
    left = {index for waiting in places.values() for index in waiting}
    reached = max([-1, *(set(range(len(must), len(must) + len(may))) - left)])
    diff.lost = sorted(index for index in left if index < max(len(must), reached))
    return diff


def is_merge(
    must: Sequence[bytes], may: Sequence[bytes], chains: Sequence[Sequence[bytes]]
) -> bool:
    """Tell whether the chains interleave to *must* and a beginning of *may*."""
    total = sum(len(chain) for chain in chains)
    if not len(must) <= total <= len(must) + len(may):
        return False
    states = {(0,) * len(chains)}
    for line in [*must, *may][:total]:
        following = set()
        for state in states:
            for number, position in enumerate(state):
                chain = chains[number]
                if position < len(chain) and chain[position] == line:
                    following.add((*state[:number], position + 1, *state[number + 1 :]))
        if not following:
            return False
        states = set(islice(following, MERGES_MAX))
    return True
