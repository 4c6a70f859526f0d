"""Which source a file belongs to: the one that its name says, unless another one knows it.

Rotators name what they move away as they like: `app-1.log`, `app.log-20261122-1795365284`,
`app-2026-11-22T10-00-00.000.log.gz`. Such a file looks like a new log. It belongs to the source
that read it under its former name: told by its inode, or, where it was copied, by its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from logpipeline_shipper.files.chain import Chain
from logpipeline_shipper.files.opening import open_reader
from logpipeline_shipper.files.recognition import NOT_OBSERVED, Resemblance
from logpipeline_shipper.files.sources import ChainFile, Listing
from logpipeline_shipper.intents import Key

Identity = tuple[int, int, int]


# A copy is being made, or its original is about to be truncated, for so long at most; one that is
# being packed may take longer, and grows meanwhile.
HELD_S = 5.0


class Adoption:
    """The files that sources have of one another's names. *chains* are those that are read now,
    *expected* the sources of the process before, as long as their files may still be found.
    """

    def __init__(
        self,
        chains: Callable[[], Mapping[Key, Chain]],
        expected: Callable[[], Iterable[Key]],
        clock: Callable[[], float],
    ) -> None:
        self._chains = chains
        self._expected = expected
        self._clock = clock
        self._patience_s = HELD_S
        self._owners: dict[Identity, Key] = {}
        self._claimed: dict[Key, frozenset[Identity]] = {}
        self._lent: dict[Key, dict[Key, tuple[ChainFile, ...]]] = {}
        # Since when, and with which packed size.
        self._held_since: dict[Identity, tuple[float, int]] = {}

    def end(self) -> None:
        """Note that nobody writes, or copies, any more: nothing is held."""
        self._patience_s = 0.0

    def claim(self, key: Key, identities: Iterable[Identity]) -> None:
        """Note which files the source *key* knows now."""
        known = frozenset(identities)
        for identity in self._claimed.get(key, frozenset()) - known:
            if self._owners.get(identity) == key:
                del self._owners[identity]
        for identity in known:
            self._owners[identity] = key
        self._claimed[key] = known

    def keep_only(self, keys: Container[Key]) -> None:
        """Forget what sources knew that are not among *keys*."""
        for key in [key for key in self._claimed if key not in keys]:
            self.claim(key, ())
            del self._claimed[key]

    def sort(self, key: Key, listing: Listing) -> Sorted:
        """Return which files of *listing*, of the source *key*, are its own."""
        lent: dict[Key, tuple[ChainFile, ...]] = {}
        kept: list[ChainFile] = []
        is_held = False
        for file in listing.files:
            owner = self._owner_of(file, key)
            if owner is None:
                is_held = True
            elif owner == key:
                kept.append(file)
            else:
                lent[owner] = (*lent.get(owner, ()), replace(file, is_live=False))
        former = self._lent.pop(key, {})
        if lent:
            self._lent[key] = lent
        changed = {
            owner for owner in former.keys() | lent.keys() if former.get(owner) != lent.get(owner)
        }
        return Sorted(replace(listing, files=tuple(kept)), changed, is_held)

    def of(self, key: Key) -> tuple[ChainFile, ...]:
        """Return the files of *key* that have other sources' names."""
        return tuple(file for lent in self._lent.values() for file in lent.get(key, ()))

    def _owner_of(self, file: ChainFile, key: Key) -> Key | None:
        """Return whose *file* is; None while that cannot be told."""
        known = self._owners.get(file.identity)
        if known is not None or file.is_aside:
            return known or key
        chains = self._chains()
        if key in chains and file.is_live:
            return key  # its next live file, whatever it holds
        likely = [(other, chain) for other, chain in chains.items() if _may_be_of(file, key, other)]
        owner = _owner_by_content(file, likely) if likely else NOBODY
        if owner == NOBODY and any(_may_be_of(file, key, other) for other in self._expected()):
            owner = None  # a source that the last process read may know it, once its files are read
        if owner is not None:
            self._held_since.pop(file.identity, None)
            return owner if owner != NOBODY else key
        packed_size = file.size if file.compressed else 0
        held = self._held_since.get(file.identity)
        if held is None or held[1] != packed_size:
            held = self._held_since[file.identity] = (self._clock(), packed_size)
        if self._clock() - held[0] < self._patience_s:
            return None
        return key


@dataclass(frozen=True, slots=True)
class Sorted:
    """A *listing* without the files that belong to others; the sources that have other files than
    before because of it; and whether there are files of which that cannot be told yet.
    """

    listing: Listing
    changed: set[Key]
    is_held: bool


NOBODY = Key("", "")


def _owner_by_content(file: ChainFile, likely: list[tuple[Key, Chain]]) -> Key | None:
    try:
        content = open_reader(file, follow_link=False)
    except NOT_OBSERVED:
        return None
    try:
        resemblances = [(key, chain.resemblance(content)) for key, chain in likely]
    except OSError:
        return None
    finally:
        content.close()
    for key, found in resemblances:
        if found is Resemblance.CONTINUES:
            return key
    if any(found is Resemblance.COPIES for _, found in resemblances):
        return None
    return NOBODY


def _may_be_of(file: ChainFile, key: Key, other: Key) -> bool:
    """Return whether a rotator may have made the name of *file*, which makes it one of the source
    *key*, from that of the source *other*.
    """
    if other == key or other.host != key.host:
        return False
    stem = Path(other.source).name.split(".", 1)[0]
    return bool(stem) and file.path.name.startswith(stem)
