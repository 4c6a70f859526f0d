"""The knowledge of the sources of all streams of one table, within limits: it has to fit into
memory, and into a state that the next start can read.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

from logpipeline.deduplication import SourceState
from logpipeline.source_room import (
    FORGOTTEN,
    SOURCES_BYTES_MAX,
    SOURCES_MAX,
    SourceRoom,
    with_forgotten,
)
from logpipeline_spark.job.stream_state import Learned, SourceName, StreamState
from logpipeline_spark.table.state import Kept

log = logging.getLogger(__name__)

# Hosts in the log each time that sources are forgotten; a metric counts all of them.
NAMED_MAX = 20
OVER_LIMIT = (
    "a host has so many sources, or such long names, that the oldest are forgotten: of these, what "
    "is sent again comes twice, and what comes next counts as behind missing bytes"
)

# A host counts for itself in each stream: it has more than one only when partitions moved.
_Host = tuple[str, str]
_Name = tuple[_Host, str]


class Knowledge:
    """What is known of the sources of all streams, and what of it changed since it was last stored.
    Of the streams together there are at most `SOURCES_MAX` sources, of `SOURCES_BYTES_MAX`.
    *missing_bytes* are those of all sources, also of forgotten ones.
    """

    def __init__(self, states: Mapping[str, StreamState]) -> None:
        self.states = states
        self.missing_bytes = 0
        self._forgotten = 0
        self._room: SourceRoom[_Host] = SourceRoom(SOURCES_MAX, SOURCES_BYTES_MAX)
        self._changed: dict[str, dict[SourceName, None]] = {name: {} for name in states}
        for stream, state in states.items():
            for (host, source), known in state.known.items():
                self.missing_bytes += known.missing
                if (host, source) != FORGOTTEN:
                    self._room.note(((stream, host), source), None, known)
        self._make_room()

    def take(self, learned: Mapping[str, Learned]) -> None:
        """Take over what was *learned* of each stream."""
        for stream, found in learned.items():
            self.missing_bytes += found.missing_bytes
            for (host, source), after in found.changed.items():
                before = self.states[stream].known.get((host, source))
                self._room.note(((stream, host), source), before, after)
                self._set(stream, (host, source), after)
        self._make_room()

    def take_forgotten(self) -> int:
        """Return how many sources were forgotten since the last call for want of room, whole or but
        for their newest generations.
        """
        forgotten, self._forgotten = self._forgotten, 0
        return forgotten

    def kept(self) -> dict[str, Kept]:
        """Return the stored form of all streams, in which differs what changed since the last
        call.
        """
        kept = {name: state.kept(self._changed[name]) for name, state in self.states.items()}
        self._changed = {name: {} for name in self.states}
        return kept

    def _set(self, stream: str, name: SourceName, after: SourceState | None) -> None:
        """Know *after* of a source; what changed last stands last."""
        known, changed = self.states[stream].known, self._changed[stream]
        known.pop(name, None)
        changed.pop(name, None)
        changed[name] = None
        if after is not None:
            known[name] = after

    def _make_room(self) -> None:
        forgotten: Counter[_Host] = Counter()
        for ((stream, host), source), left in self._room.make(self._of):
            forgotten[stream, host] += 1
            if left is None:
                self._forget(stream, (host, source))
            else:
                # It counts as no newer.
                self.states[stream].known[host, source] = left
                self._changed[stream][host, source] = None
        self._forgotten += forgotten.total()
        for (stream, host), count in forgotten.most_common(NAMED_MAX):
            log.warning(OVER_LIMIT, extra={"stream": stream, "host": host, "sources": count})

    def _forget(self, stream: str, name: SourceName) -> None:
        states = self.states[stream].known
        known = states[name]
        self._set(stream, name, None)
        if known.missing or known.lost:
            self._set(stream, FORGOTTEN, with_forgotten(states.get(FORGOTTEN), known))

    def _of(self, name: _Name) -> SourceState:
        (stream, host), source = name
        return self.states[stream].known[host, source]
