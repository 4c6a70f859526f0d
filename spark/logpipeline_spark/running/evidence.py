"""What the rows of a table, and the names of its files, prove of its streams: how far each life of
one was read, and which bytes of which sources. A state that is lost is made of this.

All of it is at most what was read: bytes that are not proven come twice if they are sent again, and
no line is taken for one that came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logpipeline.deduplication import GENERATIONS_MAX, NOTHING, SourceState
from logpipeline.extents import HOLES_MAX, Extent, GenerationState
from logpipeline.spans import joined
from logpipeline_spark.formats.choosing import AREAS, Logs
from logpipeline_spark.lines.crilines import WIDTHS
from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.running.known import SOURCES_MAX, SourceName
from logpipeline_spark.table.entry import Range
from logpipeline_spark.table.names import BadName, FileName, name_of
from logpipeline_spark.table.reading import files, tables
from logpipeline_spark.table.storage import Storage

# Of a CRI line a row has the text alone: so much stands before it at least, whatever its time is,
CRI_HEAD_BYTES_MIN = len(" stdout ")
# and so much more may be its own: a longer time, tag, space and newline. A runtime's time has 20
# bytes and more, so that no other line of a runtime has room beside it.
CRI_SLACK_BYTES = WIDTHS[-1] + len("F \n")
# A plain line has its newline behind what its row holds, unless its file ended without one.
NEWLINE_BYTES = len("\n")
# Spans of a generation that wait to be joined; what is left of them then are its holes.
SPANS_MAX = 2 * HOLES_MAX

_COLUMNS = ("seq", "host", "source", "generation", "offset", "piece", "fd", "line", "raw")
_SCHEMA = pa.schema([LINES.field(name) for name in ("stream", "incarnation", *_COLUMNS)])

Numbers = npt.NDArray[np.int64]


class Span(NamedTuple):
    """Bytes ``[start, end)`` that were read. A span that begins up to *reach* continues this one:
    no line has room between them.
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
    """What is proven of one stream: the first and the last sequence of each life, and spans by
    source and generation. What was seen last stands last.
    """

    lives: dict[str, tuple[int, int]] = field(default_factory=dict)
    sources: dict[SourceName, dict[str, list[Span]]] = field(default_factory=dict)

    def saw(self, life: str, first: int, last: int) -> None:
        """Note that messages *first* to *last* of *life* were read."""
        before = self.lives.get(life, (first, last))
        self.lives[life] = min(before[0], first), max(before[1], last)

    def read(self, name: SourceName, generation: str, span: Span) -> None:
        """Note that a *span* of a source was read."""
        generations = self.sources.pop(name, {})
        spans = generations.pop(generation, [])
        # Nearly always it continues the one before.
        if spans and spans[-1].start <= span.start <= spans[-1].reach:
            spans[-1] = spans[-1].with_next(span)
        else:
            spans.append(span)
        generations[generation] = _joined(spans) if len(spans) > SPANS_MAX else spans
        self.sources[name] = generations
        # As a job forgets: there may be more than memory has room for.
        if len(generations) > GENERATIONS_MAX:
            del generations[next(iter(generations))]
        if len(self.sources) > SOURCES_MAX:
            del self.sources[next(iter(self.sources))]

    def ranges(self) -> list[Range]:
        """Return the range of each life, in the order of their lives."""
        found = [Range(life, first, last) for life, (first, last) in self.lives.items()]
        return sorted(found, key=lambda each: order_of(each.incarnation))

    def knowledge_of(self, name: SourceName, before: SourceState = NOTHING) -> SourceState:
        """Return what is known of a source: what is proven, and what was known *before*."""
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
        return before._replace(generations=generations, archived=max(before.archived, sum(sizes)))


def order_of(life: str) -> tuple[int, int]:
    """Return what rises from life to life of a stream: when it was made, and how often it went
    back since.
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
    return found


def add_names(found: dict[str, StreamEvidence], logs: Logs) -> None:
    """Add what the names of files prove, also of such as retention removed: the range that a task
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
    """What the rows of one message prove; *span* is None where it is of no source."""

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
    # Other programs may have put files together, whatever their streams were.
    order = np.lexsort((seq, lives, streams))
    changes = [np.diff(column[order]) != 0 for column in (seq, lives, streams)]
    begins = np.concatenate([[0], np.flatnonzero(np.logical_or.reduce(changes)) + 1])
    starts, ends, slacks = (column[order] for column in _bounds(table))
    last = np.maximum.reduceat(ends, begins)
    is_last = ends == np.repeat(last, np.diff(np.append(begins, len(ends))))
    # All bytes of a message are read with it, so those between two of its lines as well.
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
    """Return where each row's line begins, up to where its bytes certainly go, and how many more
    may be its own.
    """
    starts = pc.fill_null(table["offset"], -1).to_numpy()
    own = pc.coalesce(table["raw"], table["line"].cast(pa.binary()))
    sizes = pc.fill_null(pc.binary_length(own), 0).to_numpy().astype(np.int64)
    is_cri = table["fd"].is_valid().to_numpy()
    # ShipperBacklog a piece its line goes on: what lies there may be another piece.
    is_open = pc.is_in(table["piece"], value_set=pa.array(["begin", "middle"])).to_numpy()
    # A plain line without text is a newline.
    own_bytes = np.where(is_cri, sizes + CRI_HEAD_BYTES_MIN, np.maximum(sizes, NEWLINE_BYTES))
    slacks = np.where(is_cri, CRI_SLACK_BYTES, sizes + NEWLINE_BYTES - own_bytes)
    return starts, starts + own_bytes, np.where(is_open, 0, slacks)


def _codes(column: pa.ChunkedArray) -> Numbers:
    """Return a number for each value, the same for the same."""
    encoded = column.combine_chunks().dictionary_encode()
    indices: Numbers = encoded.indices.to_numpy()
    return indices


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Return *spans* with those joined that continue each other, the last ones where that are too
    many holes.
    """
    made: list[Span] = []
    for span in sorted(spans):
        if made and span.start <= made[-1].reach:
            made[-1] = made[-1].with_next(span)
        else:
            made.append(span)
    return made[-HOLES_MAX - 1 :]
