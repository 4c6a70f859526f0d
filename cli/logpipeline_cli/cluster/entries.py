"""A collector's files as they are listed across a cluster, and in which order they are printed.

A host's partition moves when collectors come and go: then its lines go on in a file of the same
place at another collector. Files are printed in turns, all of one collector and then all of the
next, so that every place's files follow each other in time and few streams are opened.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple

# Clocks of nodes differ; a partition moves in more time than that.
CLOCKS_APART_NS = 1_000_000_000


class Key(NamedTuple):
    """Which file it is, also after it was rotated and packed: only its name changes then."""

    member: str
    partition: int
    place: str
    begun_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A committed file of the collector *member*. *ended_ns* is when it was last written."""

    member: str
    partition: int
    place: str
    begun_ns: int
    ended_ns: int
    name: str
    host: str
    bytes: int
    is_rotated: bool
    is_compressed: bool
    file: str

    @property
    def key(self) -> Key:
        """Which file it is."""
        return Key(self.member, self.partition, self.place, self.begun_ns)

    def encode(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def decode(fields: Mapping[str, Any]) -> Entry:
        """Return what `encode` made.

        Raises:
            TypeError: it is nothing of the kind.
        """
        return Entry(**fields)


@dataclass(frozen=True, slots=True)
class Turn:
    """Files of one collector that are printed one after the other."""

    member: str
    entries: tuple[Entry, ...]


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Return *entries* by place, each place's oldest first."""
    return sorted(entries, key=lambda e: (e.place, e.begun_ns, not e.is_rotated, e.member, e.name))


def turns(entries: Iterable[Entry]) -> Iterator[Turn]:
    """Yield all *entries* in turns: the collector whose file is the oldest that is left begins."""
    places: dict[str, deque[Entry]] = {}
    for entry in in_order(entries):
        places.setdefault(entry.place, deque()).append(entry)
    while places:
        member = min((left[0] for left in places.values()), key=lambda e: e.begun_ns).member
        taken: list[Entry] = []
        for place, left in list(places.items()):
            while left and left[0].member == member:
                taken.append(left.popleft())
            if not left:
                del places[place]
        yield Turn(member, tuple(taken))


def mixed(entries: Iterable[Entry]) -> list[tuple[Entry, Entry]]:
    """Return pairs of files of one place of which the first was written before and after the
    second: a host came back to a collector that went on with its old file, so that the lines of
    the two cannot be told in order.
    """
    ordered = in_order(entries)
    return [
        (before, after)
        for before, after in pairwise(ordered)
        if before.place == after.place
        and before.member != after.member
        and before.ended_ns > after.begun_ns + CLOCKS_APART_NS
    ]
