"""Delta's log, beside its files.

A commit is one JSON object with a number that must not exist yet. That is all of Delta's protocol
that is needed here, and its cost does not depend on the number of files. delta-rs does the rest,
without Java: reading, checkpoints, and the search for files that are not needed any more.
(delta-rs's own commit looks at every file of the table: with 20,000 of them it took 200 ms of CPU.)

Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md, reader version 1, writer 2.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from logpipeline import json_text
from logpipeline.failpoints import reach
from logpipeline_spark.errors import Damaged, Refused, sentence_of
from logpipeline_spark.formats.log import (
    GRACE_HOURS,
    Change,
    Conflict,
    Former,
    Overtaken,
    Version,
    is_late,
)
from logpipeline_spark.lines.schema import TIME
from logpipeline_spark.table.files import LINES, FileEntry, folder_of, name_of, partition_of
from logpipeline_spark.table.storage import Storage

APPLICATION = "logpipeline"
ENGINE = f"logpipeline/{version('logpipeline')}"
# The key of our part of a commit's information.
SAID = "logpipeline"
# Its keys of the state that came with a transaction, and of the transaction's number.
STATE, NUMBER = "state", "transaction"
LOG = "_delta_log"
# A reader opens a checkpoint, and the commits after it.
CHECKPOINT_EVERY = 64
LOG_KEPT = timedelta(days=1)
# Other processes commit rarely: after so many attempts something else is wrong.
ATTEMPTS_MAX = 100
# So much of delta-rs's message is shown; the sentence must still hold what to do.
SAID_CHARS_MAX = 250
# A time that was cut to milliseconds may have been so much later.
CUT_US = 999
# The files of a version in the log: commit, checkpoint, and a checksum that other programs write.
_OF_VERSION = re.compile(r"(\d{20})\.(?:json|crc|(checkpoint)\.(?:.*\.)?parquet)")
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES = {
    pa.string(): "string",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float64(): "double",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
    TIME: "timestamp",
}
# The oldest protocol with all features that are used, so that as many readers as possible can read.
READER_VERSION, WRITER_VERSION = 1, 2
_PROTOCOL = {"protocol": {"minReaderVersion": READER_VERSION, "minWriterVersion": WRITER_VERSION}}
_PROPERTIES = {
    # Statistics of whole lines would be as large as the lines.
    "delta.dataSkippingStatsColumns": "ts",
    "delta.deletedFileRetentionDuration": f"interval {GRACE_HOURS} hours",
    "delta.logRetentionDuration": f"interval {LOG_KEPT.days} days",
    # A vacuum or another program would remove old commits, also the last one that says how far
    # streams were read: only `keep_up` does this.
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": str(CHECKPOINT_EVERY),
}


class DeltaLog:
    """The log of the files below *area* of *storage*; *partitions* are the columns in the names of
    folders.
    """

    def __init__(self, storage: Storage, area: str, partitions: Sequence[str]) -> None:
        self._storage = storage
        self._area = area
        self._partitions = tuple(partitions)
        self._url = f"{storage.url}/{area}"
        self._version = -1
        # When `_version` was the last one.
        self._looked = _BEGIN
        self._checkpoint = 0

    def transaction(self) -> int | None:
        """Read the log and return the number of its last batch.

        Raises:
            Refused: it cannot be read, or needs a feature that this writer lacks.
        """
        looked = datetime.now(UTC)
        with self._reporting():
            try:
                table = self._table()
            except TableNotFoundError:
                self._version, self._looked = -1, looked
                return None
            protocol = table.protocol()
            if protocol.min_writer_version > WRITER_VERSION:
                raise self._too_new(protocol.writer_features)
            self._version, self._looked = table.version(), looked
            return int(table.transaction_version(APPLICATION) or 0)

    def version(self) -> int:
        """Return the version that was read, or committed, last."""
        return self._version

    def begin(self, schema: pa.Schema, properties: Mapping[str, str]) -> None:
        """Create the log if there is none, and add the columns of *schema* that it lacks.

        Raises:
            Refused: its properties differ, or a column would change its type.
        """
        if self.transaction() is None:
            fields = _fields([*schema, *(pa.field(name, pa.string()) for name in self._partitions)])
            head = _head(str(uuid4()), fields, self._partitions, properties)
            self._put([_info("CREATE TABLE", {}, is_append=False), _PROTOCOL, head])
            return
        with self._reporting():
            known = self._table().metadata()
            fields = json_text.parse(self._table().schema().to_json())["fields"]
        for name, value in properties.items():
            self._check_property(name, value, known.configuration.get(name))
        found = self.schema()
        assert found is not None
        if not (added := _added(found, schema)):
            return
        # Columns of other programs stay as they are: theirs may have a type that we do not use.
        fields += _fields(added)
        head = _head(str(known.id), fields, self._partitions, dict(known.configuration))
        self._put([_info("ADD COLUMNS", {}, is_append=False), head])

    def schema(self) -> pa.Schema | None:
        """Return the columns of all files, without those of folders."""
        with self._reporting():
            try:
                found = self._table().schema()
            except TableNotFoundError:
                return None
            fields = json_text.parse(found.to_json())["fields"]
            types = pa.schema(found.to_arrow())
        ours = {name: kind for kind, name in _TYPES.items()}
        return pa.schema(
            [
                (name, ours.get(str(field["type"]), types.field(name).type))
                for field in fields
                if (name := field["name"]) not in self._partitions
            ]
        )

    def commit(self, change: Change) -> None:
        """Commit *change*; see `Log`."""
        if change.removed:
            self._refuse_gone(change)
        now_ms = time.time_ns() // 1_000_000
        is_append = change.operation == "WRITE"
        changes_data = change.operation != "OPTIMIZE"
        said = dict(change.said)
        if change.transaction is not None and change.state:
            said[STATE] = {NUMBER: change.transaction, **change.state}
        actions = [_info(change.operation, said, is_append=is_append)]
        if change.transaction is not None:
            number = {"appId": APPLICATION, "version": change.transaction, "lastUpdated": now_ms}
            actions.append({"txn": number})
        actions += (self._removed(entry, now_ms, changes_data) for entry in change.removed)
        actions += (self._added(entry, now_ms, changes_data) for entry in change.added)
        self._put(actions, change)

    def files(self) -> list[FileEntry]:
        """Return the files of the last version.

        Raises:
            Refused: the log cannot be read.
        """
        with self._reporting():
            try:
                found = pa.table(self._table().get_add_actions(flatten=True))
            except TableNotFoundError:
                return []
        columns = [found[name].to_pylist() for name in ("path", "num_records", "size_bytes")]
        times = [found[name].to_pylist() for name in ("min.ts", "max.ts")]
        # Spark cuts the greatest time to milliseconds: the last line may be a little later.
        return [
            FileEntry(f"{self._area}/{unquote(path)}", rows, size, _us(first), _us(last) + CUT_US)
            for path, rows, size, first, last in zip(*columns, *times, strict=True)
        ]

    def history(self) -> Iterator[Version]:
        """Give the versions that the log keeps, the oldest first."""
        with self._reporting():
            try:
                kept = self._table().history()
            except TableNotFoundError:
                return
        for info in reversed(kept):
            yield Version(int(info["timestamp"]) * 1000, info.get(SAID) or {})

    def state(self) -> Mapping[str, Any]:
        """Return the state that came with the last transaction, while the log keeps its version."""
        with self._reporting():
            try:
                table = self._table()
            except TableNotFoundError:
                return {}
            found = _last_state(table)
            return {} if found is None else found[1]

    def former(self) -> list[Former]:
        """Return files that former versions name, and that still exist."""
        stored = {found.path for found in self._storage.list(self._area)}
        logged = {path for path in stored if path.startswith(f"{self._area}/{LOG}/")}
        commits = sorted(path for path in logged if path.endswith(".json"))
        waiting = stored - logged - {entry.path for entry in self.files()}
        gone = []
        # Reads all commits: files of a running batch are in none of them. The times of files prove
        # nothing, since a file from a backup is newer than its commit.
        for place in reversed(commits):
            if not waiting:
                break
            for path, at in self._removals(place):
                if path in waiting:
                    waiting.remove(path)
                    gone.append(Former(path, at + timedelta(hours=GRACE_HOURS)))
        return gone

    def _removals(self, place: str) -> Iterator[tuple[str, datetime]]:
        with self._reporting():
            for line in (self._storage.read(place) or b"").splitlines():
                if removed := json_text.parse(line).get("remove"):
                    at_s = (removed.get("deletionTimestamp") or 0) / 1000
                    path = f"{self._area}/{unquote(removed['path'])}"
                    yield path, datetime.fromtimestamp(at_s, UTC)

    def drop(self, paths: Sequence[str]) -> None:
        """Remove files that only former versions name; the log already records their removal."""
        self._storage.delete(paths)

    def keep_up(self, now: datetime) -> None:
        """Write a checkpoint when it is time, and remove files that no version needs any more."""
        looked = datetime.now(UTC)
        with self._reporting():
            try:
                table = self._table()
            except TableNotFoundError:
                return
            self._shorten(table, now)
        self._version, self._looked = table.version(), looked
        if self._unneeded(table, now):
            # A process that was suspended within its commit may bring some of these files. It must
            # look again, and finds that it is late: the number of its version is taken.
            self.commit(Change(operation="VACUUM START"))
            with self._reporting():
                table = self._table()
            self._storage.delete(self._unneeded(table, now))

    def _unneeded(self, table: DeltaTable, now: datetime) -> list[str]:
        """Return the files that no version needs, and that were old at *now*."""
        with self._reporting():
            found = table.vacuum(
                retention_hours=GRACE_HOURS,
                # It would remove what is old when it comes to it. If this process was suspended by
                # then, that can be what others committed since *now*.
                dry_run=True,
                enforce_retention_duration=False,
                # Also files of batches that were never committed.
                full=True,
            )
        if not found:
            return []
        paths = {f"{self._area}/{path}" for path in found}
        return [
            each.path
            for each in self._storage.list(self._area)
            if each.path in paths and each.modified <= now - timedelta(hours=GRACE_HOURS)
        ]

    def _shorten(self, table: DeltaTable, now: datetime) -> None:
        """Write a checkpoint when it is time, and remove what lies before one that is older than
        `LOG_KEPT`.
        """
        if table.version() - self._checkpoint < CHECKPOINT_EVERY:
            return
        table.create_checkpoint()
        self._checkpoint = table.version()
        # Checkpoints do not hold the states in commits: the last one stays, however old. There are
        # none in logs of counts.
        found = _last_state(table) if self._area == LINES else (table.version(), {})
        if found is None:
            return
        old = {
            each.path: match
            for each in self._storage.list(f"{self._area}/{LOG}")
            if each.modified <= now - LOG_KEPT
            and (match := _OF_VERSION.fullmatch(name_of(each.path)))
        }
        checkpoints = [int(match[1]) for match in old.values() if match[2]]
        # Not by delta-rs, which looks at its own clock: it is ahead of *now* if this process was
        # suspended.
        first = max((number for number in checkpoints if number <= found[0]), default=0)
        self._storage.delete(sorted(path for path, match in old.items() if int(match[1]) < first))

    def _too_busy(self) -> Refused:
        return Refused(f"Other programs commit to {self._url} all the time: find out which.")

    def _table(self) -> DeltaTable:
        table = DeltaTable(self._url, storage_options=self._storage.lake_options() or None)
        protocol = table.protocol()
        if protocol.min_reader_version > READER_VERSION:
            # Rows that deletion vectors exclude would be read, and written again by a merge.
            raise self._too_new(protocol.reader_features)
        return table

    def _too_new(self, features: Sequence[str] | None) -> Refused:
        return Refused(
            f"Another program gave {self._url} features that logpipeline does not know "
            f"({', '.join(sorted(features or ['a newer protocol']))}): remove them "
            "(ALTER TABLE … DROP FEATURE), or keep the lines in a table at another path."
        )

    def _put(self, actions: Sequence[Any], change: Change | None = None) -> None:
        """Create the next version, after those that other processes created meanwhile.

        The number of a version is free again once a clean-up has removed its commit, and what a
        process that slept for a day puts there is in no later version. So it must have looked for
        the last version shortly before the commit was done.
        """
        text = "".join(f"{json.dumps(action, separators=(',', ':'))}\n" for action in actions)
        body = text.encode()
        for _ in range(ATTEMPTS_MAX):
            if is_late(self._looked):
                self._look_again(change)
            if change is not None:
                change.refuse_late()
            place, began = self._path(self._version + 1), datetime.now(UTC)
            # A storage may refuse what it took: a request whose answer was lost is sent again.
            is_created = self._storage.put_if_absent(place, body)
            found = body if is_created else self._storage.read(place)
            if found == body:
                if is_late(self._looked):
                    raise self._asleep()
                self._version, self._looked = self._version + 1, began
                reach("table.committed")
                return
            self._follow(found, change)
        raise self._too_busy()

    def _look_again(self, change: Change | None) -> None:
        """Take up all versions that other processes created since the log was read."""
        looked = datetime.now(UTC)
        with self._reporting():
            try:
                last = self._table().version()
            except TableNotFoundError:
                last = -1
        while self._version < last:
            # A removed commit is missed here.
            self._follow(self._storage.read(self._path(self._version + 1)), change)
        if last < self._version:
            raise Overtaken(f"Another program made {self._url} anew: start again.")
        self._looked = looked

    def _asleep(self) -> Overtaken:
        return Overtaken(
            f"This process was suspended while it committed to {self._url}, and others may have "
            "changed it for so long that the commit does not count: start again."
        )

    def _follow(self, raw: bytes | None, change: Change | None) -> None:
        """Take up the next version, which another process created as *raw*, and check that *change*
        may follow it.
        """
        if raw is None:
            raise Overtaken(f"Other programs changed {self._url} for a long time: start again.")
        with self._reporting():
            actions = [json_text.parse(line) for line in raw.splitlines()]
        for action in actions:
            if change is None or change.transaction is not None:
                # A batch, or the first version of the log.
                self._refuse_overtaking(action, is_first=change is None)
            if "metaData" in action or "protocol" in action:
                raise Overtaken(f"Another program changed {self._url}: start again.")
            if change is not None and "remove" in action:
                self._refuse_conflict(action["remove"]["path"], change)
        self._version += 1

    def _refuse_overtaking(self, action: Any, *, is_first: bool) -> None:
        is_ours = action.get("txn", {}).get("appId") == APPLICATION
        if is_ours or is_first:
            raise Overtaken(
                f"Another writer committed to {self._storage.url} meanwhile: "
                "stop one of them: a table has one writer."
            )

    def _refuse_gone(self, change: Change) -> None:
        """Read the log, and refuse *change* if a file that it removes is no longer there: its lines
        are in other files now, or erased. The change follows the version that was read.
        """
        looked = datetime.now(UTC)
        with self._reporting():
            table = self._table()
            found = pa.table(table.get_add_actions(flatten=True))["path"].to_pylist()
        there = {f"{self._area}/{unquote(place)}" for place in found}
        for entry in change.removed:
            if entry.path not in there:
                raise self._conflict(entry.path)
        # Not the version that was read before: since its files were chosen, this process may have
        # committed another change, behind versions that it compared with that one alone.
        self._version, self._looked = table.version(), looked

    def _refuse_conflict(self, place: str, change: Change) -> None:
        path = f"{self._area}/{unquote(place)}"
        if any(entry.path == path for entry in change.removed):
            raise self._conflict(path)

    def _conflict(self, path: str) -> Conflict:
        return Conflict(f"Another process removed {self._storage.url}/{path} meanwhile.")

    def _path(self, number: int) -> str:
        return f"{self._area}/{LOG}/{number:020d}.json"

    def _added(self, entry: FileEntry, now_ms: int, changes_data: bool) -> Any:
        return {
            "add": {
                "path": self._place(entry.path),
                "partitionValues": partition_of(folder_of(entry.path)),
                "size": entry.bytes,
                "modificationTime": now_ms,
                "dataChange": changes_data,
                "stats": json.dumps(_statistics(entry), separators=(",", ":")),
            }
        }

    def _removed(self, entry: FileEntry, now_ms: int, changes_data: bool) -> Any:
        return {
            "remove": {
                "path": self._place(entry.path),
                "deletionTimestamp": now_ms,
                "dataChange": changes_data,
                "extendedFileMetadata": True,
                "partitionValues": partition_of(folder_of(entry.path)),
                "size": entry.bytes,
            }
        }

    def _place(self, path: str) -> str:
        """Return a file's path relative to the log's folder, encoded as in a URL."""
        return quote(path.removeprefix(f"{self._area}/"), safe="/=~")

    def _check_property(self, name: str, wanted: str, found: str | None) -> None:
        if found != wanted:
            raise Refused(
                f"{self._storage.url} is a table of {name.rpartition('.')[2]} {found or '(none)'}, "
                f"and this is {wanted}: give it a path of its own."
            )

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Turn delta-rs's errors into a sentence that says what to do."""
        try:
            yield
        except TableNotFoundError:
            raise
        except (DeltaError, OSError, ValueError) as error:
            raise Damaged(
                f"Delta's log at {self._url} cannot be read or written: check that it is complete, "
                f"and that no other program writes there ({sentence_of(error):.{SAID_CHARS_MAX}})."
            ) from error


def _last_state(table: DeltaTable) -> tuple[int, Mapping[str, Any]] | None:
    """Return the version that holds the state of the last transaction, and the state; None if no
    version does.
    """
    number = table.transaction_version(APPLICATION)
    # Rarely so many versions of other programs follow it that all must be read.
    for kept in (CHECKPOINT_EVERY, None):
        for info in table.history(kept):
            state = (info.get(SAID) or {}).get(STATE)
            if state and state.get(NUMBER) == number:
                return int(info["version"]), state
    return None


def _added(old: pa.Schema, new: pa.Schema) -> list[pa.Field]:
    """Return the columns of *new* that *old* lacks; a file without a column reads as null."""
    for field in new:
        place = old.get_field_index(field.name)
        if place >= 0 and old.field(place).type != field.type:
            raise Refused(
                f"The table's column {field.name} is {old.field(place).type}, and now it would be "
                f"{field.type}: give it another name, or the table another path."
            )
    return [field for field in new if field.name not in old.names]


def _info(operation: str, said: Mapping[str, Any], *, is_append: bool) -> Any:
    return {
        "commitInfo": {
            "timestamp": time.time_ns() // 1_000_000,
            "operation": operation,
            "operationParameters": {"mode": "Append"} if is_append else {},
            "isBlindAppend": is_append,
            "engineInfo": ENGINE,
            # Never do two processes write the same bytes, so that each knows its own commit.
            "txnId": str(uuid4()),
            SAID: dict(said),
        }
    }


def _head(
    identifier: str,
    fields: Sequence[Any],
    partitions: Sequence[str],
    properties: Mapping[str, str],
) -> Any:
    return {
        "metaData": {
            "id": identifier,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": list(fields)}),
            "partitionColumns": list(partitions),
            "configuration": {**properties, **_PROPERTIES},
            "createdTime": time.time_ns() // 1_000_000,
        }
    }


def _fields(columns: Iterable[pa.Field]) -> list[Any]:
    return [
        {"name": each.name, "type": _TYPES[each.type], "nullable": True, "metadata": {}}
        for each in columns
    ]


def _statistics(entry: FileEntry) -> Any:
    """Statistics have milliseconds: the end is rounded up, so that no reader skips a line."""
    return {
        "numRecords": entry.rows,
        "minValues": {"ts": _instant(entry.first_us // 1000)},
        "maxValues": {"ts": _instant(-(-entry.last_us // 1000))},
        "nullCount": {"ts": 0},
    }


def _instant(milliseconds: int) -> str:
    time_utc = _BEGIN + timedelta(milliseconds=milliseconds)
    return time_utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _us(time_utc: datetime) -> int:
    return (time_utc.replace(tzinfo=UTC) - _BEGIN) // timedelta(microseconds=1)
