"""The bytes that the knowledge of sources takes in a snapshot, by host. A host decides how many
sources it has and how long their names are; so where there are too many bytes, the one with the
most gives way first, and the knowledge of other hosts stays.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable

from logpipeline.deduplication import SourceState
from logpipeline.extents import Extent, GenerationState
from logpipeline_collector.sink import SourceName

# As `deduplication.encode` and `json_text.dump` write them, rounded up: numbers have 19 digits at
# most, checksums and names of generations 16 in quotes, causes of losses up to 83 characters.
_SOURCE_BYTES = 160
_GENERATION_BYTES = 80
_EXTENT_BYTES = 64
_MARK_BYTES = 41
_LOST_BYTES = 42
_LOSS_BYTES = 168


class _Host:
    """What one host has: *sources*, of which the one that changed last stands last."""

    def __init__(self) -> None:
        self.bytes = 0
        self.sources: dict[str, None] = {}


class SourceSizes:
    """The sizes of all sources of a partition; *bytes* is their sum."""

    def __init__(self) -> None:
        self.bytes = 0
        self._hosts: dict[str, _Host] = {}

    def note(self, name: SourceName, before: SourceState | None, after: SourceState) -> None:
        """Note that the source *name* is known as *after*; *before* None: it was not known."""
        host, source = name
        having = self._hosts.setdefault(host, _Host())
        grown = _growth(before, after)
        if before is None:
            grown += _name_bytes(name)
        else:
            del having.sources[source]
        having.sources[source] = None
        having.bytes += grown
        self.bytes += grown

    def shorten(self, name: SourceName, before: SourceState, after: SourceState) -> None:
        """Note that of the source *name* less is known now; it counts as no newer."""
        saved = _growth(after, before)
        self._hosts[name[0]].bytes -= saved
        self.bytes -= saved

    def drop(self, name: SourceName, known: SourceState) -> None:
        """Note that the source *name*, which was *known*, is forgotten."""
        host, source = name
        having = self._hosts[host]
        size = _growth(None, known) + _name_bytes(name)
        del having.sources[source]
        having.bytes -= size
        self.bytes -= size
        if not having.sources:
            del self._hosts[host]

    def of(self, host: str) -> int:
        """Return the bytes of *host*."""
        return self._hosts[host].bytes if host in self._hosts else 0

    def sources_of(self, host: str) -> tuple[SourceName, ...]:
        """Return the sources of *host*; the one that changed last stands last."""
        return tuple((host, source) for source in self._hosts[host].sources)

    def heaviest_first(self) -> list[tuple[int, str]]:
        """Return the hosts behind their bytes below zero, as a heap."""
        heap = [(-having.bytes, host) for host, having in self._hosts.items()]
        heapq.heapify(heap)
        return heap


def _name_bytes(name: SourceName) -> int:
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
