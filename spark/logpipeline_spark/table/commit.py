"""What one commit says: what was added, what was taken away, and the ranges that this covers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from logpipeline_spark.table.names import TABLE
from logpipeline_spark.table.packed import Damaged, pack, unpack

COMMITS = f"{TABLE}/commits"
_KIND = "commit"

# What a commit is for. `begin` is a writer's first: whoever wrote before it cannot commit any more.
Kind = Literal["begin", "batch", "compaction", "shown", "retention"]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of the table; times are microseconds since 1970, of the lines' `ts`."""

    path: str
    rows: int
    bytes: int
    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True)
class Range:
    """Sequences of one life of a stream, from *first* to *last*, both included."""

    incarnation: str
    first: int
    last: int

    def __post_init__(self) -> None:
        if not 0 < self.first <= self.last:
            raise ValueError(f"no range of sequences: {self.first}-{self.last}")


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be committed.

    *skipped* names streams whose range may begin later than the last one ended: what was lost.
    *lost* are parts of ranges that were gone when they were read.
    """

    kind: Kind
    added: tuple[FileEntry, ...] = ()
    removed: tuple[str, ...] = ()
    batch: str | None = None
    ranges: Mapping[str, Range] = field(default_factory=dict)
    skipped: frozenset[str] = frozenset()
    lost: Mapping[str, tuple[Range, ...]] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """A change with its place in the table's history, and who made it."""

    number: int
    epoch: int
    writer: str
    time_us: int
    change: Change
    whole: Any = None


def commit_path(number: int) -> str:
    """Return where commit *number* stands; names sort as numbers do."""
    return f"{COMMITS}/{number:020d}.json"


def encode(commit: Commit) -> bytes:
    """Return *commit* as it is stored."""
    change = commit.change
    said = {
        "number": commit.number,
        "epoch": commit.epoch,
        "writer": commit.writer,
        "time_us": commit.time_us,
        "kind": change.kind,
        "batch": change.batch,
        "ranges": {stream: asdict(found) for stream, found in change.ranges.items()},
        "skipped": sorted(change.skipped),
        "lost": {stream: [asdict(each) for each in lost] for stream, lost in change.lost.items()},
        "added": [asdict(entry) for entry in change.added],
        "removed": list(change.removed),
        "state": dict(change.state),
        "columns": change.columns,
        "whole": commit.whole,
    }
    return pack(_KIND, said)


def decode(raw: bytes, number: int) -> Commit:
    """Read what `encode` wrote.

    Raises:
        Damaged: it is something else.
    """
    path = commit_path(number)
    said = unpack(_KIND, path, raw)
    try:
        commit = Commit(
            number=said["number"],
            epoch=said["epoch"],
            writer=said["writer"],
            time_us=said["time_us"],
            change=_change(said),
            whole=said["whole"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(
            f"{path} is no commit ({error!r}): bring _table back from a backup."
        ) from error
    if commit.number != number:
        raise Damaged(f"{path} says that it is commit {commit.number}: give it its name back.")
    return commit


def _change(said: Any) -> Change:
    columns = said["columns"]
    return Change(
        kind=said["kind"],
        added=tuple(FileEntry(**entry) for entry in said["added"]),
        removed=tuple(said["removed"]),
        batch=said["batch"],
        ranges={stream: Range(**found) for stream, found in said["ranges"].items()},
        skipped=frozenset(said["skipped"]),
        lost={
            stream: tuple(Range(**each) for each in lost) for stream, lost in said["lost"].items()
        },
        state=dict(said["state"]),
        columns=None if columns is None else tuple((name, kind) for name, kind in columns),
    )
