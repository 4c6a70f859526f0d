"""What a task of Spark does: it reads a range, writes its lines and counts, and tells what it saw.

It runs in an executor's Python, so all that it needs comes with it, and it can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from logpipeline.failpoints import reach
from logpipeline_spark.lines.columns import NONE, Columns
from logpipeline_spark.lines.opening import Opened, groups
from logpipeline_spark.lines.sources import Seen, joined, seen_of
from logpipeline_spark.lines.table import tables_of
from logpipeline_spark.rollup.counts import MINUTES, SOURCES, added, by_minute, by_source
from logpipeline_spark.running.known import Wanted
from logpipeline_spark.source.options import SourceOptions
from logpipeline_spark.source.tasks import RangeTask, read_task
from logpipeline_spark.table.entry import FileEntry
from logpipeline_spark.table.names import ROLLUP_MINUTE, ROLLUP_SOURCE, FileName
from logpipeline_spark.table.storage import Storage
from logpipeline_spark.table.write import write_range

RESENT = "resent"
# Partial counts of a task are added up when there are so many of them.
PARTS_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What all tasks of a batch need; *writer* is the table's writer, by its number."""

    options: SourceOptions
    storage: Storage
    writer: int
    has_rollups: bool
    columns: Columns = NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A *part* of a stream; with *wanted*, nothing of it but those marked messages."""

    part: RangeTask
    wanted: tuple[Wanted, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a task wrote and saw of a part that begins at *first*; *lost* are the sequences, from
    first to last, that were gone when it came to them.
    """

    stream: str
    first: int
    files: tuple[FileEntry, ...]
    rows: int
    seen: Seen
    lost: tuple[tuple[int, int], ...] = ()


def run(work: Work, task: Task) -> Done:
    """Do *task*.

    Raises:
        Refused: the server or the storage does not do what is asked for.
    """
    reader, part = _Reader(work, task), task.part
    kind = "" if task.wanted is None else RESENT
    name = FileName(
        part.stream, part.end.incarnation, part.first, part.last, writer=work.writer, kind=kind
    )
    files = write_range(work.storage, reader.tables(), name)
    reach("table.lines-written")
    if work.has_rollups:
        for area, schema, parts in (
            (ROLLUP_MINUTE, MINUTES, reader.minutes),
            (ROLLUP_SOURCE, SOURCES, reader.sources),
        ):
            counts = added(parts, schema)
            files += write_range(work.storage, [counts], name, area=area)
    reach("table.task-done")
    return Done(
        stream=part.stream,
        first=part.first,
        files=tuple(files),
        rows=reader.rows,
        seen=joined(reader.seen),
        lost=tuple(reader.lost),
    )


@dataclass(slots=True)
class _Reader:
    """The lines of a task, and what is counted on the way."""

    work: Work
    task: Task
    rows: int = 0
    seen: list[Seen] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)
    minutes: list[pa.Table] = field(default_factory=list)
    sources: list[pa.Table] = field(default_factory=list)

    def tables(self) -> Iterator[pa.Table]:
        task, options = self.task, self.work.options
        origin = task.part.origin(options)
        for messages in read_task(options, task.part, lost=self.lost):
            for group in groups(messages, origin):
                chosen = self._chosen(group)
                for table in tables_of(chosen, origin, self.work.columns) if chosen else ():
                    fitting = table if task.wanted is None else _cut(table, task.wanted)
                    self._count(fitting)
                    yield fitting

    def _chosen(self, group: Sequence[Opened]) -> list[Opened]:
        if self.task.wanted is not None:
            sequences = {wanted.sequence for wanted in self.task.wanted}
            return [opened for opened in group if opened.message.sequence in sequences]
        self.seen.append(seen_of(group))
        # Whether marked ones are new is not known here.
        return [opened for opened in group if not opened.is_marked]

    def _count(self, table: pa.Table) -> None:
        self.rows += table.num_rows
        if not self.work.has_rollups:
            return
        self.minutes.append(by_minute(table))
        self.sources.append(by_source(table))
        if len(self.minutes) >= PARTS_MAX:
            self.minutes = [added(self.minutes, MINUTES)]
            self.sources = [added(self.sources, SOURCES)]


def _cut(table: pa.Table, wanted: Sequence[Wanted]) -> pa.Table:
    """Return the lines of *table* that begin in the wanted ranges of their messages."""
    ranges = {each.sequence: each.ranges for each in wanted}
    sequences = table["seq"].to_numpy()
    offsets = table["offset"].to_numpy()
    kept = np.zeros(table.num_rows, np.bool_)
    for sequence in np.unique(sequences):
        ours = sequences == sequence
        for part in ranges[int(sequence)]:
            kept |= ours & (offsets >= part.start) & (offsets < part.end)
    return table.filter(pa.array(kept))
