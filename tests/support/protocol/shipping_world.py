"""The world of `protocol.source_shipping`: shipper, server and collector, as values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from logpipeline import deduplication, wire
from logpipeline.checksum import NOTHING, extend
from logpipeline.deduplication import SourceState
from logpipeline.records import Committed, Progress, StreamPosition
from logpipeline.spans import Span
from logpipeline_shipper.account import Account, Confirmed, Gap, GenerationAccount, Sent
from logpipeline_shipper.checkpoint import Intent
from logpipeline_shipper.files.chunk import Chunk
from logpipeline_shipper.resend import Piece

SOURCE, GROUP, CREATED = "/var/log/app", "collectors", "then"
BEGINNING = StreamPosition(CREATED, 0, 0)
LINE_BYTES = 2
# The generations of the file, in their order; both begin alike.
GENERATIONS = ("a", "b")
LINES = b"0\n1\n2\n3\n"
# Each answer of the collector is so much later than the one before: more than `DRAINED_S`.
ANSWER_S = 20.0


class Stored(NamedTuple):
    """A message, in the stream or on its way; *time_ns* is the server's."""

    batch: wire.Batch
    identifier: str
    time_ns: int = 0


class Entry(NamedTuple):
    """The account of one generation, as a value."""

    name: str
    begin: int
    sent: tuple[Sent, ...]
    confirmed: tuple[tuple[str, Confirmed], ...]
    owed: tuple[tuple[int, int, str], ...]
    lost: tuple[tuple[int, int, str], ...]


class Books(NamedTuple):
    """An `Account`, as a value."""

    groups: tuple[tuple[str, int], ...] = ()
    entries: tuple[Entry, ...] = ()

    def opened(self) -> Account:
        """Return the account."""
        entries = {
            each.name: GenerationAccount(
                each.begin,
                list(each.sent),
                dict(each.confirmed),
                list(each.owed),
                list(each.lost),
            )
            for each in self.entries
        }
        return Account(dict(self.groups), 0.0, entries)

    @staticmethod
    def of(account: Account) -> Books:
        """Return *account* as a value."""
        return Books(
            tuple(account.groups.items()),
            tuple(
                Entry(
                    name,
                    each.begin,
                    tuple(each.sent),
                    tuple(each.confirmed.items()),
                    tuple(each.owed),
                    tuple(each.lost),
                )
                for name, each in account._entries.items()
            ),
        )


@dataclass(frozen=True, slots=True)
class Flight:
    """The *pieces* of a chunk that are to be sent, the first of them now; *is_repair* where they
    fill a gap, and *loss* where a loss is named instead.
    """

    pieces: tuple[Piece, ...] = ()
    is_repair: bool = False
    loss: Gap | None = None


@dataclass(frozen=True, slots=True)
class Shipper:
    """A shipper's memory: how far each generation is acknowledged (*done*: or given up), which
    batches a former process may have sent (*noted*), its books, and the last acknowledgement of its
    subject.
    """

    offsets: tuple[int, ...] = (0, 0)
    noted: tuple[Intent, ...] = ()
    is_in_doubt: bool = False
    books: Books = field(default_factory=Books)
    flight: Flight = field(default_factory=Flight)
    rollbacks: tuple[tuple[str, int], ...] = ()
    last: tuple[int, str] | None = None


class Saved(NamedTuple):
    """What the disk has of a shipper: its positions, and the batches noted since."""

    shipper: Shipper
    intents: tuple[Intent, ...] = ()
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class Collector:
    """A collector: how far it has read, what it knows of the source, how often it *wrote* each line
    of each generation, what it was read before the stream went back.
    """

    position: StreamPosition = BEGINNING
    known: SourceState = deduplication.NOTHING
    wrote: tuple[tuple[str, int], ...] = ()
    rollbacks: int = 0
    known_until_ns: int = 0
    dead_letters: int = 0


class Answer(NamedTuple):
    """An answer on its way, with the generations that were asked for."""

    progress: Progress
    known: tuple[tuple[str, Committed | None], ...]
    number: int


@dataclass(frozen=True, slots=True)
class World:
    """All of it at one moment. *written* are bytes in the file, by generation; *is_gone* says that
    the file of the first one is removed.
    """

    written: tuple[int, ...] = (0, 0)
    is_gone: bool = False
    shipper: Shipper | None = field(default_factory=Shipper)
    saved: Saved = field(default_factory=lambda: Saved(Shipper()))
    network: tuple[Stored, ...] = ()
    stream: tuple[Stored | None, ...] = ()
    window: frozenset[str] = frozenset()
    clock: int = 0
    collector: Collector = field(default_factory=Collector)
    answer: Answer | None = None
    answers: int = 0
    repairs: int = 0
    faults: tuple[int, ...] = (0,) * 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How far to look: so many of each, at most. With *rotates* the file is rotated once, and its
    second generation gets as many lines as well.
    """

    lines: int = 2
    rotates: bool = False
    repairs: int = 2
    answers: int = 3
    lost_acks: int = 0
    delays: int = 0
    windows: int = 0
    tails: int = 0
    purges: int = 0
    kills: int = 0
    power_cuts: int = 0
    lost_positions: int = 0
    late_answers: int = 0


# The places of faults in `World.faults`.
LOST_ACK, DELAY, WINDOW, TAIL, PURGE, KILL, POWER_CUT, LOST_POSITIONS, LATE = range(9)


def batch_of(
    generation: str,
    start: int,
    end: int,
    *,
    checksums: wire.Checksums | None = None,
    lost: str = "",
) -> wire.Batch:
    return wire.Batch(
        source=SOURCE,
        generation=generation,
        start=start,
        end=end,
        lines=0 if lost else (end - start) // LINE_BYTES,
        format="plain",
        checksums=checksums,
        lost=lost,
    )


def chunk_of(generation: str, start: int, end: int) -> Chunk:
    data, before = LINES[start:end], extend(NOTHING, LINES[:start])
    return Chunk(
        generation=generation,
        start=start,
        end=end,
        data=data,
        lines=data.count(b"\n"),
        first_time_ns=0,
        last_time_ns=0,
        previous=None,
        checksums=wire.Checksums.around(data, before),
        starts_inside_line=False,
        ends_inside_line=False,
    )


def lines_of(span: Span) -> range:
    return range(span[0] // LINE_BYTES, span[1] // LINE_BYTES)


def known_as_sent(flight: Flight) -> Flight:
    """Return *flight* as `Sender.send` goes on where an acknowledgement is missing."""
    if flight.loss is not None:
        return flight
    first, *rest = flight.pieces
    known = first._replace(resend=True, is_unsure=False)
    return replace(flight, pieces=(known, *rest))


def intents_of(flight: Flight) -> tuple[Intent, ...]:
    if flight.is_repair:
        return ()
    return tuple(
        Intent(
            each.chunk.generation,
            each.chunk.start,
            each.chunk.end,
            each.attempt,
            each.chunk.checksums.after,
        )
        for each in flight.pieces
    )


def message_of(flight: Flight, repairs: int) -> tuple[Stored, bool]:
    """Return the message that is to be sent, and whether it is marked as sent before."""
    if flight.loss is not None:
        gap = flight.loss
        batch = batch_of(gap.generation, gap.start, gap.end, lost=gap.cause)
        return Stored(batch, f"loss.{wire.message_id('source', batch)}.{repairs}"), False
    piece = flight.pieces[0]
    chunk = piece.chunk
    batch = batch_of(chunk.generation, chunk.start, chunk.end, checksums=chunk.checksums)
    batch = replace(batch, resend=piece.resend, unsure=piece.is_unsure, begins=chunk.begins)
    return Stored(batch, wire.message_id("source", batch, attempt=piece.attempt)), piece.resend
