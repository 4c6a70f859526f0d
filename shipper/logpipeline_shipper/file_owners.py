"""Decides which source owns a file: the one that the file's name belongs to, unless another source
knows the file.

Rotators give any name to what they move away: `app-1.log`, `app.log-20261122-1795365284`,
`app-2026-11-22T10-00-00.000.log.gz`. Such a file looks like a new log. It belongs to the source
that read it under its former name: it is recognised by its inode, or, if it was copied, by its
bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from logpipeline_shipper.checkpoint import Key
from logpipeline_shipper.files.chain import Chain
from logpipeline_shipper.files.file_identity import Resemblance
from logpipeline_shipper.files.listing import ChainFile, Listing, Watermark
from logpipeline_shipper.files.open_file import NOT_READ, look_now, open_reader
from logpipeline_shipper.files.place import HEAD_BYTES, Head

Identity = tuple[int, int, int]


# A copy that does not grow any more is held for so long, until its original is truncated.
HELD_S = 5.0
# A copy that grows is still being made: at 100 MB/s this is one of 60 GB. There is a limit because
# a program that writes the same lines to two logs makes the second one wait.
HELD_GROWING_S = 600.0


class FileOwners:
    """Keeps which source owns which file. *chain_of* returns the chain of a source that is read
    now; *is_expected* is true of the sources of the former process, as long as their files may
    still be found. Of both kinds, those count that were claimed for. The time for which a file is
    held goes on as far as *watermark* says that folders were listed: on a busy machine listings,
    which may show its owner, come late.
    """

    def __init__(
        self,
        chain_of: Callable[[Key], Chain | None],
        is_expected: Callable[[Key], bool],
        clock: Callable[[], float],
        watermark: Watermark,
    ) -> None:
        self._chain_of = chain_of
        self._is_expected = is_expected
        self._clock = clock
        self._watermark = watermark
        self._patience_s = HELD_S
        self._owners: dict[Identity, Key] = {}
        self._claimed: dict[Key, frozenset[Identity]] = {}
        # The sources that were claimed for, by host and stem: each new file is compared with those
        # that its name may come from, and of 10,000 files with no other one.
        self._by_stem: dict[tuple[str, str], dict[Key, None]] = {}
        self._lent: dict[Key, dict[Key, tuple[ChainFile, ...]]] = {}
        # Files whose owner is undecided, or was until the wait was over, by the source that their
        # name belongs to.
        self._held: dict[Key, dict[Identity, _Held]] = {}
        # Replaced as a whole at each change: threads that read chains read it as well.
        self._undecided: dict[Key, float] = {}

    def end(self) -> None:
        """Note that nothing more is written or copied: nothing is held."""
        self._patience_s = -math.inf

    def claim(self, key: Key, identities: Iterable[Identity]) -> None:
        """Note the files that the source *key* knows now."""
        known = frozenset(identities)
        for identity in self._claimed.get(key, frozenset()) - known:
            if self._owners.get(identity) == key:
                del self._owners[identity]
        for identity in known:
            self._owners[identity] = key
        self._claimed[key] = known
        self._by_stem.setdefault((key.host, _stem_of(key)), {})[key] = None

    def keep_only(self, keys: Container[Key]) -> None:
        """Forget the files of sources that are not among *keys*."""
        for key in [key for key in self._claimed if key not in keys]:
            self.claim(key, ())
            del self._claimed[key]
            namesakes = self._by_stem[key.host, _stem_of(key)]
            del namesakes[key]
            if not namesakes:
                del self._by_stem[key.host, _stem_of(key)]

    def sort(self, key: Key, listing: Listing) -> Sorted:
        """Return which files of *listing*, of the source *key*, are its own."""
        lent: dict[Key, tuple[ChainFile, ...]] = {}
        kept: list[ChainFile] = []
        now_s = self._clock()
        seen_s = self._watermark.listed(now_s)
        # Each one that is decided on goes at once: a younger file of this listing may wait for it.
        held = self._held.setdefault(key, {})
        was_holding = bool(held)
        for gone in held.keys() - {file.identity for file in listing.files}:
            del held[gone]
        for file in listing.files:
            owner = self._owner_of(file, key, now_s)
            before = held.pop(file.identity, None)
            if isinstance(owner, Undecided):
                hold = held[file.identity] = _hold_on(
                    file, owner, before, now_s, seen_s, self._patience_s
                )
                if not hold.is_over:
                    continue
                owner = key
            if owner == key:
                kept.append(file)
            else:
                lent[owner] = (*lent.get(owner, ()), replace(file, is_live=False))
        if held or was_holding:
            self._note_undecided()
        if not held:
            del self._held[key]
        former = self._lent.pop(key, {})
        if lent:
            self._lent[key] = lent
        changed = {
            owner for owner in former.keys() | lent.keys() if former.get(owner) != lent.get(owner)
        }
        is_held = not all(hold.is_over for hold in held.values())
        return Sorted(replace(listing, files=tuple(kept)), changed, is_held)

    def undecided_since_s(self, key: Key) -> float:
        """Return the time since which there is a file that may belong to the source *key*, and is
        not decided on; infinity if there is none.
        """
        return self._undecided.get(key, math.inf)

    def _note_undecided(self) -> None:
        undecided: dict[Key, float] = {}
        for hold in self._waiting():
            for owner in hold.owners:
                undecided[owner] = min(hold.since_s, undecided.get(owner, math.inf))
        self._undecided = undecided

    def of(self, key: Key) -> tuple[ChainFile, ...]:
        """Return the files of *key* whose names belong to other sources."""
        return tuple(file for lent in self._lent.values() for file in lent.get(key, ()))

    def with_lent(self, key: Key, own: Listing) -> Listing:
        """Return *own*, the files whose names belong to the source *key*, with those that other
        names belong to. A file has several names if it is linked, or if its folder is reached on
        several paths: it comes once, under its own name if it has one.
        """
        named = {file.identity for file in own.files}
        lent = {file.identity: file for file in self.of(key) if file.identity not in named}
        return Listing(own.id, (*lent.values(), *own.files))

    def _owner_of(self, file: ChainFile, key: Key, now_s: float) -> Key | Undecided:
        """Return which source owns *file*, whose name belongs to the source *key*."""
        known = self._owners.get(file.identity)
        if known is not None or file.is_aside:
            return known or key
        own = self._chain_of(key)
        if own is not None and (file.is_live or _begins_as_one_of(file, own)):
            return key  # the next live file, whatever it holds, or a copy of a former one
        others = self._possible_owners(file, key)
        chains = ((other, self._chain_of(other)) for other in others)
        likely = [(other, chain) for other, chain in chains if chain is not None]
        owner = _owner_by_content(file, likely, now_s) if likely else NO_OWNER
        if owner != NO_OWNER:
            if isinstance(owner, Key) and self._has_older_held(file, owner):
                return Undecided(frozenset({owner}), is_copy=True, is_awaited=True)
            return owner
        # A source of the former process may recognise it, once its own files were listed.
        expected = frozenset(other for other in others if self._is_expected(other))
        return Undecided(expected) if expected else key

    def _has_older_held(self, file: ChainFile, owner: Key) -> bool:
        """Return whether a file that is older than *file* is awaited by *owner*, too: where both
        begin with the same bytes, it is the older one that continues these.
        """
        return any(
            hold.is_awaited and owner in hold.owners and hold.mtime_ns < file.mtime_ns
            for hold in self._waiting()
        )

    def _waiting(self) -> Iterator[_Held]:
        """Yield the files that are held back now."""
        for holds in self._held.values():
            yield from (hold for hold in holds.values() if not hold.is_over)

    def _possible_owners(self, file: ChainFile, key: Key) -> list[Key]:
        """Return the sources from whose names a rotator may have made the name of *file*, which
        belongs to the source *key*.
        """
        name = file.path.name
        stems = (name[:end] for end in range(1, len(name) + 1))
        found = (self._by_stem.get((key.host, stem), {}) for stem in stems)
        return [other for keys in found for other in keys if other != key]


@dataclass(frozen=True, slots=True)
class Undecided:
    """A file may belong to one of *owners*. *is_copy*: it was read, and has some of their bytes.
    *is_awaited*: it belongs to one, unless a file of that one turns up.
    """

    owners: frozenset[Key]
    is_copy: bool = False
    is_awaited: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A file that is held back, since it may belong to one of *owners*. If it is a copy, it was
    seen to grow last at *grown_s*, to *size*.
    """

    owners: frozenset[Key]
    since_s: float
    size: int
    grown_s: float
    mtime_ns: int
    is_awaited: bool
    is_over: bool  # for good: from then on it is a log of its own


def _hold_on(
    file: ChainFile,
    found: Undecided,
    before: _Held | None,
    now_s: float,
    seen_s: float,
    patience_s: float,
) -> _Held:
    """Return how *file* is held from now on, given how it was held *before*, if it was. *seen_s* is
    the time up to which all folders were listed; a later listing may show its owner.
    """
    # The length is asked for: not each write to a file makes a new listing.
    size, _ = look_now(file) or (file.size, 0)
    since_s, grown_s, is_over = now_s, now_s, False
    if before is not None:
        # A file that cannot be read is not held longer because it grows: its own source should soon
        # report that it is unreadable.
        has_grown = found.is_copy and size != before.size
        since_s, is_over = before.since_s, before.is_over
        # How long a file is awaited is decided by its source, which may have missed it just now.
        grown_s = now_s if has_grown or found.is_awaited else before.grown_s
    is_over = is_over or seen_s - grown_s >= patience_s or seen_s - since_s >= HELD_GROWING_S
    return _Held(
        owners=found.owners,
        since_s=since_s,
        size=size,
        grown_s=grown_s,
        mtime_ns=file.mtime_ns,
        is_awaited=found.is_awaited,
        is_over=is_over,
    )


@dataclass(frozen=True, slots=True)
class Sorted:
    """A *listing* without the files that other sources own; the sources whose files changed by it;
    and whether files are held because their owner is undecided.
    """

    listing: Listing
    changed: set[Key]
    is_held: bool


NO_OWNER = Key("", "")


def _owner_by_content(
    file: ChainFile, likely: list[tuple[Key, Chain]], now_s: float
) -> Key | Undecided:
    owners = frozenset(key for key, _ in likely)
    try:
        content = open_reader(file, follow_link=False)
    except NOT_READ:
        return Undecided(owners)
    try:
        resemblances = [(key, chain.resemblance(content, now_s)) for key, chain in likely]
    except OSError:
        return Undecided(owners)
    finally:
        content.close()
    for key, found in resemblances:
        if found is Resemblance.CONTINUES:
            return key
    kinds = {found for _, found in resemblances}
    if kinds == {Resemblance.NONE}:
        return NO_OWNER
    return Undecided(owners, is_copy=True, is_awaited=Resemblance.AWAITS in kinds)


# Of 1,000 folders with an `access.log`, all may be rotated at once: each packed file would be
# compared with all files of all the others. So many first bytes are alike only in copies.
def _begins_as_one_of(file: ChainFile, own: Chain) -> bool:
    """Return whether *file*, which has a name of the source that *own* reads, begins as a file of
    this source.
    """
    try:
        content = open_reader(file, follow_link=False)
    except NOT_READ:
        return False
    try:
        head = Head.of(content)
    except OSError:
        return False
    finally:
        content.close()
    return head.size == HEAD_BYTES and head in own.heads()


def _stem_of(key: Key) -> str:
    """Return what the names begin with that rotators give to the files of *key*; nothing comes from
    an empty one.
    """
    return Path(key.source).name.split(".", 1)[0]
