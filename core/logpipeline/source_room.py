"""Room for the knowledge of sources: the bytes that it takes where it is stored, by host, and which
of it gives way if these are too many. A host decides how many sources it has and how long their
names are; so the one with the most gives way first, and the knowledge of other hosts stays.
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from logpipeline.deduplication import NOTHING, SourceState, counted
from logpipeline.extents import Extent, GenerationState

# 100,000 hosts of ten partitions with some twenty logs each. Pods come and go; of the host that
# takes the most, the ones that were silent the longest are forgotten first.
SOURCES_MAX = 250_000
# What is known takes no more where it is stored, however long the names are that a node gives: it
# has to fit into memory a few times.
SOURCES_BYTES_MAX = 128 * 1024 * 1024
# One part of the limits is freed at once: to find the host with the most, all are looked at.
ROOM_PARTS = 64
# Of a source that takes room so many generations are left, before it is forgotten itself: what
# kubelet keeps, and some.
GENERATIONS_LEFT = 8
# Holds the missing and lost bytes of all forgotten sources, so that sums do not lose them. No
# source has an empty name; former versions can read it, too.
FORGOTTEN = ("-", "")
# `committed_of` reads the newest generation; former versions call it for `FORGOTTEN`, too.
_NO_GENERATION = GenerationState("0" * 16)

# As `deduplication.encode` and `json_text.dump` write them, rounded up: numbers have 19 digits at
# most, checksums and names of generations 16 in quotes, causes of losses up to 83 characters.
_SOURCE_BYTES = 160
_GENERATION_BYTES = 80
_EXTENT_BYTES = 64
_MARK_BYTES = 41
_LOST_BYTES = 42
_LOSS_BYTES = 168


Host = TypeVar("Host", bound=Hashable)


class _Sources:
    """The sources of one host; of *names* the one that changed last stands last."""

    def __init__(self) -> None:
        self.bytes = 0
        self.names: dict[str, None] = {}


class SourceRoom(Generic[Host]):
    """The sizes of all sources that are known. A source is named by its host and its own name; what
    counts as one host is the caller's matter. *bytes* is the sum of the sizes.
    """

    def __init__(self, sources_max: int, bytes_max: int) -> None:
        self.bytes = 0
        self.count = 0
        self._sources_max = sources_max
        self._bytes_max = bytes_max
        self._hosts: dict[Host, _Sources] = {}

    @property
    def is_over(self) -> bool:
        """Whether the limits do not hold."""
        return self.count > self._sources_max or self.bytes > self._bytes_max

    def note(self, name: tuple[Host, str], before: SourceState | None, after: SourceState) -> None:
        """Note that the source *name* is known as *after*; *before* None: it was not known."""
        host, source = name
        having = self._hosts.setdefault(host, _Sources())
        grown = _growth(before, after)
        if before is None:
            grown += _name_bytes(name)
            self.count += 1
        else:
            del having.names[source]
        having.names[source] = None
        having.bytes += grown
        self.bytes += grown

    def make(
        self, known: Callable[[tuple[Host, str]], SourceState]
    ) -> Iterator[tuple[tuple[Host, str], SourceState | None]]:
        """Make room if the limits do not hold: give, step by step, a source and what is left of
        it, None: nothing. The caller takes that over before the next step; *known* returns what is
        known of a source by then.
        """
        if not self.is_over:
            return
        sources_max = self._sources_max - self._sources_max // ROOM_PARTS
        bytes_max = self._bytes_max - self._bytes_max // ROOM_PARTS
        # By number, since hosts may have no order.
        hosts = list(self._hosts)
        heaviest = [(-having.bytes, number) for number, having in enumerate(self._hosts.values())]
        heapq.heapify(heaviest)
        steps: dict[int, Iterator[tuple[tuple[Host, str], SourceState | None]]] = {}
        while self.count > sources_max or self.bytes > bytes_max:
            number = heaviest[0][1]
            host = hosts[number]
            if number not in steps:
                steps[number] = self._forgetting(host, known)
            yield from itertools.islice(steps[number], 1)
            size = self._hosts[host].bytes if host in self._hosts else 0
            heapq.heapreplace(heaviest, (-size, number))

    def _forgetting(
        self, host: Host, known: Callable[[tuple[Host, str]], SourceState]
    ) -> Iterator[tuple[tuple[Host, str], SourceState | None]]:
        """Forget what is known of *host*: old generations first, then the oldest sources."""
        names = [(host, source) for source in self._hosts[host].names]
        for name in names:
            before = known(name)
            if len(before.generations) > GENERATIONS_LEFT:
                left = before.without_oldest(GENERATIONS_LEFT)
                self._shrink(host, _growth(left, before))
                yield name, left
        for name in names:
            self._drop(name, known(name))
            yield name, None

    def _drop(self, name: tuple[Host, str], known: SourceState) -> None:
        host, source = name
        self._shrink(host, _growth(None, known) + _name_bytes(name))
        self.count -= 1
        del self._hosts[host].names[source]
        if not self._hosts[host].names:
            del self._hosts[host]

    def _shrink(self, host: Host, size: int) -> None:
        self._hosts[host].bytes -= size
        self.bytes -= size


def with_forgotten(sums: SourceState | None, known: SourceState) -> SourceState:
    """Return what is kept as `FORGOTTEN`, until now *sums*, once a source is forgotten of which
    *known* was known.
    """
    if sums is None:
        sums = NOTHING._replace(generations=(_NO_GENERATION,))
    return sums._replace(
        given_up=counted(sums.given_up + known.missing), lost=counted(sums.lost + known.lost)
    )


def _name_bytes(name: tuple[Hashable, str]) -> int:
    return len(json.dumps(name))


def _growth(before: SourceState | None, after: SourceState) -> int:
    """Return how many bytes *after* takes more than *before*."""
    if before is None:
        return _SOURCE_BYTES + _generations(after.generations) + _LOSS_BYTES * len(after.losses)
    # Of up to 256 generations with up to 1,025 extents a message changes one or two.
    old = {id(each): each for each in before.generations}
    new = {id(each): each for each in after.generations}
    gone = _generations(old[each] for each in old.keys() - new.keys())
    come = _generations(new[each] for each in new.keys() - old.keys())
    return come - gone + _LOSS_BYTES * (len(after.losses) - len(before.losses))


def _generations(generations: Iterable[GenerationState]) -> int:
    return sum(
        _GENERATION_BYTES
        + _extents(known.extents)
        + _extents(known.asides)
        + _LOST_BYTES * len(known.lost)
        for known in generations
    )


def _extents(extents: tuple[Extent, ...]) -> int:
    return sum(_EXTENT_BYTES + _MARK_BYTES * len(extent.marks) for extent in extents)
