"""The world of `protocol.partitions`: stream, record, folders and processes, as values."""

from __future__ import annotations

from dataclasses import dataclass

from logpipeline.records import EpochRecord, Reached, StreamPosition
from logpipeline_collector.recovery import FolderCommit
from logpipeline_collector.stream_position import Verified

NO_LINES = frozenset[int]()
Lines = frozenset[int]


@dataclass(frozen=True, slots=True)
class Message:
    """One line as the server stored it; a line that is sent again has another time."""

    line: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Folder:
    """A collector's disk: its last commit with all lines up to it, the sources that it knows, the
    marks in the stream, and the same before that commit.
    """

    epoch: int
    reached: Reached
    lines: Lines
    known: Lines
    marks: tuple[StreamPosition, ...]
    before: Folder | None

    def commit(self) -> FolderCommit:
        """Return the commit as recovery sees it."""
        before = self.before
        previous = None if before is None else (before.epoch, before.reached)
        return FolderCommit(self.epoch, self.reached, previous)


@dataclass(frozen=True, slots=True)
class Process:
    """A collector's memory while it believes to own the partition: the record as it *held* it last,
    the *revision* that its next swap expects, how far it has read, what it has *written* since its
    last commit, what it knows of sources, and how far it is *committed*. It *is bringing* sources
    until it has those of its predecessor, and *is unswapped* while its last commit is in its folder
    alone.
    """

    held: EpochRecord
    revision: int
    reached: Reached
    committed: Reached
    written: Lines
    known: Lines
    marks: tuple[StreamPosition, ...]
    verified: Verified | None = None
    went_back_to: int | None = None
    is_bringing: bool = False
    is_unswapped: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of sources, with the copy of the record of its moment."""

    number: int
    record: EpochRecord
    position: StreamPosition
    known: Lines
    marks: tuple[StreamPosition, ...]


@dataclass(frozen=True, slots=True)
class World:
    """All of it at one moment. *former* is the record that was lost. *promised* are the lines whose
    commit the record has, or had; what the documentation excuses is in *may_be_twice* and
    *may_be_gone*.
    """

    stream: tuple[Message, ...] = ()
    created: int = 1
    trimmed: int = 0
    lost: Lines = NO_LINES
    clock: int = 0
    record: EpochRecord | None = None
    former: EpochRecord | None = None
    revision: int = 0
    writes: int = 0
    snapshots: tuple[Snapshot, ...] = ()
    folders: tuple[Folder | None, ...] = ()
    volumes: tuple[int, ...] = ()
    processes: tuple[Process | None, ...] = ()
    promised: Lines = NO_LINES
    may_be_twice: Lines = NO_LINES
    may_be_gone: Lines = NO_LINES
    faults: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How far to look: so many of each, at most. *repeats* are lines that are stored again though
    the server has them, as by a shipper that lost its positions. *are_foreign*: lines come without
    headers, so that only the stream says which were read.
    """

    collectors: int = 2
    lines: int = 1
    epochs: int = 3
    tails: int = 0
    recreations: int = 0
    repeats: int = 0
    trims: int = 0
    snapshots: int = 0
    lost_snapshots: int = 0
    lost_buckets: int = 0
    emptied: int = 0
    are_foreign: bool = False


# The places of faults in `World.faults`.
TAIL, RECREATION, REPEAT, TRIM, SNAPSHOT, LOST_SNAPSHOT, LOST_BUCKET, EMPTIED = range(8)
