"""The state of a partition's files, in SQLite beside them: committed lengths, sources, position,
and how to take the last commit back. One transaction costs one fsync of SQLite's log.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from logpipeline import json_text
from logpipeline.declared_types import checked
from logpipeline.deduplication import SourceState, decode, encode
from logpipeline_collector.files.render import Tail
from logpipeline_collector.sink import LocalCommit, SinkBroken, SinkFailed, SinkFull, SourceName

log = logging.getLogger(__name__)

# EFBIG: a limit on the size of files, which a smaller file would not meet.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

VERSION = 2
# How long one process may wait for another one that reads.
BUSY_TIMEOUT_S = 10.0

_SCHEMA = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE files(key INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE sources(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE rotations(place TEXT PRIMARY KEY, number INTEGER, stamp_s INTEGER) WITHOUT ROWID;
CREATE TABLE undo(kind TEXT, key, value TEXT, PRIMARY KEY(kind, key)) WITHOUT ROWID;
"""
_FULL_CODES = {sqlite3.SQLITE_FULL}
_DISK_CODES = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}


def disk_error(error: OSError, what: str, folder: Path) -> SinkFull | SinkFailed:
    """Return what *error* means for files in *folder*, when it was tried to *what*."""
    if error.errno in _FULL:
        reason = f"{error.strerror}: cannot {what}; make room, it goes on by itself"
        return SinkFull(error.errno, reason, str(folder))
    return SinkFailed(f"{folder}: cannot {what}: {error}; look at the disk, then start again")


class Stage(Enum):
    """Stage of a file's life."""

    NEW = "new"  # announced: a file at its path may be ours, and is not committed
    ACTIVE = "active"
    ROTATED = "rotated"
    PACKED = "packed"  # rotated and compressed
    GONE = "gone"  # to be removed


class FileRow(NamedTuple):
    """A file as committed: its first *length* bytes, uncompressed.

    *place* is its path unless another file stood there. *moving_to* and *packing_to* announce a
    rename and a compression that were begun. *size* is what a packed file takes.
    """

    path: str
    place: str
    host: str
    stage: Stage
    begun_ns: int
    length: int
    tail: Tail | None = None
    rotated_ns: int = 0
    size: int = 0
    moving_to: str = ""
    packing_to: str = ""

    def encode(self) -> str:
        """Return the row as JSON."""
        # A tuple is a list in JSON; the stage's value replaces it in its place.
        return json_text.dump((*self[:3], self.stage.value, *self[4:]))

    @staticmethod
    def decode(text: str) -> FileRow:
        """Return the row that `encode` wrote.

        Raises:
            ValueError, TypeError: *text* is not a row.
        """
        path, place, host, stage, begun_ns, length, tail, *rest = json_text.parse(text)
        kept = Tail(*tail) if tail is not None else None
        return checked(FileRow(path, place, host, Stage(stage), begun_ns, length, kept, *rest))


class Rotations(NamedTuple):
    """The next number of a place's rotated files, and the time in the name of the last one: names
    must sort in the order of rotation, even when the clock goes back.
    """

    number: int
    stamp_s: int


@dataclass(slots=True)
class Damage:
    """Committed bytes that the disk or another program took away. The state stores the number with
    its next change of files, from which on the files are known without these bytes.
    """

    bytes: int = 0

    def add(self, path: str, lost: int, why: str) -> None:
        """Count *lost* bytes of the file *path*, and log them."""
        self.bytes += lost
        log.error(
            "committed bytes of a file are gone",
            extra={"path": path, "bytes": lost, "reason": why},
        )


class State:
    """The SQLite file of one partition; its methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self.damage = Damage()
        self._path = path
        self._lock = threading.Lock()
        with self._named_errors():
            self._db = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_S
            )
            self._db.execute("PRAGMA journal_mode=WAL")
            # A commit is durable when it returns, also across a power cut.
            self._db.execute("PRAGMA synchronous=FULL")
            self._prepare()
        self._load_damage()
        self.damaged_before = self.damage.bytes

    def _prepare(self) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            self._db.executescript(f"BEGIN;{_SCHEMA}PRAGMA user_version={VERSION};COMMIT;")
            return
        if version != VERSION:
            raise self._broken(f"it is of version {version}, this program knows {VERSION}")
        fault = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if fault != "ok":
            raise self._broken(fault)

    def _load_damage(self) -> None:
        with self._reading() as db:
            row = db.execute("SELECT value FROM meta WHERE key = 'damaged'").fetchone()
            self.damage.bytes = int(row[0]) if row else 0

    def _put_damage(self, db: sqlite3.Connection) -> None:
        if self.damage.bytes:
            row = (str(self.damage.bytes),)
            db.execute("REPLACE INTO meta VALUES ('damaged', ?)", row)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def last(self) -> LocalCommit | None:
        """Return the last commit."""
        with self._reading() as db:
            row = db.execute("SELECT value FROM meta WHERE key = 'commit'").fetchone()
            return LocalCommit.decode(row[0]) if row else None

    def keep_succession(self, epoch: int, text: str) -> None:
        """Store the succession of *epoch*. Taking a commit back keeps it."""
        with self._writing() as db:
            value = json_text.dump((epoch, text))
            db.execute("REPLACE INTO meta VALUES ('succession', ?)", (value,))

    def files(self) -> dict[int, FileRow]:
        """Return all files by their numbers."""
        with self._reading() as db:
            rows = db.execute("SELECT key, value FROM files")
            return {key: FileRow.decode(value) for key, value in rows}

    def sources(self) -> dict[SourceName, SourceState]:
        """Return what is known of each source."""
        with self._reading() as db:
            rows = db.execute("SELECT key, value FROM sources")
            return {_name(key): decode(json_text.parse(value)) for key, value in rows}

    def source_rows(self) -> list[tuple[str, str]]:
        """Return `sources` as it is stored: name and knowledge in JSON."""
        with self._reading() as db:
            return db.execute("SELECT key, value FROM sources").fetchall()

    def rotations(self) -> dict[str, Rotations]:
        """Return how the rotated files of each place are numbered."""
        with self._reading() as db:
            rows = db.execute("SELECT place, number, stamp_s FROM rotations")
            return {place: Rotations(number, stamp) for place, number, stamp in rows}

    def commit(
        self,
        commit: LocalCommit,
        files: Mapping[int, FileRow],
        sources: Mapping[SourceName, SourceState | None],
    ) -> None:
        """Make *commit* the last one, and keep what it replaces until the next one. Files that are
        gone and sources that are None are forgotten.
        """
        known = [(_key(name), json_text.dump(encode(k))) for name, k in sources.items() if k]
        forgotten = [(_key(name),) for name, k in sources.items() if not k]
        with self._writing() as db:
            db.execute("DELETE FROM undo")
            _keep(db, "meta", [("commit",), ("damaged",)])
            _keep(db, "files", [(key,) for key in files])
            _keep(db, "sources", [(key,) for key, _ in known] + forgotten)
            db.execute("REPLACE INTO meta VALUES ('commit', ?)", (commit.encode(),))
            self._put_damage(db)
            _put_files(db, files)
            lost = [(key,) for key, row in files.items() if row.stage is Stage.GONE]
            db.executemany("DELETE FROM files WHERE key = ?", lost)
            db.executemany("REPLACE INTO sources VALUES (?, ?)", known)
            db.executemany("DELETE FROM sources WHERE key = ?", forgotten)

    def undo(self) -> None:
        """Take the last commit back. Its new files are marked as gone, for recovery to remove."""
        with self._writing() as db:
            kept = db.execute("SELECT kind, key, value FROM undo").fetchall()
            for kind, key, value in kept:
                if value is None:
                    db.execute(f"DELETE FROM {kind} WHERE key = ?", (key,))
                elif kind == "files":
                    row = FileRow.decode(value)
                    stage = Stage.GONE if row.stage is Stage.NEW else row.stage
                    _put_files(db, {key: row._replace(stage=stage)})
                else:
                    db.execute(f"REPLACE INTO {kind} VALUES (?, ?)", (key, value))
            _forget_undo(db)
        # Recovery finds the damage again that the commit had counted.
        self._load_damage()

    def announce(self, files: Mapping[int, FileRow]) -> None:
        """Store *files* that are about to get their names, outside of any commit."""
        with self._writing() as db:
            _put_files(db, files)

    def change(
        self,
        files: Mapping[int, FileRow],
        *,
        gone: Iterable[int] = (),
        rotations: Mapping[str, Rotations | None] | None = None,
    ) -> None:
        """Store *files* and drop those that are *gone*. After this the last commit cannot be taken
        back: its files have changed.
        """
        with self._writing() as db:
            _forget_undo(db)
            self._put_damage(db)
            _put_files(db, files)
            db.executemany("DELETE FROM files WHERE key = ?", [(key,) for key in gone])
            for place, value in (rotations or {}).items():
                db.execute("DELETE FROM rotations WHERE place = ?", (place,))
                if value is not None:
                    db.execute("INSERT INTO rotations VALUES (?, ?, ?)", (place, *value))

    def recover(
        self, files: Mapping[int, FileRow], *, gone: Iterable[int], lost: Mapping[int, int]
    ) -> None:
        """Store what recovery made of *files* and which are *gone*; *lost* are the bytes that each
        lacks. The last commit can still be taken back: upkeep changes no file of a commit that is
        not confirmed, and what else is wrong with such a file, recovery finds again after `undo`.
        """
        with self._writing() as db:
            self._put_damage(db)
            kept = {key for (key,) in db.execute("SELECT key FROM undo WHERE kind = 'files'")}
            elsewhere = sum(count for key, count in lost.items() if key not in kept)
            db.execute(
                "UPDATE undo SET value = coalesce(value, 0) + ? WHERE kind = 'meta' "
                "AND key = 'damaged' AND ?",
                (elsewhere, elsewhere),
            )
            _put_files(db, files)
            db.executemany("DELETE FROM files WHERE key = ?", [(key,) for key in gone])

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._named_errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                # After an error of the disk SQLite has rolled back already.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._named_errors():
            try:
                yield self._db
            except (ValueError, TypeError) as error:
                raise self._broken(str(error)) from error

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _FULL_CODES:
                raise SinkFull(
                    errno.ENOSPC, "the disk is full; make room", str(self._path)
                ) from error
            if code in _DISK_CODES:
                raise SinkFailed(f"{self._path}: {error}; look at the disk") from error
            raise self._broken(str(error)) from error

    def _broken(self, reason: str) -> SinkBroken:
        return SinkBroken(
            f"{self._path} cannot be used: {reason}. Stop the collector and move this file aside "
            "(with -wal and -shm): positions then come from the group's snapshot, existing files "
            "stay as they are, and new lines go into files beside them. The last lines of the old "
            "files may then be there twice"
        )


def _keep(db: sqlite3.Connection, kind: str, keys: list[Any]) -> None:
    query = f"INSERT INTO undo VALUES ('{kind}', ?1, (SELECT value FROM {kind} WHERE key = ?1))"
    db.executemany(query, keys)


def _forget_undo(db: sqlite3.Connection) -> None:
    db.execute("DELETE FROM undo")
    row = db.execute("SELECT value FROM meta WHERE key = 'commit'").fetchone()
    if row is not None:
        last = LocalCommit.decode(row[0])._replace(previous=None)
        db.execute("REPLACE INTO meta VALUES ('commit', ?)", (last.encode(),))


def _put_files(db: sqlite3.Connection, files: Mapping[int, FileRow]) -> None:
    rows = [(key, row.encode()) for key, row in files.items()]
    db.executemany("REPLACE INTO files VALUES (?, ?)", rows)


def _key(name: SourceName) -> str:
    # SQLite's text cannot hold surrogates (bytes of a path that are not UTF-8); JSON escapes them.
    return json.dumps(name)


def _name(key: str) -> SourceName:
    host, source = json_text.parse(key)
    return str(host), str(source)
