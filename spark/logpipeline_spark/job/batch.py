"""One batch of a table: read the state of the streams, run tasks that write new lines, decide which
resent messages are new, commit.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

from logpipeline.deduplication import Range as Bytes
from logpipeline.failpoints import reach
from logpipeline.streamstate import StreamState as ServerState
from logpipeline_spark.errors import Refused
from logpipeline_spark.job.knowledge import Knowledge
from logpipeline_spark.job.stream_state import (
    Learned,
    StreamState,
    Wanted,
    as_written,
    learn,
)
from logpipeline_spark.job.task import Done, Part, Task, Work, bundled
from logpipeline_spark.lines.messages import Seen, joined
from logpipeline_spark.source import planning
from logpipeline_spark.source.client import Client
from logpipeline_spark.source.offsets import EARLIEST, Place, Position
from logpipeline_spark.source.ranges import RangeTask
from logpipeline_spark.table.files import FileEntry, Range
from logpipeline_spark.table.state import Cover, adjoined
from logpipeline_spark.table.writer import TableWriter

log = logging.getLogger(__name__)

# Losses that are remembered, so that each is logged once.
REPORTED_MAX = 1000

# Runs tasks and returns their results, in any order.
RunTasks = Callable[[Work, Sequence[Task]], list[Done]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The result of a batch: *rows* that are new in the table, bytes that came *twice* without a
    mark, and bytes of all sources that are *missing* now; *lost* messages were deleted before they
    were read; so many sources are *forgotten* for want of room. It *has more* if the size limit of
    a batch cut it.
    """

    rows: int
    has_more: bool
    twice_bytes: int = 0
    missing_bytes: int = 0
    lost: int = 0
    forgotten: int = 0


@dataclass(slots=True)
class Batches:
    """The batches of one table, one after the other; *run* runs tasks, so many *at once*. Streams
    that the table does not have yet are read from *begin* on.

    Messages that were deleted before they were read are logged, counted and recorded in the table,
    and reading goes on. With *stops_on_loss* the job ends instead, until a user decides.
    """

    client: Client
    table: TableWriter
    work: Work
    run: RunTasks
    bytes_max: int
    at_once: Callable[[], int]
    streams: tuple[str, ...]
    begin: Place = EARLIEST
    stops_on_loss: bool = False
    knowledge: Knowledge = field(default_factory=lambda: Knowledge({}))
    _reported: set[tuple[str, Range]] = field(default_factory=set)
    _counter: itertools.count[int] = field(default_factory=itertools.count)

    def load(self) -> None:
        """Continue from the committed state.

        Raises:
            Refused: the committed state cannot be read, or it has streams that the pipeline
                lacks now.
        """
        heads, rows = self.table.state.heads, self.table.rows
        if former := sorted(heads.keys() - set(self.streams)):
            raise Refused(
                f"the table {self.work.storage.url} was made from the streams "
                f"{', '.join(sorted(heads))}, and the pipeline lacks {', '.join(former)} now: give "
                "it its partitions back, or choose another path for the table"
            )
        states = {
            name: StreamState.of(
                heads.get(name),
                rows.get(name, {}),
                where=f"the table {self.work.storage.url} of stream {name}",
            )
            for name in self.streams
        }
        self.knowledge = Knowledge(states)

    @property
    def states(self) -> Mapping[str, StreamState]:
        """The state of each stream, as committed."""
        return self.knowledge.states

    @property
    def missing_bytes(self) -> int:
        """Bytes of all sources that never came."""
        return self.knowledge.missing_bytes

    def next(self) -> Committed | None:
        """Commit what waits, up to the size limit of a batch; return None if nothing waits.

        Raises:
            Refused: the server, the storage or another writer prevents it.
        """
        client, options = self.client, self.work.options
        planned = datetime.now(UTC)
        seen = planning.states(client, options)
        is_new = self._begin(seen)
        known = {name: self._position(name, state) for name, state in seen.items()}
        begins = planning.begins(client, options, known, seen, reads_again=True)
        cover = self.table.state.cover.read
        begins = {
            name: begin_anew(known[name], begin, cover.get(name, ()))
            for name, begin in begins.items()
        }
        found = {
            name: _skipped(name, known[name], begin, cover.get(name, ()))
            for name, begin in begins.items()
        }
        skipped = {name: gone for name, gone in found.items() if gone is not None}
        lasts = {name: state.last for name, state in seen.items()}
        ends = planning.ends(client, begins, seen, lasts, self.bytes_max)
        batch = {name: end for name, end in ends.items() if end.sequence > begins[name].sequence}
        self._report_loss(skipped.items())
        if not batch:
            if is_new:
                self._keep({}, [])
            return None
        reach("table.planned")
        at_once = self.at_once()
        parts = planning.tasks(options, batch, at_once, task_bytes_min=planning.TASK_BYTES_MIN)
        done = self.run(self.work, bundled(parts, at_once))
        reach("table.written")
        # The loss of a stream without new messages is committed with its next messages.
        skipped = {name: gone for name, gone in skipped.items() if name in batch}
        committed = self._commit(batch, skipped, done, planned)
        has_more = any(end.sequence < lasts[name] for name, end in batch.items())
        return replace(committed, has_more=has_more)

    def _begin(self, seen: planning.States) -> bool:
        """Record the requested start as the position of new streams, so that a later start of the
        job does not choose another one; return whether there are new streams.
        """
        if self.begin == EARLIEST:
            return False
        new = {name: state for name, state in seen.items() if self.states[name].position is None}
        places = planning.start(self.client, self.work.options, self.begin, new)
        for name, place in places.items():
            self.states[name].position = place
        return bool(places)

    def _position(self, name: str, state: ServerState) -> Position:
        """Return the position of a stream; for a new one, the position before its first message."""
        position = self.states[name].position
        if position is None:
            options = self.work.options
            position = planning.start(self.client, options, EARLIEST, {name: state})[name]
        return position

    def _commit(
        self,
        batch: Mapping[str, Position],
        skipped: Mapping[str, Range],
        done: Sequence[Done],
        planned: datetime,
    ) -> Committed:
        parts = [part for each in done for part in each.parts]
        resent = self._write_resent(batch, parts)
        lost = {
            name: _lost(end, name, parts, resent.gone.get(name, ())) for name, end in batch.items()
        }
        losses = [(name, gone) for name, found in lost.items() for gone in found]
        self._report_loss(losses)
        self.knowledge.take(resent.learned)
        for name, end in batch.items():
            self.states[name].position = end
        # Tasks may wait for executors for hours, before they write. The clock of an executor may be
        # behind.
        begun = max(planned, min(each.begun for each in (*done, *resent.done)))
        self._keep(
            {
                name: Range(end.incarnation, end.after + 1, end.sequence)
                for name, end in batch.items()
            },
            [entry for each in (*done, *resent.done) for entry in each.files],
            begun=begun,
            skipped=skipped,
            lost=_named(lost, skipped, self.table.state.cover),
        )
        return Committed(
            rows=sum(part.rows for each in (*done, *resent.done) for part in each.parts),
            has_more=False,
            twice_bytes=sum(each.unmarked_bytes for each in resent.learned.values()),
            missing_bytes=self.missing_bytes,
            lost=_count([*skipped.items(), *losses]),
            forgotten=self.knowledge.take_forgotten(),
        )

    def _write_resent(self, batch: Mapping[str, Position], parts: Sequence[Part]) -> _Resent:
        """Have tasks write what is new of the marked messages in *parts*. Such a message may be
        deleted before they come: then others may be wanted that have the same bytes.
        """
        seen = {name: _seen(name, parts) for name in batch}
        learned = {name: learn(self.states[name].known, found) for name, found in seen.items()}
        wanted = {name: each.wanted for name, each in learned.items()}
        written: dict[str, dict[int, Sequence[Bytes]]] = {name: {} for name in batch}
        gone: dict[str, set[int]] = {}
        done: list[Done] = []
        # Ends: in each pass, each message that is wanted is written or gone, and not wanted again.
        while tasks := _resent(batch, wanted, self.at_once()):
            came = self.run(self.work, tasks)
            done += came
            for name, messages in wanted.items():
                written[name].update((each.sequence, each.ranges) for each in messages)
            wanted = {}
            for name, missed in _gone(came).items():
                gone.setdefault(name, set()).update(missed)
                known = self.states[name].known
                found = as_written(seen[name], written[name], gone[name])
                learned[name] = learn(known, found)
                wanted[name] = tuple(
                    each for each in learned[name].wanted if each.sequence not in written[name]
                )
        return _Resent(learned, done, gone)

    def _keep(
        self,
        ranges: Mapping[str, Range],
        files: Sequence[FileEntry],
        *,
        begun: datetime | None = None,
        skipped: Iterable[str] = (),
        lost: Mapping[str, Sequence[Range]] | None = None,
    ) -> None:
        name = f"{self.table.writer}-{next(self._counter)}"
        self.table.commit_batch(
            name,
            ranges,
            files,
            self.knowledge.kept(),
            skipped=frozenset(skipped),
            lost=lost or {},
            begun=begun,
        )

    def _report_loss(self, lost: Iterable[tuple[str, Range]]) -> None:
        """Log messages that are lost for good.

        Raises:
            Refused: the user wants to decide about each loss.
        """
        for name, gone in lost:
            if self.stops_on_loss:
                raise Refused(
                    f"the messages {gone.first} to {gone.last} of stream {name} were deleted "
                    "before they were read (retention, or a purge): run this without "
                    "--stop-on-loss to continue after them; `logpipeline table verify` lists them "
                    "then"
                )
            if (name, gone) in self._reported:
                continue
            self._reported = (
                {*self._reported, (name, gone)}
                if len(self._reported) < REPORTED_MAX
                else {(name, gone)}
            )
            log.error(
                "messages were deleted before they were read",
                extra={"stream": name, "first": gone.first, "last": gone.last},
            )


class _Resent(NamedTuple):
    """What was *learned* of each stream, once *done* has written what is new of its marked
    messages; those that were deleted before are *gone*.
    """

    learned: Mapping[str, Learned]
    done: Sequence[Done]
    gone: Mapping[str, Collection[int]]


def begin_anew(known: Position, begin: Position, read: Sequence[Range]) -> Position:
    """Return *begin* as that of an incarnation of which the table has nothing in *read*: a stream
    may come back from a backup after another one of its name was read.
    """
    if begin.incarnation != known.incarnation:
        lives = {each.incarnation for each in read}
        while begin.incarnation in lives:
            begin = replace(begin, rollbacks=begin.rollbacks + 1)
    return begin


def _skipped(name: str, known: Position, begin: Position, read: Sequence[Range]) -> Range | None:
    """Log what happened to a stream since it was read; return the messages that were deleted before
    they were read. *read* are the stream's ranges in the table.
    """
    if known == begin:
        return None
    if known.incarnation == begin.incarnation:
        return Range(begin.incarnation, known.sequence + 1, begin.sequence)
    # Shippers send again what the server lost.
    log.warning(
        "the stream was created again"
        if known.created != begin.created
        else "the stream was rolled back",
        extra={"stream": name, "read": known.sequence, "goes_on_behind": begin.sequence},
    )
    # What the table has of the same creation may be what this incarnation lacks at its beginning.
    created = begin.incarnation.partition("r")[0]
    last = max(
        (each.last for each in read if each.incarnation.partition("r")[0] == created), default=0
    )
    if known.created == begin.created:
        last = max(last, known.sequence)
    return Range(begin.incarnation, last + 1, begin.sequence) if begin.sequence > last else None


def _seen(name: str, parts: Sequence[Part]) -> Seen:
    """Return what tasks saw of a stream."""
    ours = sorted((each for each in parts if each.stream == name), key=lambda each: each.first)
    return joined([each.seen for each in ours])


def _lost(
    end: Position, name: str, parts: Sequence[Part], sequences: Collection[int]
) -> tuple[Range, ...]:
    """Return the messages of a stream that were deleted before tasks read them, or before they
    wrote them: those at *sequences*.
    """
    pairs = [pair for each in parts if each.stream == name for pair in each.lost]
    ordered = sorted([*pairs, *((each, each) for each in sequences)])
    return adjoined(Range(end.incarnation, first, last) for first, last in ordered)


def _named(
    lost: Mapping[str, Sequence[Range]], skipped: Mapping[str, Range], cover: Cover
) -> dict[str, Sequence[Range]]:
    """Return *lost* with what was *skipped* before the first range of an incarnation: in the cover,
    only a hole between two of its ranges names itself.
    """
    named: dict[str, Sequence[Range]] = {}
    for name, found in lost.items():
        gone, end = skipped.get(name), cover.end_of(name)
        is_first = gone is not None and (end is None or end.incarnation != gone.incarnation)
        if parts := ([gone] if gone is not None and is_first else []) + list(found):
            named[name] = parts
    return named


def _count(lost: Iterable[tuple[str, Range]]) -> int:
    return sum(gone.last - gone.first + 1 for _, gone in lost)


def _resent(
    batch: Mapping[str, Position], wanted: Mapping[str, tuple[Wanted, ...]], at_once: int
) -> list[Task]:
    """Return tasks that read the marked messages that are *wanted* of each stream."""
    parts = [
        RangeTask(stream=name, end=batch[name], first=each[0].sequence, last=each[-1].sequence)
        for name, each in wanted.items()
        if each
    ]
    return [
        replace(task, wanted={part.stream: wanted[part.stream] for part in task.parts})
        for task in bundled(parts, at_once)
    ]


def _gone(done: Sequence[Done]) -> dict[str, tuple[int, ...]]:
    """Return the wanted messages that did not come, by stream."""
    return {part.stream: part.gone for each in done for part in each.parts if part.gone}
