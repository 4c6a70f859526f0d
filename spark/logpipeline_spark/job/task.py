"""A task of Spark: it reads ranges of streams, writes their lines and counts, and reports what it
read.

It runs in an executor's Python process, receives everything it needs, and can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import ceil

import numpy as np
import pyarrow as pa

from logpipeline import cri
from logpipeline.deduplication import Range
from logpipeline.failpoints import reach
from logpipeline.wire import Batch
from logpipeline_spark.job.stream_state import Wanted
from logpipeline_spark.lines.arrow import tables_of
from logpipeline_spark.lines.messages import Opened, Seen, groups, joined, seen_of
from logpipeline_spark.lines.schema import NONE, Columns
from logpipeline_spark.source.client import Client
from logpipeline_spark.source.options import SourceOptions
from logpipeline_spark.source.planning import TASK_BYTES_MAX, worth_starting
from logpipeline_spark.source.ranges import RangeTask, read_range
from logpipeline_spark.table.counts import COUNTED, added, by_minute, by_source, countable, counted
from logpipeline_spark.table.files import ROLLUP_MINUTE, ROLLUP_SOURCE, FileEntry, FileName
from logpipeline_spark.table.parquet import write_range, write_ranges
from logpipeline_spark.table.storage import Storage

RESENT = "resent"
# Lines wait until there are so many to count: some megabytes, without their text.
WAITING_ROWS_MAX = 64 * 1024
# Partial counts of a task are added up when there are so many of them.
PARTS_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The input that all tasks of a batch share; *writer* is the number of the table's writer."""

    options: SourceOptions
    storage: Storage
    writer: int
    has_rollups: bool
    columns: Columns = NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """*parts* of streams, which are read one after the other; with *wanted*, only those marked
    messages of them, by stream.
    """

    parts: tuple[RangeTask, ...]
    wanted: Mapping[str, tuple[Wanted, ...]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The result for a part that begins at *first*: the *rows* that were written, the bytes that
    were *seen*, and the *lost* sequences, as pairs of first and last, that were deleted before they
    were read. *gone* are the marked messages that were wanted and did not come.
    """

    stream: str
    first: int
    rows: int
    seen: Seen
    lost: tuple[tuple[int, int], ...] = ()
    gone: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The files that a task wrote, none of them before it had *begun*, and the results for its
    parts.
    """

    files: tuple[FileEntry, ...]
    parts: tuple[Part, ...]
    begun: datetime = field(compare=False)


def run(work: Work, task: Task, attempt: int = 0) -> Done:
    """Run *task*; *attempt* is 0 for the first time, and counts repetitions.

    Raises:
        Refused: the server or the storage refuses a request.
    """
    name = _name(work, task, attempt)
    counts, begun = _Counts(), datetime.now(UTC)
    with Client(work.options) as client:
        readers = [_Reader(work, task, part, client, counts) for part in task.parts]
        files = write_ranges(work.storage, (reader.tables() for reader in readers), name)
    reach("table.lines-written")
    if work.has_rollups:
        found = counts.all()
        for area, of_area in ((ROLLUP_MINUTE, by_minute(found)), (ROLLUP_SOURCE, by_source(found))):
            files += write_range(work.storage, [of_area], name, area=area)
    reach("table.task-done")
    parts = tuple(reader.part_done() for reader in readers)
    return Done(files=tuple(files), parts=parts, begun=begun)


def bundled(parts: Sequence[RangeTask], at_once: int) -> list[Task]:
    """Return tasks of about the same number of bytes that read *parts* in their order. There are no
    more of them than can run *at once* and are worth it, or than the size limit of a task needs.
    """
    sizes = [(part.last - part.first + 1) * part.end.message_bytes for part in parts]
    count = max(worth_starting(sum(sizes), at_once), ceil(sum(sizes) / TASK_BYTES_MAX))
    share = sum(sizes) / count
    tasks: list[list[RangeTask]] = []
    before, number = 0, -1
    for part, size in zip(parts, sizes, strict=True):
        # By its middle: a part that crosses a border goes to the task that has most of it.
        found = int((before + size / 2) / share) if share else 0
        if found != number:
            tasks.append([])
        tasks[-1].append(part)
        before, number = before + size, found
    return [Task(parts=tuple(each)) for each in tasks]


def _name(work: Work, task: Task, attempt: int) -> FileName:
    first, *others = task.parts
    return FileName(
        first.stream,
        first.end.incarnation,
        first.first,
        first.last,
        writer=work.writer,
        kind="" if task.wanted is None else RESENT,
        more=len(others),
        attempt=attempt,
    )


@dataclass(slots=True)
class _Counts:
    """The counts of all parts of a task. Lines wait until there are many, since to count a few
    lines costs as much as to count thousands.
    """

    _waiting: list[pa.Table] = field(default_factory=list)
    _rows: int = 0
    _parts: list[pa.Table] = field(default_factory=list)

    def add(self, lines: pa.Table) -> None:
        # The text, which is most of a line, does not wait.
        self._waiting.append(countable(lines))
        self._rows += lines.num_rows
        if self._rows >= WAITING_ROWS_MAX:
            self._count()

    def all(self) -> pa.Table:
        """Return the counts of all lines in the form of `counted`; several rows may have the same
        group.
        """
        self._count()
        return pa.concat_tables([COUNTED.empty_table(), *self._parts])

    def _count(self) -> None:
        if not self._rows:
            return
        # Each table has its own dictionaries, and Arrow groups by a common one only.
        lines = pa.concat_tables(self._waiting).unify_dictionaries()
        self._waiting, self._rows = [], 0
        self._parts.append(counted(lines))
        if len(self._parts) >= PARTS_MAX:
            self._parts = [added(self._parts, COUNTED)]


@dataclass(slots=True)
class _Reader:
    """The lines of one part of a task."""

    work: Work
    task: Task
    part: RangeTask
    client: Client
    counts: _Counts
    rows: int = 0
    seen: list[Seen] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)
    came: set[int] = field(default_factory=set)

    def tables(self) -> Iterator[pa.Table]:
        options, part = self.work.options, self.part
        origin, wanted = part.origin(options), self._wanted()
        for messages in read_range(self.client, options, part, lost=self.lost):
            for group in groups(messages, origin):
                chosen = self._chosen(checked(group, part.end.known_until_ns), wanted)
                for table in tables_of(chosen, origin, self.work.columns) if chosen else ():
                    fitting = table if wanted is None else within(table, wanted)
                    self.rows += fitting.num_rows
                    if self.work.has_rollups:
                        self.counts.add(fitting)
                    yield fitting

    def part_done(self) -> Part:
        """Return the result, once everything is read."""
        return Part(
            stream=self.part.stream,
            first=self.part.first,
            rows=self.rows,
            seen=joined(self.seen),
            lost=tuple(self.lost),
            gone=tuple(
                each.sequence for each in self._wanted() or () if each.sequence not in self.came
            ),
        )

    def _wanted(self) -> tuple[Wanted, ...] | None:
        return None if self.task.wanted is None else self.task.wanted[self.part.stream]

    def _chosen(self, group: Sequence[Opened], wanted: Sequence[Wanted] | None) -> list[Opened]:
        if wanted is not None:
            self.came.update(opened.message.sequence for opened in group)
            return cut(group, wanted)
        self.seen.append(seen_of(group))
        # A task does not know whether marked messages are new.
        return [opened for opened in group if not opened.is_marked]


def checked(group: Sequence[Opened], known_until_ns: int) -> list[Opened]:
    """Return *group*, whose messages up to *known_until_ns* may have been read in an earlier
    incarnation of the stream: these are marked, so that their ranges decide. Those without a range
    count as read, as they do for collectors.
    """
    return [
        _marked(opened) if opened.message.time_ns <= known_until_ns else opened
        for opened in group
        if opened.batch is not None or opened.message.time_ns > known_until_ns
    ]


def _marked(opened: Opened) -> Opened:
    batch = opened.batch
    assert batch is not None
    # The sender of a message without a mark knows of no earlier sending.
    is_unsure = batch.unsure or not batch.resend
    return replace(opened, batch=replace(batch, resend=True, unsure=is_unsure))


def cut(group: Sequence[Opened], wanted: Sequence[Wanted]) -> list[Opened]:
    """Return the wanted ranges of the messages of *group*, each as a message of its own. A line of
    which a part is known already is cut there: its rest is a piece. Messages of CRI lines that
    would be cut within a line, and those of several ranges, stay whole; `within` chooses their
    rows.
    """
    ranges = {each.sequence: _joined(each.ranges) for each in wanted}
    found: list[Opened] = []
    for opened in group:
        batch, parts = opened.batch, ranges.get(opened.message.sequence, [])
        if batch is None or not parts:
            continue
        starts = [start - batch.start for start, _ in parts]
        begins = [not start or opened.data[start - 1 : start] == b"\n" for start in starts]
        # No shipper cuts there, unless a line of the runtime is too long for a message. What was
        # read up to there is known from rows, which do not say exactly where a line ends.
        # The rows of a message are numbered together, so it is not cut into several parts either.
        if len(parts) > 1 or (batch.format == "cri" and not all(begins)):
            found.append(opened)
            continue
        for (start, end), is_begin in zip(parts, begins, strict=True):
            # Rows hold no newline: nothing is left of a line that lacks only that.
            first = start - batch.start
            is_rest = not is_begin and opened.data[first : first + 1] == b"\n"
            if start + is_rest < end:
                found.append(_part(opened, batch, start + is_rest, end))
    return found


def within(table: pa.Table, wanted: Sequence[Wanted]) -> pa.Table:
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


def _joined(ranges: Sequence[Range]) -> list[tuple[int, int]]:
    """Return *ranges*, which rise; those that adjoin are one, so that no line is cut there."""
    found: list[tuple[int, int]] = []
    for part in ranges:
        start = found.pop()[0] if found and found[-1][1] == part.start else part.start
        found.append((start, part.end))
    return found


def _part(opened: Opened, batch: Batch, start: int, end: int) -> Opened:
    first, last = start - batch.start, end - batch.start
    starts_inside = batch.starts_inside_line if not first else _is_inside(opened, batch, first)
    is_end = end == batch.end
    ends_inside = batch.ends_inside_line if is_end else _is_inside(opened, batch, last)
    part = replace(
        batch,
        start=start,
        end=end,
        starts_inside_line=starts_inside,
        ends_inside_line=ends_inside,
    )
    return replace(opened, batch=part, data=opened.data[first:last])


def _is_inside(opened: Opened, batch: Batch, position: int) -> bool:
    """Return whether a line, or a run of fragments, goes on at *position* of the data."""
    if batch.format == "cri":
        return cri.last_cut(opened.data[:position]) != position
    return opened.data[position - 1 : position] != b"\n"
