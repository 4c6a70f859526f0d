"""The state of each stream in a table: its position, and which bytes of which sources were read. It
decides which marked messages of a batch bring new bytes, by the collectors' own rule.

Pure: the same messages lead to the same knowledge, however a batch was cut into tasks.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from logpipeline import json_text
from logpipeline.deduplication import NOTHING, Range, SourceState, decide, decode, encode
from logpipeline_spark.errors import Damaged
from logpipeline_spark.lines.messages import Seen
from logpipeline_spark.source.offsets import Position
from logpipeline_spark.table.state import Kept

# As many as a collector knows. Those without news for the longest time are forgotten first.
SOURCES_MAX = 250_000

SourceName = tuple[str, str]
Known = dict[SourceName, SourceState]


class Wanted(NamedTuple):
    """A marked message and the *ranges* of its bytes that are new."""

    sequence: int
    ranges: tuple[Range, ...]


class Learned(NamedTuple):
    """The result of a batch for one stream: marked messages that are *wanted*, the sources that
    *changed* or were forgotten, and two numbers for metrics: bytes that came twice *unmarked*, and
    how many more bytes are *missing* than before.
    """

    wanted: tuple[Wanted, ...]
    changed: tuple[SourceName, ...]
    unmarked_bytes: int
    missing_bytes: int


def learn(known: Known, seen: Seen) -> Learned:
    """Update *known* by what was *seen* in a range of one stream.

    *known* is changed in place; the source that changed last stands last in it.
    """
    wanted: list[Wanted] = []
    changed: dict[SourceName, None] = {}
    unmarked = missing = 0
    runs = [(run, False) for run in seen.runs] + [(run, True) for run in seen.marked]
    for run, is_marked in sorted(runs, key=lambda pair: pair[0].first):
        name = (run.host, run.source)
        before = known.pop(name, NOTHING)
        # What changed last stands last here as well.
        changed.pop(name, None)
        changed[name] = None
        decision = decide(before, run.batch)
        known[name] = decision.after
        missing += decision.after.missing - before.missing
        new = sum(part.end - part.start for part in decision.ranges)
        if not is_marked:
            unmarked += run.end - run.start - new
        elif decision.ranges:
            wanted.append(Wanted(run.first, decision.ranges))
    while len(known) > SOURCES_MAX:
        forgotten = next(iter(known))
        missing -= known.pop(forgotten).missing
        changed[forgotten] = None
    return Learned(tuple(wanted), tuple(changed), unmarked, missing)


log = logging.getLogger(__name__)


@dataclass(slots=True)
class StreamState:
    """The state of one stream; *position* is None before the first commit."""

    position: Position | None = None
    known: Known = field(default_factory=dict)

    def kept(self, changed: Iterable[SourceName]) -> Kept:
        """Return the stored form, in which the sources *changed* differ from the last batch."""
        rows = {_key(name): self._row(name) for name in changed}
        return Kept(
            None if self.position is None else asdict(self.position),
            rows,
            lambda: {_key(name): encode(knowledge) for name, knowledge in self.known.items()},
        )

    def _row(self, name: SourceName) -> Any:
        """Return the stored form of a source; None if it is forgotten."""
        knowledge = self.known.get(name)
        return None if knowledge is None else encode(knowledge)

    @staticmethod
    def of(head: Any, rows: Mapping[str, Any], *, where: str) -> StreamState:
        """Read the stored form.

        Raises:
            Damaged: it is something else; *where* names the table and the stream.
        """
        try:
            position = None if head is None else Position(**head)
            known = {_name(key): decode(row) for key, row in rows.items()}
        except (ValueError, KeyError, TypeError) as error:
            raise Damaged(
                f"the state of {where} is damaged or of another version ({error}): restore its "
                "folder _table from a backup, or use the version of logpipeline that wrote it"
            ) from error
        return StreamState(position, known)


def _key(name: SourceName) -> str:
    return json.dumps(name)


def _name(key: str) -> SourceName:
    host, source = json_text.parse(key)
    return str(host), str(source)
