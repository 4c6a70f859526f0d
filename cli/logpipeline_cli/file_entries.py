"""Entries of the collectors' files in a listing, and the order in which files are printed.

A host's partition moves when collectors come and go: then its lines continue in a file of the same
place at another collector. Files are printed in turns, all of one collector and then all of the
next, so that the files of each place follow each other in time and few streams are opened.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from logpipeline_collector.files.committed import CommittedFile

# The clocks of nodes may differ by so much; to move a partition takes longer.
CLOCKS_APART_NS = 1_000_000_000


class Key(NamedTuple):
    """The identity of a file, which stays when the file is rotated and compressed; only its name
    changes then.
    """

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
        """The identity of the file."""
        return Key(self.member, self.partition, self.place, self.begun_ns)

    @staticmethod
    def of(member: str, file: CommittedFile) -> Entry:
        """Return the entry of a *file* of the collector *member*."""
        return Entry(
            member=member,
            partition=file.partition,
            place=file.place,
            begun_ns=file.begun_ns,
            ended_ns=file.rotated_ns if file.is_rotated else _written_ns(file),
            name=file.name,
            host=file.host,
            bytes=file.length,
            is_rotated=file.is_rotated,
            is_compressed=file.is_compressed,
            file=str(file.path),
        )

    def encode(self) -> str:
        """Return the entry as one line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def decode(fields: Mapping[str, Any]) -> Entry:
        """Return the entry that `encode` wrote.

        Raises:
            TypeError: *fields* are not those of an entry.
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
    """Yield all *entries* in turns: each turn is of the collector that has the oldest file left."""
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
    """Return the pairs of files of one place of which the first was written both before and after
    the second: a host came back to a collector, which continued its old file. The lines of such a
    pair cannot be printed in order.
    """
    ordered = in_order(entries)
    return [
        (before, after)
        for before, after in pairwise(ordered)
        if before.place == after.place
        and before.member != after.member
        and before.ended_ns > after.begun_ns + CLOCKS_APART_NS
    ]


def _written_ns(file: CommittedFile) -> int:
    try:
        return file.path.stat().st_mtime_ns
    except OSError:
        return file.begun_ns
