"""What other programs may read of a collector's folder: only what is committed, also while the
collector runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from logpipeline.records import Succession
from logpipeline.statefile import StateBroken
from logpipeline_collector.files.state import FileRow, Stage, Stored, read_stored, read_succession
from logpipeline_collector.folder import known_identity
from logpipeline_collector.recovery import FolderCommit, is_late


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedFile:
    """A file of which the first *length* bytes, uncompressed, are committed.

    *name* is its path below the logs; *place* is the active file that it was, or is, which names
    all files of one log alike. *size* is what it takes on the disk. Listed, it may still be rotated
    or removed before it is opened: then list again.
    """

    path: Path
    name: str
    place: str
    host: str
    group: str
    partition: int
    length: int
    size: int
    begun_ns: int
    rotated_ns: int
    is_rotated: bool
    is_compressed: bool


@dataclass(frozen=True, slots=True)
class StoredFolder:
    """What the states of a collector's *folder* held when they were read."""

    folder: Path
    states: tuple[tuple[Path, Stored], ...]


def committed_files(folder: Path, group: str | None = None) -> Iterator[CommittedFile]:
    """Yield the files of a collector's *folder*, of one group or all, by place, each place's oldest
    first.

    Raises:
        sqlite3.DatabaseError, ValueError, TypeError: a state cannot be read.
    """
    for _, file in settled_files([read_folder(folder, group)]):
        yield file


def read_folder(folder: Path, group: str | None = None) -> StoredFolder:
    """Return what stands in the states of *folder*, of one group or all.

    Raises:
        sqlite3.DatabaseError, ValueError, TypeError: a state cannot be read.
    """
    paths = sorted((folder / "state").glob(f"{group or '*'}/p*.sqlite"))
    return StoredFolder(folder, tuple((path, read_stored(path)) for path in paths))


def settled_files(folders: Sequence[StoredFolder]) -> Iterator[tuple[Path, CommittedFile]]:
    """Yield the files of *folders*, whose collectors share groups, each with its folder.

    An owner may have died before its group knew of its last commit, and another one have archived
    the same lines since. Whether it counts is decided by recovery's rule, from what the folders of
    later owners say.

    Raises:
        sqlite3.DatabaseError, ValueError, TypeError: a state cannot be read.
    """
    # Asked when all files are known: who succeeds says so before its own first commit.
    told = _successions(folders) if len(folders) > 1 else {}
    for stored in folders:
        found = [
            _file(stored.folder, path, row)
            for path, state in stored.states
            for row in _rows(stored.folder, path, state, told.get(_partition(path)))
            if row.stage not in (Stage.NEW, Stage.GONE)
        ]
        # An active file is the youngest of its place; the names of rotated ones sort by time.
        found.sort(key=lambda file: (file.place, not file.is_rotated, file.name))
        yield from ((stored.folder, file) for file in found)


def _partition(path: Path) -> tuple[str, str]:
    return path.parent.name, path.stem


def _successions(folders: Sequence[StoredFolder]) -> dict[tuple[str, str], Succession]:
    """Return what the last owner of each partition was told of former ones, as of now."""
    newest: dict[tuple[str, str], tuple[int, str]] = {}
    for path, _ in (state for stored in folders for state in stored.states):
        kept = read_succession(path)
        newest[_partition(path)] = max(kept, newest.get(_partition(path), kept))
    decoded = {key: Succession.decode(text) for key, (_, text) in newest.items()}
    return {key: succession for key, succession in decoded.items() if succession is not None}


def _rows(folder: Path, path: Path, state: Stored, succession: Succession | None) -> list[FileRow]:
    last = state.last
    if last is None or last.previous is None or succession is None:
        return state.files
    try:
        identity = known_identity(folder, path.parent.name)
    except StateBroken:
        return state.files
    former = succession.of(identity) if identity is not None else None
    if former is None or former.epoch != last.epoch:
        return state.files
    commit = FolderCommit(last.epoch, last.reached, last.previous)
    return state.before if is_late(commit, former.end) else state.files


def _file(folder: Path, state: Path, row: FileRow) -> CommittedFile:
    if row.moving_to and (folder / "logs" / row.moving_to).exists():
        # Renamed a moment ago; who finds no active file there looks again, and finds this.
        row = row._replace(path=row.moving_to, stage=Stage.ROTATED)
    is_compressed = row.stage is Stage.PACKED
    return CommittedFile(
        path=folder / "logs" / row.path,
        name=row.path,
        place=row.place,
        host=row.host,
        group=state.parent.name,
        partition=int(state.stem[1:]),
        length=row.length,
        size=row.size if is_compressed else row.length,
        begun_ns=row.begun_ns,
        rotated_ns=row.rotated_ns,
        is_rotated=row.stage is not Stage.ACTIVE,
        is_compressed=is_compressed,
    )
