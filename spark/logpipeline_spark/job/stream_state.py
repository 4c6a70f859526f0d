"""The state of each stream in a table: its position, and which bytes of which sources were read. It
decides which marked messages of a batch bring new bytes, by the collectors' rule for messages
without checksums: many are decided as one range, and the checksums within it are not known.

Pure: the same messages lead to the same knowledge, however a batch was cut into tasks.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from logpipeline import json_text
from logpipeline.deduplication import NOTHING, Range, SourceState, decide, decode, encode
from logpipeline_spark.errors import Damaged
from logpipeline_spark.lines.messages import Run, Seen
from logpipeline_spark.source.offsets import Position
from logpipeline_spark.table.state import Kept

SourceName = tuple[str, str]
Known = dict[SourceName, SourceState]


class Wanted(NamedTuple):
    """A marked message and the *ranges* of its bytes that are new."""

    sequence: int
    ranges: tuple[Range, ...]


class Learned(NamedTuple):
    """The result of a batch for one stream: marked messages that are *wanted*, and the sources that
    *changed*, as they are known once these are written; the one that changed last stands last.
    Two numbers for metrics: bytes that came twice *unmarked*, and how many more bytes are *missing*
    than before.
    """

    wanted: tuple[Wanted, ...]
    changed: Mapping[SourceName, SourceState]
    unmarked_bytes: int
    missing_bytes: int


def learn(known: Mapping[SourceName, SourceState], seen: Seen) -> Learned:
    """Return the result of what was *seen* in a range of one stream; *known* was known before.
    Nothing is changed by it: what is wanted may be deleted before it is written.
    """
    wanted: list[Wanted] = []
    changed: dict[SourceName, SourceState] = {}
    unmarked = 0
    runs = [(run, False) for run in seen.runs] + [(run, True) for run in seen.marked]
    for run, is_marked in sorted(runs, key=lambda pair: pair[0].first):
        name = (run.host, run.source)
        before = changed.pop(name, None) or known.get(name, NOTHING)
        decision = decide(before, run.batch)
        changed[name] = decision.after
        new = sum(part.end - part.start for part in decision.ranges)
        if not is_marked:
            unmarked += run.end - run.start - new
        elif decision.ranges:
            wanted.append(Wanted(run.first, decision.ranges))
    missing = sum(
        after.missing - known.get(name, NOTHING).missing for name, after in changed.items()
    )
    return Learned(tuple(wanted), changed, unmarked, missing)


def as_written(seen: Seen, written: Mapping[int, Sequence[Range]], gone: Container[int]) -> Seen:
    """Return *seen* without the marked messages that are *gone*, and with no more of others than
    what was *written* of them, by sequence, if they were wanted.
    """
    marked: list[Run] = []
    for run in seen.marked:
        if run.first in gone:
            continue
        if run.first not in written:
            marked.append(run)
            continue
        for part in written[run.first]:
            begins = run.begins and part.start == run.start
            marked.append(run._replace(start=part.start, end=part.end, begins=begins))
    return Seen(seen.runs, tuple(marked))


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
