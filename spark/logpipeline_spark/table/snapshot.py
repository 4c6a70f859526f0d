"""What a table is after a commit. Pure: a snapshot and a commit give the next snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from logpipeline_spark.errors import Refused
from logpipeline_spark.table.commit import Commit, FileEntry, Range
from logpipeline_spark.table.names import has_lines
from logpipeline_spark.table.packed import Damaged

Columns = tuple[tuple[str, str], ...]


class WrongRange(Refused):
    """A batch that would double lines, or leave some out."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files that count, and what they cover.

    *covered* holds each stream's ranges in the order of their commits, joined where they adjoin;
    *lost* what of them was gone when it was read.
    """

    number: int = -1
    epoch: int = 0
    batch: str | None = None
    files: Mapping[str, FileEntry] = field(default_factory=dict)
    covered: Mapping[str, tuple[Range, ...]] = field(default_factory=dict)
    lost: Mapping[str, tuple[Range, ...]] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    columns: Columns = ()

    def end_of(self, stream: str) -> Range | None:
        """Return the range in which *stream*'s committed part ends."""
        ranges = self.covered.get(stream)
        return ranges[-1] if ranges else None

    @property
    def rows(self) -> int:
        """How many lines the table has; counts are none."""
        return sum(entry.rows for path, entry in self.files.items() if has_lines(path))


def after(snapshot: Snapshot, commit: Commit) -> Snapshot:
    """Return what *snapshot* becomes by *commit*.

    Raises:
        WrongRange: a range overlaps what is committed, or leaves a hole that is not named.
        Refused: a column goes away or changes its type.
        Damaged: it removes or adds what cannot be.
    """
    change = commit.change
    files = dict(snapshot.files)
    for path in change.removed:
        if files.pop(path, None) is None:
            raise Damaged(f"Commit {commit.number} removes {path}, which is not there.")
    for entry in change.added:
        if entry.path in files:
            raise Damaged(f"Commit {commit.number} adds {entry.path}, which is there.")
        files[entry.path] = entry
    covered = dict(snapshot.covered)
    for stream, found in change.ranges.items():
        is_hole_known = stream in change.skipped
        covered[stream] = _joined(stream, covered.get(stream, ()), found, is_hole_known)
    lost = dict(snapshot.lost)
    for stream, gone in change.lost.items():
        lost[stream] = (*lost.get(stream, ()), *gone)
    return replace(
        snapshot,
        number=commit.number,
        epoch=commit.epoch,
        batch=snapshot.batch if change.batch is None else change.batch,
        files=files,
        covered=covered,
        lost=lost,
        state={**snapshot.state, **change.state},
        columns=_evolved(snapshot.columns, change.columns or snapshot.columns),
    )


def _joined(
    stream: str, ranges: tuple[Range, ...], found: Range, is_hole_known: bool
) -> tuple[Range, ...]:
    same = [known for known in ranges if known.incarnation == found.incarnation]
    if not same:
        return (*ranges, found)
    last = same[-1]
    if last is not ranges[-1]:
        raise WrongRange(
            f"{stream} was {found.incarnation} before it became {ranges[-1].incarnation}: "
            "start from the stream as it is now."
        )
    if found.first <= last.last:
        raise WrongRange(
            f"{stream} is committed to {last.last}, and {found.first}-{found.last} begins before "
            f"its end: start at {last.last + 1}."
        )
    if found.first > last.last + 1:
        if not is_hole_known:
            raise WrongRange(
                f"{stream} is committed to {last.last}, and {found.first}-{found.last} leaves out "
                f"what is between: start at {last.last + 1}."
            )
        return (*ranges, found)
    return (*ranges[:-1], Range(last.incarnation, last.first, found.last))


def _evolved(old: Columns, new: Columns) -> Columns:
    """Columns may be added, at any place; files without them read as null."""
    types = dict(new)
    for name, kind in old:
        if name not in types:
            raise Refused(
                f"The table has a column {name} that this version does not write: "
                "run the newer version."
            )
        if types[name] != kind:
            raise Refused(
                f"The table's column {name} is {kind}, and this version writes {types[name]}: "
                "run the other version, or choose another path."
            )
    return new


def to_data(snapshot: Snapshot) -> Any:
    """Return *snapshot* as JSON has it."""
    return {
        "number": snapshot.number,
        "epoch": snapshot.epoch,
        "batch": snapshot.batch,
        "files": [list(asdict(entry).values()) for entry in snapshot.files.values()],
        "covered": _ranges_to_data(snapshot.covered),
        "lost": _ranges_to_data(snapshot.lost),
        "state": dict(snapshot.state),
        "columns": [list(column) for column in snapshot.columns],
    }


def from_data(data: Any) -> Snapshot:
    """Read what `to_data` gave.

    Raises:
        Damaged: it is something else.
    """
    try:
        entries = [FileEntry(*values) for values in data["files"]]
        return Snapshot(
            number=data["number"],
            epoch=data["epoch"],
            batch=data["batch"],
            files={entry.path: entry for entry in entries},
            covered=_ranges_from_data(data["covered"]),
            lost=_ranges_from_data(data["lost"]),
            state=dict(data["state"]),
            columns=tuple((name, kind) for name, kind in data["columns"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(
            f"A whole list of files is damaged ({error!r}): bring _table back from a backup."
        ) from error


def _ranges_to_data(ranges: Mapping[str, tuple[Range, ...]]) -> Any:
    return {
        stream: [[each.incarnation, each.first, each.last] for each in found]
        for stream, found in ranges.items()
    }


def _ranges_from_data(data: Any) -> dict[str, tuple[Range, ...]]:
    return {stream: tuple(Range(*each) for each in found) for stream, found in data.items()}
