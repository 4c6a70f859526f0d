"""The knowledge of all sources of a partition: as read, as committed, and the changes between."""

from __future__ import annotations

import logging
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping

from logpipeline import json_text, zstd
from logpipeline.deduplication import (
    NOTHING,
    Decision,
    Loss,
    SourceState,
    all_committed_of,
    committed_of,
    decide,
    decode,
)
from logpipeline.extents import Repeat, Sums
from logpipeline.records import Committed, Question
from logpipeline.source_room import (
    FORGOTTEN,
    SOURCES_BYTES_MAX,
    SOURCES_MAX,
    SourceRoom,
    with_forgotten,
)
from logpipeline.wire import Batch
from logpipeline_collector.sink import LocalCommit, SourceName

log = logging.getLogger(__name__)

# Commits whose changes are known one by one. Who asks for older changes gets all sources.
COMMITS_LISTED_MAX = 1024
# Messages in the log between two commits; metrics count all of them.
NAMED_MAX = 20
SNAPSHOT_VERSION = 1
# Four times what sources may take. A damaged snapshot must not take all memory.
SNAPSHOT_BYTES_MAX = 512 * 1024 * 1024
LEVEL = 1

HOLE = "bytes are missing before a message"
CONTRADICTED = "a message contradicts what was written: one of both is forged, and both are kept"
OVER_LIMIT = (
    "a host has so many sources, or such long names, that the oldest are forgotten: of these, what "
    "is sent again is written again, and what comes next counts as behind missing bytes"
)


class Sources:
    """The sources of one partition. *forgotten* counts the sources that were forgotten, whole or
    but for their newest generations, because there were more than `SOURCES_MAX` or
    `SOURCES_BYTES_MAX` allow.
    """

    def __init__(self) -> None:
        self.missing_bytes = 0
        self.lost_bytes = 0
        self.forgotten = 0
        # Whether the group skipped what was stored before it began.
        self.is_from_midway = False
        self._known: dict[SourceName, SourceState] = {}
        self._room = _room()
        self._committed: dict[SourceName, SourceState] = {}
        self._changed: dict[SourceName, SourceState | None] = {}
        self._changes: deque[tuple[int, tuple[SourceName, ...]]] = deque(maxlen=COMMITS_LISTED_MAX)
        self._complete_since = 0
        self._last = 0
        self._named = 0

    @property
    def stored_bytes(self) -> int:
        """Bytes that a snapshot of what is known takes at most, uncompressed."""
        return self._room.bytes

    @property
    def committed(self) -> Mapping[SourceName, SourceState]:
        """What is committed of each source."""
        return self._committed

    def load(self, committed: dict[SourceName, SourceState], last: LocalCommit | None) -> None:
        """Forget everything but what is *committed*."""
        self._known, self._committed = dict(committed), committed
        self._changed = {}
        self._changes.clear()
        self._last = self._complete_since = last.number if last is not None else 0
        self._sum_up()

    def decide(
        self, host: str, batch: Batch, *, repeat: Repeat | None = None, sums: Sums | None = None
    ) -> Decision:
        """Return what is new in *batch* of *host*; `logpipeline.deduplication.decide` explains
        *repeat* and *sums*. Nothing is changed by it.
        """
        known = self._known.get((host, batch.source), NOTHING)
        midway = self.is_from_midway
        return decide(known, batch, is_from_midway=midway, repeat=repeat, sums=sums)

    def learn(self, host: str, batch: Batch, decision: Decision, *, sequence: int = 0) -> None:
        """Take over *decision*, whose bytes were written."""
        name = (host, batch.source)
        known = self._known.get(name)
        before = NOTHING if known is None else known
        self._known[name] = self._changed[name] = decision.after
        self._room.note(name, known, decision.after)
        if decision.after.generations is not before.generations:
            self.missing_bytes += decision.after.missing - before.missing
        self.lost_bytes += decision.after.lost - before.lost
        for generation, start, end in decision.holes:
            self._name(HOLE, name, generation, end - start, sequence)
        if decision.contradicted:
            self._name(CONTRADICTED, name, batch.generation, decision.contradicted, sequence)
        self._keep_limits()

    def replace(self, sources: dict[SourceName, SourceState]) -> None:
        """Know only *sources*, from the next commit on."""
        self._changed = {**dict.fromkeys(self._committed), **sources}
        self._known = dict(sources)
        self._sum_up()

    def take_changes(self) -> Mapping[SourceName, SourceState | None]:
        """Return what changed since the last call; None: the source is forgotten."""
        changed, self._changed, self._named = self._changed, {}, 0
        return changed

    def commit(self, number: int, changed: Mapping[SourceName, SourceState | None]) -> None:
        """Note that *changed* is committed, as commit *number*."""
        for name, known in changed.items():
            if known is None:
                self._committed.pop(name, None)
            else:
                self._committed[name] = known
        if len(self._changes) == COMMITS_LISTED_MAX:
            self._complete_since = self._changes[0][0]
        self._changes.append((number, tuple(changed)))
        self._last = number

    def changed_since(self, commit: int) -> tuple[int, list[tuple[str, Committed]]]:
        """Return the number of the last commit, and (host, source) of all that changed in commits
        after *commit*, as committed.
        """
        names: Mapping[SourceName, object] = self._committed
        if commit >= self._complete_since and commit:
            names = {
                name: None
                for number, changed in self._changes
                if number > commit
                for name in changed
            }
        return self._last, [
            (name[0], committed_of(name[1], self._committed[name]))
            for name in names
            if name in self._committed and name != FORGOTTEN
        ]

    def asked(self, host: str, question: Question) -> list[Committed]:
        """Return how far the generations of *host* are committed that *question* asks for."""
        if question.generations is None:
            return [
                committed
                for (owner, source), known in self._committed.items()
                if owner == host
                for committed in all_committed_of(source, known)
            ]
        wanted: defaultdict[str, set[str]] = defaultdict(set)
        for source, generation in question.generations:
            wanted[source].add(generation)
        return [
            committed
            for source, generations in wanted.items()
            for committed in all_committed_of(
                source, self._committed.get((host, source), NOTHING), generations
            )
        ]

    def is_begun_by(self, host: str, batch: Batch) -> bool:
        """Return whether the first byte of *batch* would count as the begin of its source."""
        known = self._known.get((host, batch.source), NOTHING)
        return self.is_from_midway and not known.generations

    def missing(self) -> Iterator[tuple[str, str, int]]:
        """Yield host, source and bytes of what never came, for all sources that are known."""
        for name, known in self._known.items():
            if known.missing and name != FORGOTTEN:
                yield *name, known.missing

    def losses(self) -> Iterator[tuple[str, str, Loss]]:
        """Yield host, source and loss for all that shippers named as lost."""
        for (host, source), known in self._known.items():
            for loss in known.losses:
                yield host, source, loss

    def _sum_up(self) -> None:
        self.missing_bytes = sum(known.missing for known in self._known.values())
        self.lost_bytes = sum(known.lost for known in self._known.values())
        self._room = _room()
        for name, known in self._known.items():
            if name != FORGOTTEN:
                self._room.note(name, None, known)
        self._keep_limits()

    def _keep_limits(self) -> None:
        if not self._room.is_over:
            return
        forgotten: Counter[str] = Counter()
        for name, left in self._room.make(self._known.__getitem__):
            forgotten[name[0]] += 1
            if left is None:
                self._forget(name)
            else:
                self._known[name] = self._changed[name] = left
        self.forgotten += forgotten.total()
        for host, count in forgotten.most_common():
            self._warn(OVER_LIMIT, {"host": host, "sources": count})

    def _forget(self, name: SourceName) -> None:
        known = self._known.pop(name)
        self._changed[name] = None
        if known.missing or known.lost:
            sums = with_forgotten(self._known.get(FORGOTTEN), known)
            self._known[FORGOTTEN] = self._changed[FORGOTTEN] = sums

    def _name(self, what: str, name: SourceName, generation: str, size: int, sequence: int) -> None:
        self._warn(
            what,
            {
                "host": name[0],
                "source": name[1],
                "generation": generation,
                "bytes": size,
                "sequence": sequence,
            },
        )

    def _warn(self, what: str, fields: Mapping[str, object]) -> None:
        self._named += 1
        if self._named <= NAMED_MAX:
            log.warning(what, extra=fields)


def _room() -> SourceRoom[str]:
    return SourceRoom(SOURCES_MAX, SOURCES_BYTES_MAX)


class BadSnapshot(ValueError):
    """Bytes that are not a snapshot of sources, or one of another version."""


def encode_snapshot(rows: Iterable[tuple[str, str]]) -> bytes:
    """Return a snapshot of *rows*: name and knowledge as they are stored, in JSON.

    Raises:
        BadSnapshot: it is larger than `decode_snapshot` takes.
    """
    sources = ",".join(f"[{name},{knowledge}]" for name, knowledge in rows)
    body = f'{{"version":{SNAPSHOT_VERSION},"sources":[{sources}]}}'.encode()
    if len(body) > SNAPSHOT_BYTES_MAX:
        raise BadSnapshot(f"{len(body)} bytes of sources; a snapshot has {SNAPSHOT_BYTES_MAX}")
    return zlib.crc32(body).to_bytes(4, "big") + zstd.Compressor(LEVEL).compress(body)


def decode_snapshot(data: bytes) -> dict[SourceName, SourceState]:
    """Return the sources of a snapshot; the empty one has none.

    Raises:
        BadSnapshot: it is damaged, or of another version.
    """
    if not data:
        return {}
    try:
        body = zstd.decompress(data[4:], SNAPSHOT_BYTES_MAX)
        if zlib.crc32(body).to_bytes(4, "big") != data[:4]:
            raise BadSnapshot("the snapshot's checksum does not match")
        read = json_text.parse(body)
        if read["version"] != SNAPSHOT_VERSION:
            raise BadSnapshot(f"version {read['version']}; this program knows {SNAPSHOT_VERSION}")
        return {(str(h), str(s)): decode(known) for (h, s), known in read["sources"]}
    except (zstd.ZstdError, ValueError, KeyError, TypeError) as error:
        raise BadSnapshot(f"not a snapshot of sources: {error}") from error
