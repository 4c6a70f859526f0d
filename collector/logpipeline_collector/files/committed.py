"""Lists what is committed in a collector's folder, for other programs, also while the collector
runs.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from logpipeline import json_text
from logpipeline.records import Succession
from logpipeline.statefile import StateBroken
from logpipeline_collector.files.state import BUSY_TIMEOUT_S, VERSION, FileRow, Stage
from logpipeline_collector.folder import known_identity
from logpipeline_collector.recovery import FolderCommit, is_late
from logpipeline_collector.sink import LocalCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedFile:
    """A file of which the first *length* bytes, uncompressed, are committed.

    *name* is its path below the logs. *place* is the path of the active file that it is or was: all
    files of one log have the same. *size* is what it takes on the disk. A listed file may be
    rotated or removed before it is opened: then list again.
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


class Stored(NamedTuple):
    """A state at one moment: its last commit, and the files with it and *before* it."""

    last: LocalCommit | None
    files: list[FileRow]
    before: list[FileRow]


@dataclass(frozen=True, slots=True)
class StoredFolder:
    """The states of a collector's *folder* when they were read."""

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
    """Return the states in *folder*, of one group or all.

    Raises:
        sqlite3.DatabaseError, ValueError, TypeError: a state cannot be read.
    """
    paths = sorted((folder / "state").glob(f"{group or '*'}/p*.sqlite"))
    return StoredFolder(folder, tuple((path, _read_stored(path)) for path in paths))


def settled_files(folders: Sequence[StoredFolder]) -> Iterator[tuple[Path, CommittedFile]]:
    """Yield the files of *folders*, whose collectors share groups, each with its folder.

    An owner may have died before its group knew of its last commit, and another owner may have
    written the same lines since. Recovery's rule decides whether that commit counts, from the
    succession in the folders of later owners.

    Raises:
        sqlite3.DatabaseError, ValueError, TypeError: a state cannot be read.
    """
    # Read after all files are known: a successor stores it before its own first commit.
    successions = _successions(folders) if len(folders) > 1 else {}
    for stored in folders:
        found = [
            _file(stored.folder, path, row)
            for path, state in stored.states
            for row in _rows(stored.folder, path, state, successions.get(_partition(path)))
            if row.stage not in (Stage.NEW, Stage.GONE)
        ]
        # An active file is the youngest of its place; the names of rotated ones sort by time.
        found.sort(key=lambda file: (file.place, not file.is_rotated, file.name))
        yield from ((stored.folder, file) for file in found)


def _partition(path: Path) -> tuple[str, str]:
    return path.parent.name, path.stem


def _successions(folders: Sequence[StoredFolder]) -> dict[tuple[str, str], Succession]:
    """Return the succession of each partition, as its last owner stored it."""
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
        # Renamed a moment ago. A reader that does not find the active file lists again, and finds
        # this.
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


def _read_stored(path: Path) -> Stored:
    """Return a state that another process may be writing.

    Raises:
        sqlite3.DatabaseError, ValueError, TypeError: it cannot be read.
    """
    with contextlib.closing(_open_to_read(path)) as db:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version != VERSION:
            raise ValueError(f"{path}: version {version}, this program knows {VERSION}")
        # One transaction: a commit between two queries would mix two states.
        db.execute("BEGIN")
        commit = db.execute("SELECT value FROM meta WHERE key = 'commit'").fetchone()
        files = dict(db.execute("SELECT key, value FROM files"))
        undo = db.execute("SELECT key, value FROM undo WHERE kind = 'files'").fetchall()
    before = files | dict(undo)
    return Stored(
        LocalCommit.decode(commit[0]) if commit is not None else None,
        [FileRow.decode(text) for text in files.values()],
        [FileRow.decode(text) for text in before.values() if text is not None],
    )


def read_succession(path: Path) -> tuple[int, str]:
    """Return the epoch and the text that `keep_succession` stored last; 0 and an empty text if
    none.

    Raises:
        sqlite3.DatabaseError, ValueError, TypeError: it cannot be read.
    """
    with contextlib.closing(_open_to_read(path)) as db:
        row = db.execute("SELECT value FROM meta WHERE key = 'succession'").fetchone()
    epoch, text = json_text.parse(row[0]) if row is not None else (0, "")
    return int(epoch), str(text)


def _open_to_read(path: Path) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?mode=ro"
    db = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        db.execute("SELECT 1 FROM meta").fetchone()
    except sqlite3.OperationalError:
        # A reader without the right to write there cannot use the WAL, but then no collector runs.
        db.close()
        return sqlite3.connect(f"{uri}&immutable=1", uri=True, isolation_level=None)
    return db
