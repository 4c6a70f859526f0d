"""Makes the state of a table again if the one beside its files is lost or damaged, so that a job
goes on without losing lines, and with as few lines twice as can be known.

The table's log says how far each stream was read; logs of older versions of logpipeline do not.
Rows of the table, and states that are left, prove which bytes of which sources were read. Where
they prove too little, lines that are sent again come twice, since that is better than to lose one.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logpipeline.deduplication import GENERATIONS_MAX, NOTHING, SourceState
from logpipeline.extents import HOLES_MAX, Extent, GenerationState
from logpipeline.nats.jetstream import rfc3339_of
from logpipeline.source_room import ROOM_PARTS, SOURCES_BYTES_MAX
from logpipeline.spans import joined
from logpipeline_spark.errors import Damaged, Refused
from logpipeline_spark.formats.log import AREAS, Logs
from logpipeline_spark.job.knowledge import Knowledge
from logpipeline_spark.job.stream_state import Known, SourceName, StreamState
from logpipeline_spark.lines.crilines import WIDTH_MAX
from logpipeline_spark.lines.schema import LINES as LINES_SCHEMA
from logpipeline_spark.source.offsets import Position
from logpipeline_spark.table.files import LINES, BadName, FileName, Range, name_of
from logpipeline_spark.table.scan import files, tables
from logpipeline_spark.table.state import Counted, Cover, Kept, Left, State, States
from logpipeline_spark.table.storage import Storage
from logpipeline_spark.table.writer import BATCH_BITS, COUNTS, PATIENCE_S, Held, TableWriter

# A row holds only the text of a CRI line. At least so many bytes stand before it, whatever its time
# is,
CRI_HEAD_BYTES_MIN = len(" stdout ")
# and so many more may belong to it: a longer time, the tag, space and newline. A runtime's time has
# 20 bytes or more, so no other line of a runtime fits there.
CRI_SLACK_BYTES = WIDTH_MAX + len("F \n")
# A plain line ends with a newline, which its row does not hold, unless its file ended without one.
NEWLINE_BYTES = len("\n")
# Spans of a generation that wait to be joined. Those that cannot be joined are separated by holes.
SPANS_MAX = 2 * HOLES_MAX
# Spans of all sources; in a state each takes some 64 bytes. A generation takes as much as so many
# spans.
EVIDENCE_MAX = SOURCES_BYTES_MAX // 64
GENERATION_SIZE = 8

_COLUMNS = ("seq", "host", "source", "generation", "offset", "piece", "fd", "line", "raw")
_SCHEMA = pa.schema([LINES_SCHEMA.field(name) for name in ("stream", "incarnation", *_COLUMNS)])

Numbers = npt.NDArray[np.int64]


class Span(NamedTuple):
    """Bytes ``[start, end)`` that were read. A span that begins up to *reach* continues this one:
    no line fits between them.
    """

    start: int
    end: int
    reach: int

    def with_next(self, span: Span) -> Span:
        """Return both as one; *span* begins in this one, or continues it."""
        further = span if span.end > self.end else self
        return Span(self.start, further.end, further.reach)


@dataclass(slots=True)
class StreamEvidence:
    """The proofs for one stream: the first and the last sequence of each incarnation, and spans by
    source and generation. What was seen last stands last. *size* is what it takes,
    in spans.
    """

    lives: dict[str, tuple[int, int]] = field(default_factory=dict)
    sources: dict[SourceName, dict[str, list[Span]]] = field(default_factory=dict)
    size: int = 0

    def saw(self, life: str, first: int, last: int) -> None:
        """Note that messages *first* to *last* of the incarnation *life* were read."""
        before = self.lives.get(life, (first, last))
        self.lives[life] = min(before[0], first), max(before[1], last)

    def read(self, name: SourceName, generation: str, span: Span) -> None:
        """Note that a *span* of a source was read."""
        generations = self.sources.pop(name, {})
        spans = generations.pop(generation, [])
        self.size -= _size(spans)
        # Nearly always it continues the span before.
        if spans and spans[-1].start <= span.start <= spans[-1].reach:
            spans[-1] = spans[-1].with_next(span)
        else:
            spans.append(span)
        generations[generation] = spans = _joined(spans) if len(spans) > SPANS_MAX else spans
        self.size += _size(spans)
        self.sources[name] = generations
        if len(generations) > GENERATIONS_MAX:
            self.size -= _size(generations.pop(next(iter(generations))))

    def forget(self, name: SourceName) -> None:
        """Forget a source."""
        self.size -= sum(map(_size, self.sources.pop(name).values()))

    def ranges(self) -> list[Range]:
        """Return the range of each incarnation, in their order."""
        found = [Range(life, first, last) for life, (first, last) in self.lives.items()]
        return sorted(found, key=lambda each: order_of(each.incarnation))

    def knowledge_of(self, name: SourceName, before: SourceState = NOTHING) -> SourceState:
        """Return the knowledge of a source: the proven spans, and what was known *before*."""
        known = {each.name: each for each in before.generations}
        for generation, spans in self.sources[name].items():
            former = known.pop(generation, GenerationState(generation))
            had = [extent.span for extent in former.extents]
            parts = joined([*had, *((span.start, span.end) for span in _joined(spans))])
            extents = tuple(Extent(*part) for part in parts[-HOLES_MAX - 1 :])
            begun = min(former.begun, extents[0].start)
            known[generation] = former._replace(begun=begun, extents=extents)
        generations = tuple(known.values())[-GENERATIONS_MAX:]
        sizes = (extent.end - extent.start for each in generations for extent in each.extents)
        return before._replace(generations=generations, written=max(before.written, sum(sizes)))


def order_of(life: str) -> tuple[int, int]:
    """Return a key that rises from one incarnation of a stream to the next: when it was created,
    and how often it was rolled back since.
    """
    created, _, rollbacks = life.partition("r")
    return int(created, 16), int(rollbacks)


def evidence_of(storage: Storage, logs: Logs) -> dict[str, StreamEvidence]:
    """Read the whole table, a few rows at a time, and return what they prove, by stream.

    Raises:
        Damaged: a file is missing or cannot be read.
        Refused: the log cannot be read.
    """
    found: dict[str, StreamEvidence] = {}
    for table in tables(storage, files(logs), _SCHEMA):
        for message in _messages(table):
            stream = found.setdefault(message.stream, StreamEvidence())
            stream.saw(message.life, message.sequence, message.sequence)
            if message.span is not None:
                stream.read(message.name, message.generation, message.span)
        _make_room(found)
    return found


def _make_room(found: dict[str, StreamEvidence]) -> None:
    """Forget as a job does, where there may be more than fits into memory: of the host with the
    most, the sources that were seen first.
    """
    if sum(each.size for each in found.values()) <= EVIDENCE_MAX:
        return
    hosts: dict[tuple[str, str], list[SourceName]] = {}
    sizes: Counter[tuple[str, str]] = Counter()
    for stream, each in found.items():
        for name, generations in reversed(each.sources.items()):
            hosts.setdefault((stream, name[0]), []).append(name)
            sizes[stream, name[0]] += sum(map(_size, generations.values()))
    left = sizes.total()
    heaviest = [(-size, host) for host, size in sizes.items()]
    heapq.heapify(heaviest)
    while left > EVIDENCE_MAX - EVIDENCE_MAX // ROOM_PARTS:
        size, (stream, host) = heaviest[0]
        before = found[stream].size
        found[stream].forget(hosts[stream, host].pop())
        freed = before - found[stream].size
        left -= freed
        heapq.heapreplace(heaviest, (size + freed, (stream, host)))


def _size(spans: Sequence[Span]) -> int:
    return GENERATION_SIZE + len(spans) if spans else 0


def add_names(found: dict[str, StreamEvidence], logs: Logs) -> None:
    """Add what file names prove, also those of files that retention removed: the range that a task
    read.

    Raises:
        Refused: a log cannot be read.
    """
    for area in AREAS:
        paths = [each.path for each in logs[area].files()]
        paths += [each.path for each in logs[area].former()]
        for path in paths:
            with suppress(BadName):
                name = FileName.parse(name_of(path))
                stream = found.setdefault(name.stream, StreamEvidence())
                stream.saw(name.incarnation, name.first, name.last)


class _Message(NamedTuple):
    """What the rows of one message prove; *span* is None if the message has no source."""

    stream: str
    life: str
    sequence: int
    name: SourceName
    generation: str
    span: Span | None


def _messages(table: pa.Table) -> Iterator[_Message]:
    """Give the messages that have rows in *table*."""
    if not table.num_rows:
        return
    seq = table["seq"].to_numpy()
    streams, lives = (_codes(table[name]) for name in ("stream", "incarnation"))
    # Other programs may have merged files of different streams.
    order = np.lexsort((seq, lives, streams))
    changes = [np.diff(column[order]) != 0 for column in (seq, lives, streams)]
    begins = np.concatenate([[0], np.flatnonzero(np.logical_or.reduce(changes)) + 1])
    starts, ends, slacks = (column[order] for column in _bounds(table))
    last = np.maximum.reduceat(ends, begins)
    is_last = ends == np.repeat(last, np.diff(np.append(begins, len(ends))))
    # All bytes of a message are read together, also those between two of its lines.
    first = np.minimum.reduceat(starts, begins)
    slack = np.maximum.reduceat(np.where(is_last, slacks, 0), begins)
    names = ("stream", "incarnation", "seq", "host", "source", "generation")
    heads = table.select(names).take(pa.array(order[begins])).to_pylist()
    for head, start, end, more in zip(
        heads, first.tolist(), last.tolist(), slack.tolist(), strict=True
    ):
        is_of_source = head["source"] is not None and head["generation"] and start >= 0
        yield _Message(
            head["stream"],
            head["incarnation"],
            head["seq"],
            (head["host"] or "", head["source"] or ""),
            head["generation"] or "",
            Span(start, end, end + more) if is_of_source else None,
        )


def _bounds(table: pa.Table) -> tuple[Numbers, Numbers, Numbers]:
    """Return where each row's line begins, up to where its bytes certainly reach, and how many more
    bytes may be its own.
    """
    starts = pc.fill_null(table["offset"], -1).to_numpy()
    own = pc.coalesce(table["raw"], table["line"].cast(pa.binary()))
    sizes = pc.fill_null(pc.binary_length(own), 0).to_numpy().astype(np.int64)
    is_cri = table["fd"].is_valid().to_numpy()
    # The line goes on after a piece: another piece may follow.
    is_open = pc.is_in(table["piece"], value_set=pa.array(["begin", "middle"])).to_numpy()
    # A plain line without text is a newline.
    own_bytes = np.where(is_cri, sizes + CRI_HEAD_BYTES_MIN, np.maximum(sizes, NEWLINE_BYTES))
    slacks = np.where(is_cri, CRI_SLACK_BYTES, sizes + NEWLINE_BYTES - own_bytes)
    return starts, starts + own_bytes, np.where(is_open, 0, slacks)


def _codes(column: pa.ChunkedArray) -> Numbers:
    """Return a number for each value; equal values have the same."""
    encoded = column.combine_chunks().dictionary_encode()
    indices: Numbers = encoded.indices.to_numpy()
    return indices


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Return *spans*, with those joined that continue each other; if there are too many holes, only
    the last spans.
    """
    made: list[Span] = []
    for span in sorted(spans):
        if made and span.start <= made[-1].reach:
            made[-1] = made[-1].with_next(span)
        else:
            made.append(span)
    return made[-HOLES_MAX - 1 :]


Streams = Mapping[str, StreamState]
Evidence = dict[str, StreamEvidence]

_SOURCES = (
    "For each source it has the bytes that rows of the table prove: lines that retention or an "
    "erasure removed come back, and are counted again, if a shipper sends them again."
)
_HOLES = (
    "The record of messages that were deleted before they were read is lost: verify lists none."
)
_GUESSED = (
    "The log does not say how far streams were read, so reading continues after the last message "
    "of which the table has a row or a file: later messages that were read are read again, and "
    "lines that were erased or that retention removed may come back. If a stream was rolled back "
    "or created again since the last batch, its lines may be missing or come twice."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A *state* of the table as of its last transaction, made because of a *problem*, with the
    stored form (*kept*) of all streams. If it *is exact*, it equals what was lost; else *notes* say
    what it is made of, and what cannot be known.
    """

    problem: str
    state: State
    kept: Mapping[str, Kept]
    is_exact: bool
    notes: tuple[str, ...]

    def sentences(self) -> list[str]:
        """Return the plan as text for a user."""
        said = [self.problem]
        for stream, head in sorted(self.state.heads.items()):
            if head is not None:
                position = Position(**head)
                said.append(
                    f"{stream} ({position.incarnation}): reading continues after message "
                    f"{position.sequence}; {len(self.kept[stream].changed)} sources are known."
                )
        return [*said, *self.notes]


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Makes the state of one table again. Its *logs* must not be shared with another writer: they
    remember the version that they read last.
    """

    storage: Storage
    logs: Logs

    def plan(self) -> Plan | None:
        """Make a state of what is left, and change nothing; None if the state is whole.

        Raises:
            Damaged: a file of lines is missing or cannot be read.
            Refused: there is no table.
        """
        number = self.logs[LINES].transaction()
        if number is None:
            raise Refused(
                f"There is no table at {self.storage.url}: see spec.table.path, or --path."
            )
        try:
            self._streams(*States(self.storage).load(number))
        except Damaged as error:
            problem = str(error)
        else:
            return None
        logged = self.logs[LINES].state()
        base = self._base(number, logged)
        if base.is_last and base.is_whole:
            note = f"State {base.state.transaction} is complete: nothing is lost."
            return _plan(problem, number, base.state, base.streams, is_exact=True, notes=[note])
        found = evidence_of(self.storage, self.logs)
        heads = self._heads(base, logged, found)
        streams = {name: _stream(name, head, base, found) for name, head in heads.items()}
        state = base.state if base.is_last else _state(base, logged, heads, found)
        notes = list(self._notes(base, logged))
        return _plan(problem, number, state, streams, is_exact=False, notes=notes)

    def carry_out(self, plan: Plan, *, wait: Callable[[float], object] = time.sleep) -> None:
        """Replace the lost state by that of *plan*.

        Raises:
            Held: another process writes the table; nothing was changed.
        """
        # The lost state knew who writes the table. A writer that commits meanwhile is at work, and
        # knows more; one that does not cannot commit afterwards.
        wait(PATIENCE_S)
        if self.logs[LINES].transaction() != plan.state.transaction:
            raise Held(f"A job writes {self.storage.url}: stop it, and try again.")
        TableWriter.renew(self.storage, self.logs, plan.state, plan.kept)

    def _streams(self, state: State, rows: Mapping[str, Mapping[str, Any]]) -> Streams:
        where = f"the table {self.storage.url} of stream"
        return {
            name: StreamState.of(head, rows.get(name, {}), where=f"{where} {name}")
            for name, head in state.heads.items()
        }

    def _base(self, number: int, logged: Mapping[str, Any]) -> _Base:
        """Return the state to begin with: that of the last batch, or the newest before it."""
        for left in States(self.storage).left():
            # Newer states were never committed.
            if left.state.transaction <= number:
                with suppress(Damaged):
                    streams = self._streams(left.state, left.rows)
                    return _Base.of(left, streams, number, logged)
        return _Base()

    def _heads(
        self, base: _Base, logged: Mapping[str, Any], found: Evidence
    ) -> dict[str, Position]:
        """Return how far each stream was read; if nothing says it, how far at least."""
        if base.is_last:
            return base.heads
        if "heads" in logged:
            heads = logged["heads"].items()
            return {name: Position(**head) for name, head in heads if head is not None}
        add_names(found, self.logs)
        known = base.heads if base.is_committed else {}
        proven = {name: _position(each.ranges()[-1]) for name, each in found.items()}
        return {
            name: max((each[name] for each in (known, proven) if name in each), key=_place)
            for name in sorted({*known, *proven})
        }

    def _notes(self, base: _Base, logged: Mapping[str, Any]) -> Iterator[str]:
        yield _SOURCES
        if base.is_last:
            return
        if "heads" not in logged:
            yield _GUESSED
        yield _HOLES
        for area in COUNTS:
            if (self.logs[area].transaction() or 0) < logged.get("counted", 0):
                yield f"{area} lacks the counts of the last batch, and they cannot be made again."


@dataclass(frozen=True, slots=True)
class _Base:
    """A state that is left, and its streams. *is whole*: all rows are there. *is last*: no batch
    came after it. *is committed*: it is certainly one of the table's states.
    """

    state: State = field(default_factory=State)
    streams: Streams = field(default_factory=dict)
    is_whole: bool = False
    is_last: bool = False
    is_committed: bool = True

    @staticmethod
    def of(left: Left, streams: Streams, number: int, logged: Mapping[str, Any]) -> _Base:
        """Return what is *left* as a base for state *number*; *logged* is the state in the log."""
        own = left.state.transaction
        # Each batch has its own number: a state that names it as the last one follows that batch.
        is_last = own == number or left.state.counted.transaction == logged.get("counted")
        # A writer commits each of its states before the next one.
        is_before = own >> BATCH_BITS == number >> BATCH_BITS
        return _Base(left.state, streams, left.is_whole, is_last, is_last or is_before)

    @property
    def heads(self) -> dict[str, Position]:
        """The position of each stream in it."""
        found = {name: each.position for name, each in self.streams.items()}
        return {name: position for name, position in found.items() if position is not None}

    def is_before(self, stream: str, head: Position) -> bool:
        """Return whether everything it knows of *stream* was certainly read before *head*."""
        own = self.heads.get(stream)
        if own is None or self.is_committed:
            return own is not None
        return own.incarnation == head.incarnation and own.sequence <= head.sequence


def _plan(
    problem: str,
    number: int,
    state: State,
    streams: Streams,
    *,
    is_exact: bool,
    notes: Sequence[str],
) -> Plan:
    """Return a plan for *state* as a state of transaction *number* that needs no earlier one."""
    # What is left of several states, and what rows prove, may be more than a job can know.
    Knowledge(streams)
    kept = {name: each.kept(each.known) for name, each in streams.items()}
    return Plan(
        problem=problem,
        state=replace(state, transaction=number, whole=0, differences=(), rows=0, rows_changed=0),
        kept=kept,
        is_exact=is_exact,
        notes=tuple(notes),
    )


def _state(
    base: _Base, logged: Mapping[str, Any], heads: Mapping[str, Position], found: Evidence
) -> State:
    """Return the state of a table whose last one is lost."""
    cover = base.state.cover
    read = {
        name: _covered(
            cover.read.get(name, ()) if base.is_before(name, head) else (),
            found[name].ranges() if name in found else [],
            head,
        )
        for name, head in heads.items()
    }
    return State(
        batch=base.state.batch,
        cover=Cover(
            read,
            {name: found for name, found in cover.lost.items() if name in read},
            {name: count for name, count in cover.unlisted.items() if name in read},
        ),
        # Counts that their logs lack are lost, and those that they have do not come again.
        counted=Counted(logged.get("counted", 0)),
        heads={name: StreamState(head).kept(()).head for name, head in heads.items()},
        batches=logged.get("batches", base.state.batches),
        lines=logged.get("lines", base.state.lines),
    )


def _stream(name: str, head: Position, base: _Base, found: Evidence) -> StreamState:
    """Return the state of a stream that was read up to *head*."""
    known: Known = dict(base.streams[name].known) if base.is_before(name, head) else {}
    proof = found.get(name, StreamEvidence())
    for source in proof.sources:
        known[source] = proof.knowledge_of(source, known.pop(source, NOTHING))
    return StreamState(head, known)


def _covered(before: Sequence[Range], proven: Sequence[Range], head: Position) -> tuple[Range, ...]:
    """Return the ranges of a stream that was read up to *head*: those of *before*, and what goes
    beyond them.
    """
    ranges = list(before)
    for found in (*proven, Range(head.incarnation, head.sequence, head.sequence)):
        same = [each for each in ranges if each.incarnation == found.incarnation]
        if not same:
            ranges.append(found)
            continue
        first, last = same[0], same[-1]
        if found.first < first.first:
            ranges[ranges.index(first)] = replace(first, first=found.first)
        if found.last > last.last:
            place = max(n for n, each in enumerate(ranges) if each.incarnation == last.incarnation)
            ranges[place] = replace(ranges[place], last=found.last)
    return tuple(sorted(ranges, key=lambda each: (order_of(each.incarnation), each.first)))


def _position(last: Range) -> Position:
    """Return the position after *last*; its time is not known."""
    created, rollbacks = order_of(last.incarnation)
    return Position(
        created=_created(created),
        rollbacks=rollbacks,
        sequence=last.last,
        time_ns=0,
        after=last.last,
    )


def _created(time_ns: int) -> str:
    """Return a time as the server writes it: without trailing zeros."""
    return f"{rfc3339_of(time_ns).rstrip('Z').rstrip('0').rstrip('.')}Z"


def _place(position: Position) -> tuple[tuple[int, int], int, int]:
    """Return a key that rises with the positions of a stream; of two equal places, the one with a
    time is later.
    """
    return order_of(position.incarnation), position.sequence, position.time_ns
