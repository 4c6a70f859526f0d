"""What is committed of a partition, in SQLite beside the files: lengths, sources, position, and
how to take the last back.
"""

from __future__ import annotations

import errno
import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from logpipeline.records import StreamPosition
from logpipeline_collector.archive.errors import ArchiveBroken, ArchiveFull
from logpipeline_collector.archive.knowledge import Knowledge, decode, encode

VERSION = 1

_SCHEMA = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE files(path TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE sources(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE undo(kind TEXT, name TEXT, value TEXT, PRIMARY KEY(kind, name)) WITHOUT ROWID;
CREATE TABLE moves(path TEXT PRIMARY KEY, target TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE removals(path TEXT PRIMARY KEY) WITHOUT ROWID;
"""
_COLUMN = {"meta": "name", "files": "path", "sources": "key"}

SourceName = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRow:
    """A file as committed: its *length* in bytes, when it was begun, and what it was rotated to,
    if it was.

    *rotations* numbers the rotated files of an active one; *rotated_ns* is 0 for an active file.
    """

    host: str
    length: int
    begun_ns: int
    rotations: int = 0
    rotated_ns: int = 0
    is_compressed: bool = False
    is_line_open: bool = False


@dataclass(frozen=True, slots=True)
class LocalCommit:
    """The last commit of this folder; *previous* is what it would be without it, None where that
    is not known.
    """

    number: int
    epoch: int
    position: StreamPosition
    rollbacks: int
    previous: tuple[int, StreamPosition] | None


class State:
    """The SQLite file of one partition; its methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._path = path
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            # A commit is durable when it returns, also across a power cut.
            self._db.execute("PRAGMA synchronous=FULL")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                self._db.executescript(f"BEGIN;{_SCHEMA}PRAGMA user_version={VERSION};COMMIT;")
            elif version != VERSION:
                raise ArchiveBroken(f"{path}: version {version}; this program knows {VERSION}")
        except sqlite3.DatabaseError as error:
            raise self._failure(error) from error

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._db.close()

    def last(self) -> LocalCommit | None:
        """Return the last commit."""
        values = dict(self._rows("SELECT name, value FROM meta"))
        if "commit" not in values:
            return None
        try:
            now = json.loads(values["commit"])
            before = json.loads(values.get("previous", "null"))
            previous = (int(before[0]), StreamPosition(**before[1])) if before else None
            return LocalCommit(
                now["number"],
                now["epoch"],
                StreamPosition(**now["position"]),
                now["rollbacks"],
                previous,
            )
        except (ValueError, TypeError, KeyError) as error:
            raise self._broken(error) from error

    def files(self) -> dict[str, FileRow]:
        """Return all files, active and rotated."""
        rows = self._rows("SELECT path, value FROM files")
        return {path: FileRow(**json.loads(value)) for path, value in rows}

    def sources(self) -> dict[SourceName, Knowledge]:
        """Return what is known of each source."""
        rows = self._rows("SELECT key, value FROM sources")
        return {_name(key): decode(json.loads(value)) for key, value in rows}

    def commit(
        self,
        now: LocalCommit,
        files: dict[str, FileRow],
        sources: dict[SourceName, Knowledge],
    ) -> None:
        """Make *now* the last commit, and keep what it replaces until the next one.

        Raises:
            ArchiveFull: the disk is; nothing is committed, and the same may be given again.
        """
        changes = [("files", path, json.dumps(asdict(row))) for path, row in files.items()]
        changes += [
            ("sources", _key(name), json.dumps(encode(known))) for name, known in sources.items()
        ]
        head = {
            "number": now.number,
            "epoch": now.epoch,
            "position": asdict(now.position),
            "rollbacks": now.rollbacks,
        }
        changes.append(("meta", "commit", json.dumps(head)))
        previous = (now.previous[0], asdict(now.previous[1])) if now.previous else None
        changes.append(("meta", "previous", json.dumps(previous)))
        try:
            with self._transaction() as db:
                db.execute("DELETE FROM undo")
                for table, name, value in changes:
                    self._put(db, table, name, value)
        except sqlite3.OperationalError as error:
            if _is_full(error):
                raise ArchiveFull(errno.ENOSPC, "the disk is full", str(self._path)) from error
            raise

    def undo(self) -> None:
        """Take the last commit back; the files that it made are to be removed."""
        with self._transaction() as db:
            for kind, name, value in db.execute("SELECT kind, name, value FROM undo").fetchall():
                column = _COLUMN[kind]
                if value is not None:
                    db.execute(f"REPLACE INTO {kind} VALUES (?, ?)", (name, value))
                    continue
                db.execute(f"DELETE FROM {kind} WHERE {column} = ?", (name,))
                if kind == "files":
                    db.execute("REPLACE INTO removals VALUES (?)", (name,))
            db.execute("DELETE FROM undo")
            db.execute("REPLACE INTO meta VALUES ('previous', 'null')")

    def rotate(self, path: str, target: str, row: FileRow) -> None:
        """Say that *path* is now *target*, before it is renamed. The last commit cannot be taken
        back any more.
        """
        with self._transaction() as db:
            self._forget_undo(db)
            db.execute("DELETE FROM files WHERE path = ?", (path,))
            db.execute("REPLACE INTO files VALUES (?, ?)", (target, json.dumps(asdict(row))))
            db.execute("REPLACE INTO moves VALUES (?, ?)", (path, target))

    def moved(self, path: str) -> None:
        """Say that the renaming of *path* is done."""
        with self._transaction() as db:
            db.execute("DELETE FROM moves WHERE path = ?", (path,))

    def moves(self) -> list[tuple[str, str]]:
        """Return renamings that were begun."""
        return self._rows("SELECT path, target FROM moves")

    def replace(self, path: str, target: str, row: FileRow) -> None:
        """Say that *target* stands for *path*, which is to be removed."""
        with self._transaction() as db:
            self._forget_undo(db)
            db.execute("DELETE FROM files WHERE path = ?", (path,))
            db.execute("REPLACE INTO files VALUES (?, ?)", (target, json.dumps(asdict(row))))
            db.execute("REPLACE INTO removals VALUES (?)", (path,))

    def drop(self, paths: Iterable[str]) -> None:
        """Say that *paths* are to be removed."""
        with self._transaction() as db:
            for path in paths:
                db.execute("DELETE FROM files WHERE path = ?", (path,))
                db.execute("REPLACE INTO removals VALUES (?)", (path,))

    def removals(self) -> list[str]:
        """Return the files that are to be removed."""
        return [path for (path,) in self._rows("SELECT path FROM removals")]

    def removed(self, paths: Iterable[str]) -> None:
        """Say that *paths* are gone."""
        with self._transaction() as db:
            db.executemany("DELETE FROM removals WHERE path = ?", [(path,) for path in paths])

    def import_sources(self, sources: dict[SourceName, Knowledge]) -> None:
        """Replace all that is known of sources; a snapshot of another folder begins a new
        history.
        """
        with self._transaction() as db:
            self._forget_undo(db)
            db.execute("DELETE FROM sources")
            rows = [(_key(name), json.dumps(encode(known))) for name, known in sources.items()]
            db.executemany("INSERT INTO sources VALUES (?, ?)", rows)

    def _forget_undo(self, db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM undo")
        db.execute("REPLACE INTO meta VALUES ('previous', 'null')")

    def _put(self, db: sqlite3.Connection, table: str, name: str, value: str) -> None:
        column = _COLUMN[table]
        before = db.execute(f"SELECT value FROM {table} WHERE {column} = ?", (name,)).fetchone()
        db.execute(
            "INSERT OR IGNORE INTO undo VALUES (?, ?, ?)", (table, name, before and before[0])
        )
        db.execute(f"REPLACE INTO {table} VALUES (?, ?)", (name, value))

    def _rows(self, query: str) -> list[Any]:
        with self._lock:
            try:
                return self._db.execute(query).fetchall()
            except sqlite3.DatabaseError as error:
                raise self._failure(error) from error

    def _transaction(self) -> _Transaction:
        return _Transaction(self._db, self._lock)

    def _failure(self, error: sqlite3.DatabaseError) -> ArchiveBroken | ArchiveFull:
        if _is_full(error):
            return ArchiveFull(errno.ENOSPC, "the disk is full", str(self._path))
        return self._broken(error)

    def _broken(self, error: Exception) -> ArchiveBroken:
        return ArchiveBroken(
            f"{self._path} cannot be read ({error}). Move it and the files it describes aside; the "
            "partition then goes on from the group's snapshot"
        )


class _Transaction:
    """BEGIN IMMEDIATE to COMMIT, or ROLLBACK."""

    def __init__(self, db: sqlite3.Connection, lock: threading.Lock) -> None:
        self._db = db
        self._lock = lock

    def __enter__(self) -> sqlite3.Connection:
        self._lock.acquire()
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._lock.release()
            raise
        return self._db

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if kind is None:
                self._db.execute("COMMIT")
        finally:
            # On a full disk a statement or the COMMIT itself may have rolled back already.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._lock.release()


def _is_full(error: sqlite3.DatabaseError) -> bool:
    # Nothing of the transaction is there then; a failed fsync has another code, and is final.
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def read_files(path: Path) -> Iterator[tuple[str, FileRow]]:
    """Yield the committed files of a state file that another process may be writing."""
    db = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        for name, value in db.execute("SELECT path, value FROM files ORDER BY path"):
            yield name, FileRow(**json.loads(value))
    finally:
        db.close()


def _key(name: SourceName) -> str:
    # Surrogates (bytes of a path that are no UTF-8) are no SQLite text; JSON escapes them.
    return json.dumps(name)


def _name(key: str) -> SourceName:
    host, source = json.loads(key)
    return host, source
