"""Prove that a table is what its commits say: ranges, files, rows, and each key once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from logpipeline_spark.errors import Refused
from logpipeline_spark.lines.schema import LINES as SCHEMA
from logpipeline_spark.table.commit import FileEntry, Range
from logpipeline_spark.table.manifest import Manifest
from logpipeline_spark.table.merge import KEY, groups_of, merged
from logpipeline_spark.table.names import WAITING, has_lines
from logpipeline_spark.table.packed import Damaged
from logpipeline_spark.table.parquet import checked_file
from logpipeline_spark.table.repair import AREAS, refuse_orphans, strays
from logpipeline_spark.table.snapshot import Snapshot
from logpipeline_spark.table.storage import Storage

# Beyond that many, one more sentence helps nobody.
PROBLEMS_MAX = 100
_KEYS = pa.schema([SCHEMA.field(name) for name in KEY])


@dataclass(frozen=True, slots=True)
class Report:
    """What was found: *problems* are damage; *skipped* was lost before it came here, and said so.

    *uncommitted* files are a batch that is under way, or what the next start takes away.
    """

    files: int
    rows: int
    covered: Mapping[str, tuple[Range, ...]]
    skipped: tuple[tuple[str, Range], ...]
    uncommitted: tuple[str, ...]
    strange: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def is_well(self) -> bool:
        """Tell whether the table is what its commits say."""
        return not self.problems

    def sentences(self) -> list[str]:
        """Say it to a human."""
        said = [f"{self.files} files with {self.rows} rows are committed."]
        for stream, ranges in sorted(self.covered.items()):
            for found in ranges:
                said.append(f"{stream} ({found.incarnation}): {found.first} to {found.last}.")
        for stream, hole in self.skipped:
            said.append(
                f"{stream} ({hole.incarnation}): {hole.first} to {hole.last} were lost before "
                "they could be read."
            )
        if self.uncommitted:
            said.append(f"{len(self.uncommitted)} files are not committed yet, or left over.")
        if self.strange:
            said.append(f"{len(self.strange)} files were written by something else.")
        said += self.problems
        said.append("The table is well." if self.is_well else "The table is damaged.")
        return said


def verify(storage: Storage) -> Report:
    """Read the whole table and compare.

    Raises:
        Damaged: the manifest cannot be read, so that there is nothing to compare with.
        Refused: nobody ever wrote a table there.
    """
    snapshot = Manifest.read(storage).snapshot
    if snapshot.number < 0:
        refuse_orphans(storage)
        raise Refused(f"There is no table at {storage.url}: see spec.archive.path, or --path.")
    stored = {
        found.path: found.size_bytes for area in (*AREAS, WAITING) for found in storage.list(area)
    }
    others = strays(stored, snapshot)
    problems = list(_file_problems(storage, snapshot, stored))
    if not problems:
        # Where files are missing, their rows are, and no more can be said of the keys.
        problems += _key_problems(storage, snapshot)
    if len(problems) > PROBLEMS_MAX:
        problems[PROBLEMS_MAX:] = [f"And {len(problems) - PROBLEMS_MAX} more."]
    return Report(
        files=len(snapshot.files),
        rows=snapshot.rows,
        covered=snapshot.covered,
        skipped=tuple(lost(snapshot)),
        uncommitted=others.stale,
        strange=others.strange,
        problems=tuple(problems),
    )


def lost(snapshot: Snapshot) -> Iterator[tuple[str, Range]]:
    """Give what was gone before it was read: what lies between two ranges of one life of a stream,
    and parts of ranges.
    """
    for stream, ranges in sorted(snapshot.covered.items()):
        for one, following in itertools.pairwise(ranges):
            if one.incarnation == following.incarnation:
                yield stream, Range(one.incarnation, one.last + 1, following.first - 1)
        for gone in snapshot.lost.get(stream, ()):
            yield stream, gone


def _file_problems(
    storage: Storage, snapshot: Snapshot, stored: Mapping[str, int]
) -> Iterator[str]:
    for path, entry in sorted(snapshot.files.items()):
        size_bytes = stored.get(path)
        if size_bytes is None:
            yield f"{path} is committed, and is not there."
        elif size_bytes != entry.bytes:
            yield f"{path} has {size_bytes} bytes, and {entry.bytes} were committed."
        else:
            yield from _row_problems(storage, entry)


def _row_problems(storage: Storage, entry: FileEntry) -> Iterator[str]:
    try:
        with checked_file(storage, entry.path) as file:
            # All columns of all pages: only that shows whether one of them was changed.
            rows = sum(batch.num_rows for batch in file.iter_batches())
    except (Damaged, OSError) as error:
        yield f"{entry.path} cannot be read ({error})."
        return
    if rows != entry.rows:
        yield f"{entry.path} has {rows} rows, and {entry.rows} were committed."


def _key_problems(storage: Storage, snapshot: Snapshot) -> Iterator[str]:
    """Compare neighbours in the order of keys: whatever is there twice is one's neighbour."""
    paths = [path for path in snapshot.files if has_lines(path)]
    try:
        groups = [group for path in sorted(paths) for group in groups_of(storage, path)]
        rows = 0
        last = None
        for table in merged(storage, groups, _KEYS):
            rows += table.num_rows
            yield from _doubled(table if last is None else pa.concat_tables([last, table]))
            yield from _outside(table, snapshot)
            last = table.slice(table.num_rows - 1)
    except (Damaged, OSError) as error:
        yield f"A file's rows cannot be read ({error})."
        return
    expected = sum(snapshot.files[path].rows for path in paths)
    if rows != expected:
        yield f"{rows} rows were read, and {expected} were committed."


def _doubled(table: pa.Table) -> Iterator[str]:
    same = None
    for name in KEY:
        is_equal = pc.equal(table[name].slice(1), table[name].slice(0, table.num_rows - 1))
        same = is_equal if same is None else pc.and_(same, is_equal)
    for row in table.slice(1).filter(same).slice(0, PROBLEMS_MAX).to_pylist():
        yield "A line is there twice: " + ", ".join(f"{name} {row[name]}" for name in KEY) + "."


def _outside(table: pa.Table, snapshot: Snapshot) -> Iterator[str]:
    stream, incarnation = table["stream"][0].as_py(), table["incarnation"][0].as_py()
    is_inside = pa.chunked_array([pa.repeat(False, table.num_rows)])
    for found in snapshot.covered.get(stream, ()):
        if found.incarnation == incarnation:
            is_here = pc.and_(
                pc.greater_equal(table["seq"], found.first),
                pc.less_equal(table["seq"], found.last),
            )
            is_inside = pc.or_(is_inside, is_here)
    count = _count(pc.invert(is_inside))
    if count:
        yield f"{count} rows of {stream} ({incarnation}) are of no range that was committed."


def _count(flags: Iterable[bool]) -> int:
    return int(pc.sum(flags).as_py() or 0)
