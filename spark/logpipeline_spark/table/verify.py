"""The check of a whole table against its log: files, rows, and each key once, within committed
ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from logpipeline_spark.errors import Damaged, Refused
from logpipeline_spark.formats.log import AREAS, Logs
from logpipeline_spark.lines.schema import KEY
from logpipeline_spark.lines.schema import LINES as SCHEMA
from logpipeline_spark.table.files import LINES, FileEntry, Range, folder_of, is_ours, name_of
from logpipeline_spark.table.keys import groups_of, merged
from logpipeline_spark.table.parquet import checked_file
from logpipeline_spark.table.state import Cover, State, last_state
from logpipeline_spark.table.storage import Storage

# More sentences would not help a user.
PROBLEMS_MAX = 100
_KEYS = pa.schema([SCHEMA.field(name) for name in KEY])


@dataclass(frozen=True, slots=True)
class Report:
    """The result: *problems* are damage; *skipped* messages were deleted before they were read, and
    the table records the ranges of the newest, and counts the messages of older ones (*unlisted*).

    *unneeded* files belong to a batch that is not committed yet, or upkeep has replaced them and
    removes them later.
    """

    files: int
    rows: int
    covered: Mapping[str, tuple[Range, ...]]
    skipped: tuple[tuple[str, Range], ...]
    unlisted: Mapping[str, int]
    unneeded: tuple[str, ...]
    strange: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def is_well(self) -> bool:
        """Whether the table is what its log says."""
        return not self.problems

    def sentences(self) -> list[str]:
        """Return the report as text for a user."""
        said = [f"{self.files} files with {self.rows} rows are committed."]
        for stream, ranges in sorted(self.covered.items()):
            for found in ranges:
                said.append(f"{stream} ({found.incarnation}): {found.first} to {found.last}.")
        for stream, hole in self.skipped:
            said.append(
                f"{stream} ({hole.incarnation}): {hole.first} to {hole.last} were deleted "
                "before they were read."
            )
        for stream, count in sorted(self.unlisted.items()):
            said.append(
                f"{stream}: {count} more were deleted before they were read, longer ago; the table "
                "does not list their ranges any more."
            )
        if self.unneeded:
            said.append(
                f"{len(self.unneeded)} files are not committed yet, or not any more: upkeep "
                "removes those that stay."
            )
        if self.strange:
            said.append(f"{len(self.strange)} files were written by another program.")
        said += self.problems
        said.append("The table is well." if self.is_well else "The table is damaged.")
        return said


def verify(storage: Storage, logs: Logs) -> Report:
    """Read the whole table and compare.

    Raises:
        Damaged: its log or its state cannot be read, so that there is nothing to compare with.
        Refused: there is no table.
    """
    # The files first: a batch that a job commits in between is in the state only.
    files = {area: logs[area].files() for area in AREAS}
    state = state_of(storage, logs)
    entries = [entry for area in AREAS for entry in files[area]]
    named = {entry.path for entry in entries}
    # In Iceberg, other programs put files beside Iceberg's own.
    folders = {folder_of(path) for path in named if _is_logs(path)}
    stored = {
        found.path: found.size_bytes
        for folder in (*AREAS, *sorted(folders))
        for found in storage.list(folder)
        if found.path in named or not _is_logs(found.path)
    }
    others = sorted(stored.keys() - named)
    problems = list(_file_problems(storage, entries, stored))
    if not problems:
        # If files are missing, so are their rows, and the keys prove nothing.
        problems += _key_problems(storage, files[LINES], state.cover)
    if len(problems) > PROBLEMS_MAX:
        problems[PROBLEMS_MAX:] = [f"And {len(problems) - PROBLEMS_MAX} more."]
    return Report(
        files=len(entries),
        rows=sum(entry.rows for entry in files[LINES]),
        covered=state.cover.read,
        skipped=tuple(state.cover.missing()),
        unlisted=dict(state.cover.unlisted),
        unneeded=tuple(path for path in others if is_ours(name_of(path))),
        strange=tuple(path for path in others if not is_ours(name_of(path))),
        problems=tuple(problems),
    )


def state_of(storage: Storage, logs: Logs) -> State:
    """Return the state after the table's last batch.

    Raises:
        Damaged: it is missing or is not what was written.
        Refused: there is no table.
    """
    if logs[LINES].transaction() is None:
        raise Refused(f"There is no table at {storage.url}: see spec.table.path, or --path.")
    state, _ = last_state(storage, logs)
    return state


def _is_logs(path: str) -> bool:
    """Return whether a file belongs to the lake format: its folders begin with an underscore."""
    return any(part.startswith("_") for part in path.split("/"))


def _file_problems(
    storage: Storage, entries: Iterable[FileEntry], stored: Mapping[str, int]
) -> Iterator[str]:
    for entry in sorted(entries, key=lambda entry: entry.path):
        path, size_bytes = entry.path, stored.get(entry.path)
        if size_bytes is None:
            yield f"{path} is committed, and is missing."
        elif size_bytes != entry.bytes:
            yield f"{path} has {size_bytes} bytes, and {entry.bytes} were committed."
        else:
            yield from _row_problems(storage, entry)


def _row_problems(storage: Storage, entry: FileEntry) -> Iterator[str]:
    try:
        with checked_file(storage, entry.path) as file:
            # All columns of all pages: only so a change in any of them is found.
            rows = sum(batch.num_rows for batch in file.iter_batches())
    except (Damaged, OSError) as error:
        yield f"{entry.path} cannot be read ({error})."
        return
    if rows != entry.rows:
        yield f"{entry.path} has {rows} rows, and {entry.rows} were committed."


def _key_problems(storage: Storage, entries: Sequence[FileEntry], cover: Cover) -> Iterator[str]:
    """Compare neighbours in the order of keys: a key that is there twice is its own neighbour."""
    try:
        paths = sorted(entry.path for entry in entries)
        groups = [group for path in paths for group in groups_of(storage, path)]
        rows = 0
        last = None
        for table in merged(storage, groups, _KEYS):
            rows += table.num_rows
            yield from _doubled(table if last is None else pa.concat_tables([last, table]))
            yield from _outside(table, cover)
            last = table.slice(table.num_rows - 1)
    except (Damaged, OSError) as error:
        yield f"A file's rows cannot be read ({error})."
        return
    expected = sum(entry.rows for entry in entries)
    if rows != expected:
        yield f"{rows} rows were read, and {expected} were committed."


def _doubled(table: pa.Table) -> Iterator[str]:
    same = None
    for name in KEY:
        is_equal = pc.equal(table[name].slice(1), table[name].slice(0, table.num_rows - 1))
        same = is_equal if same is None else pc.and_(same, is_equal)
    for row in table.slice(1).filter(same).slice(0, PROBLEMS_MAX).to_pylist():
        yield (
            "A line is in the table twice: "
            + ", ".join(f"{name} {row[name]}" for name in KEY)
            + "."
        )


def _outside(table: pa.Table, cover: Cover) -> Iterator[str]:
    stream, incarnation = table["stream"][0].as_py(), table["incarnation"][0].as_py()
    is_inside = pa.chunked_array([pa.repeat(False, table.num_rows)])
    for found in cover.read.get(stream, ()):
        if found.incarnation == incarnation:
            is_here = pc.and_(
                pc.greater_equal(table["seq"], found.first),
                pc.less_equal(table["seq"], found.last),
            )
            is_inside = pc.or_(is_inside, is_here)
    count = _count(pc.invert(is_inside))
    if count:
        yield f"{count} rows of {stream} ({incarnation}) are in no committed range."


def _count(flags: Iterable[bool]) -> int:
    return int(pc.sum(flags).as_py() or 0)
