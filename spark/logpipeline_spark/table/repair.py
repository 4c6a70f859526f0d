"""What a start finds beside the files that are committed, and takes away."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from logpipeline_spark.table.names import (
    LINES,
    ROLLUP,
    WAITING,
    WRITING,
    BadName,
    FileName,
    is_ours,
    name_of,
)
from logpipeline_spark.table.packed import Damaged
from logpipeline_spark.table.snapshot import Snapshot
from logpipeline_spark.table.storage import Storage

AREAS = (LINES, ROLLUP)


@dataclass(frozen=True, slots=True)
class Strays:
    """Files that no commit names: *stale* are ours, *strange* are not and stay."""

    stale: tuple[str, ...]
    strange: tuple[str, ...]


def strays(paths: Iterable[str], snapshot: Snapshot) -> Strays:
    """Tell which of *paths* do not belong to *snapshot*.

    A batch that was not committed is repeated as a whole: whatever it left is stale. So is what a
    compaction or retention committed to remove.
    """
    unknown = [path for path in paths if path not in snapshot.files]
    return Strays(
        stale=tuple(sorted(path for path in unknown if _is_table_file(path))),
        strange=tuple(sorted(path for path in unknown if not _is_table_file(path))),
    )


def is_superseded(path: str, snapshot: Snapshot) -> bool:
    """Tell whether no running batch can need the file: its whole range is committed."""
    try:
        name = FileName.parse(name_of(path))
    except BadName:
        return is_ours(name_of(path))
    end = snapshot.end_of(name.stream)
    if end is None or end.incarnation != name.incarnation:
        known = snapshot.covered.get(name.stream, ())
        return any(found.incarnation == name.incarnation for found in known)
    return name.last <= end.last


def refuse_orphans(storage: Storage) -> None:
    """Refuse to take a table's files for leftovers, where there is no commit at all.

    Raises:
        Damaged: there are files.
    """
    stale = strays(_found(storage, AREAS), Snapshot()).stale
    if stale:
        raise Damaged(
            f"{storage.url} has {len(stale)} files of a table and no manifest: bring _table back "
            "from a backup, or choose another path."
        )


def repair(storage: Storage, snapshot: Snapshot) -> Strays:
    """Remove what no commit names, before anything is written; for the lease's new holder alone."""
    found = strays(_found(storage, (*AREAS, WAITING)), snapshot)
    storage.delete(found.stale)
    storage.delete(stored.path for stored in storage.list(WRITING))
    return found


def sweep(storage: Storage, snapshot: Snapshot) -> tuple[str, ...]:
    """Remove what a former writer's last tasks left, beside the tasks that run now.

    Not beside a compaction, whose files are not committed yet.
    """
    found = strays(_found(storage, (*AREAS, WAITING)), snapshot)
    stale = tuple(path for path in found.stale if is_superseded(path, snapshot))
    storage.delete(stale)
    return stale


def _is_table_file(path: str) -> bool:
    return path.startswith(f"{WAITING}/") or is_ours(name_of(path))


def _found(storage: Storage, folders: Iterable[str]) -> list[str]:
    return [stored.path for folder in folders for stored in storage.list(folder)]
