"""What a table needs of a lake format: its log, which is the only truth about which files count.

Whoever commits puts the next version where none may be yet. Who finds one there looks at what it
says, and goes on behind it if that leaves its own change right.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol

import pyarrow as pa

from logpipeline_spark.errors import Refused
from logpipeline_spark.table.files import (
    LINES,
    ROLLUP_MINUTE,
    ROLLUP_SOURCE,
    TABLE,
    FileEntry,
    partitions_of,
)
from logpipeline_spark.table.s3 import S3Options
from logpipeline_spark.table.storage import Storage

# How long a file that no version needs any more stays, for readers that began before.
GRACE_HOURS = 2
# So long after it was begun a clean-up may remove a file that no version names; and clocks differ.
COMMITTED_WITHIN = timedelta(hours=GRACE_HOURS) / 2
# How formats call what a commit is for.
Operation = Literal["WRITE", "OPTIMIZE", "DELETE"]


class Overtaken(Refused):
    """Another writer committed a batch, or took the table over."""


class Conflict(Refused):
    """Somebody else replaced or removed the same files; nothing was committed."""


class Late(Refused):
    """What was written waited so long that a clean-up may have removed it: a machine was asleep, or
    there was too much of it. Nothing was committed.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one version changes. *transaction* is a batch's number, None for upkeep, which may
    happen beside batches; *said* is told to whoever asks for the history. Of the *state* that comes
    with a transaction the log keeps the last one. *begun* is when the first of the *added* files
    was begun, None for those that no clean-up removes.
    """

    operation: Operation
    added: Sequence[FileEntry] = ()
    removed: Sequence[FileEntry] = ()
    transaction: int | None = None
    said: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    begun: datetime | None = None

    def refuse_late(self) -> None:
        """Refuse a change whose files a clean-up may have removed already.

        Raises:
            Late: it may have.
        """
        if self.begun is None or not self.added:
            return
        waited = datetime.now(UTC) - self.begun
        if waited > COMMITTED_WITHIN:
            raise Late(
                f"What was written waited {waited} to be committed, and a clean-up removes it "
                f"after {GRACE_HOURS} hours: nothing was changed. If the machine did not sleep, do "
                "less at a time."
            )


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a log: *time_us* is when it was committed, microseconds since 1970."""

    time_us: int
    said: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Former:
    """A file that former versions name, and the last one does not; from *goes_at* on upkeep
    removes it.
    """

    path: str
    goes_at: datetime


class Log(Protocol):
    """The log of one area of a table."""

    def transaction(self) -> int | None:
        """Look at the log and return the number of the last batch in it: 0 before the first, None
        where there is no log at all.

        Raises:
            Refused: it cannot be read.
        """

    def version(self) -> int:
        """Return the version that was looked at, or committed, last: a number that only its own
        format compares.
        """

    def begin(self, schema: pa.Schema, properties: Mapping[str, str]) -> None:
        """Make the log where there is none, and add the columns of *schema* that it lacks.

        Raises:
            Refused: its properties are others, or a column would change its type.
        """

    def schema(self) -> pa.Schema | None:
        """Return the columns of all files, as they are written; None where there is no log.

        Raises:
            Refused: the log cannot be read.
        """

    def commit(self, change: Change) -> None:
        """Commit *change*.

        Raises:
            Overtaken: it is a batch, and another writer came first.
            Conflict: somebody else removed what it removes.
            Late: what it adds may be gone.
            Refused: the log cannot be written.
        """

    def files(self) -> list[FileEntry]:
        """Return the files of the last version.

        Raises:
            Refused: the log cannot be read.
        """

    def history(self) -> Iterator[Version]:
        """Give the versions that are kept, the oldest first."""

    def state(self) -> Mapping[str, Any]:
        """Return the state that came with the last transaction; empty where a former version of
        ours wrote it, or the log does not know it any more.

        Raises:
            Refused: the log cannot be read.
        """

    def former(self) -> list[Former]:
        """Return files that former versions name, whether they are still there or not.

        Raises:
            Refused: the log cannot be read.
        """

    def drop(self, paths: Sequence[str]) -> None:
        """Remove files that former versions alone name, at once: who reads such a version fails.

        Raises:
            Refused: the log or the storage does not do it.
        """

    def keep_up(self, now: datetime) -> None:
        """Keep the log short, and remove files that no version has needed for `GRACE_HOURS`."""


Format = Literal["delta", "iceberg"]
Logs = Mapping[str, Log]

AREAS = (LINES, ROLLUP_MINUTE, ROLLUP_SOURCE)
# The property of a catalogue that is ours: how it calls the table of lines.
TABLE_PROPERTY = "table"
# What an Iceberg table of counts is called, behind the name of that of lines.
_SUFFIXES = {LINES: "", ROLLUP_MINUTE: "_minutes", ROLLUP_SOURCE: "_sources"}
# Where each format has its own files.
_PLACES: Mapping[Format, str] = {"delta": f"{LINES}/_delta_log", "iceberg": "_iceberg"}
# What only former versions wrote.
_FORMER = f"{TABLE}/commits"


def check(name: Format, catalog: Mapping[str, str]) -> None:
    """See that the format *name* can be had here.

    Raises:
        Refused: it cannot; the sentence says what is missing.
    """
    if name == "iceberg":
        if importlib.util.find_spec("pyiceberg") is None:
            raise Refused("pyiceberg is not installed: pip install 'logpipeline[iceberg]'")
        if not catalog.get(TABLE_PROPERTY):
            raise Refused(
                "spec.table.catalog names no table: add `table: logs.lines`, or what yours is"
            )


def logs_of(name: Format, storage: Storage, *, catalog: Mapping[str, str], s3: S3Options) -> Logs:
    """Return the logs of the table in *storage*, by area.

    Raises:
        Refused: the format cannot be had here, or a former version wrote the table.
    """
    check(name, catalog)
    for other, place in _PLACES.items():
        if other != name and _has(storage, place):
            raise Refused(
                f"{storage.url} is a table of format {other}: ask for that, or choose another path "
                f"for {name}."
            )
    if _has(storage, _FORMER):
        raise Refused(
            f"{storage.url} is a table that a former version of logpipeline wrote, whose list of "
            "files no other program can read: choose another path, and let the table be filled "
            "anew from the streams."
        )
    if name == "iceberg":
        from logpipeline_spark.formats.iceberg import IcebergLog

        properties = {**_reaching(s3), **catalog}
        table = properties.pop(TABLE_PROPERTY)
        return {
            area: IcebergLog(storage, area, f"{table}{_SUFFIXES[area]}", properties)
            for area in AREAS
        }
    from logpipeline_spark.formats.delta import DeltaLog

    return {area: DeltaLog(storage, area, partitions_of(area)) for area in AREAS}


def _has(storage: Storage, folder: str) -> bool:
    return any(True for _ in storage.list(folder))


def _reaching(s3: S3Options) -> dict[str, str]:
    """Return how pyiceberg reaches the bucket that the table is in, by its own names."""
    return s3.named("s3.endpoint", "s3.region", "s3.access-key-id", "s3.secret-access-key")
