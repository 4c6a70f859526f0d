"""What a table needs of a lake format: its log, which is the only truth about which files count.

Whoever commits puts the next version where none may be yet. Who finds one there looks at what it
says, and goes on behind it if that leaves its own change right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol

import pyarrow as pa

from logpipeline_spark.errors import Refused
from logpipeline_spark.table.entry import FileEntry

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
