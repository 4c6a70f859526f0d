"""The log of a lake format, as a table needs it. The log alone says which files belong to the
table.

A writer commits by creating the next version. If another process was faster, the writer reads that
version, and commits after it if its own change is still right.
"""

from __future__ import annotations

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
    FileEntry,
)

# A file that no version needs any more stays for so long, for readers that began before.
GRACE_HOURS = 2
# A clean-up removes files that no version names after twice this time: the rest is for clocks that
# differ.
COMMITTED_WITHIN = timedelta(hours=GRACE_HOURS) / 2
# The formats' names for the purpose of a commit.
Operation = Literal["WRITE", "OPTIMIZE", "DELETE", "VACUUM START"]


class Overtaken(Refused):
    """Another writer committed a batch, or took the table over."""


class Conflict(Refused):
    """Another process replaced or removed the same files; nothing was committed."""


class Late(Refused):
    """The written files waited so long that a clean-up may have removed them: the machine was
    asleep, or there was too much to write. Nothing was committed.
    """


def is_late(since: datetime) -> bool:
    """Return whether a clean-up may take files that were begun at *since* for leftovers by now."""
    return datetime.now(UTC) - since > COMMITTED_WITHIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of one version. *transaction* is a batch's number, None for upkeep, which may run
    beside batches; *said* is shown in the history. The log keeps the last *state* that comes with a
    transaction. *begun* is when the first of the *added* files was begun, None if no clean-up
    removes them.
    """

    operation: Operation
    added: Sequence[FileEntry] = ()
    removed: Sequence[FileEntry] = ()
    transaction: int | None = None
    said: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    begun: datetime | None = None

    def __post_init__(self) -> None:
        # Two writers are told apart by what came since a batch's writer read the log, and two who
        # replace files by whether the files are still there.
        assert self.transaction is None or not self.removed, "a batch only adds files"

    def refuse_late(self) -> None:
        """Refuse a change whose files a clean-up may have removed already.

        Raises:
            Late: it may have.
        """
        if self.begun is None or not self.added:
            return
        if is_late(self.begun):
            waited = datetime.now(UTC) - self.begun
            raise Late(
                f"The written files waited {waited} for their commit, and a clean-up removes them "
                f"after {GRACE_HOURS} hours: nothing was changed. If the machine did not sleep, do "
                "less at a time."
            )


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a log; *time_us* is the time of its commit, in microseconds since 1970."""

    time_us: int
    said: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Former:
    """A file that former versions name, and the last one does not; upkeep removes it after
    *goes_at*.
    """

    path: str
    goes_at: datetime


class Log(Protocol):
    """The log of one area of a table."""

    def transaction(self) -> int | None:
        """Read the log and return the number of its last batch: 0 before the first, None if there
        is no log.

        Raises:
            Refused: it cannot be read.
        """

    def version(self) -> int:
        """Return the version that was read, or committed, last: a number that only the same format
        can compare.
        """

    def begin(self, schema: pa.Schema, properties: Mapping[str, str]) -> None:
        """Create the log if there is none, and add the columns of *schema* that it lacks.

        Raises:
            Refused: its properties differ, or a column would change its type.
        """

    def schema(self) -> pa.Schema | None:
        """Return the columns of all files, as they are written; None if there is no log.

        Raises:
            Refused: the log cannot be read.
        """

    def commit(self, change: Change) -> None:
        """Commit *change*.

        Raises:
            Overtaken: it is a batch, and another writer came first.
            Conflict: another process removed the same files.
            Late: a clean-up may have removed the added files.
            Refused: the log cannot be written.
        """

    def files(self) -> list[FileEntry]:
        """Return the files of the last version.

        Raises:
            Refused: the log cannot be read.
        """

    def history(self) -> Iterator[Version]:
        """Give the versions that the log keeps, the oldest first."""

    def state(self) -> Mapping[str, Any]:
        """Return the state that came with the last transaction; empty if an older version of
        logpipeline wrote it, or the log does not keep it any more.

        Raises:
            Refused: the log cannot be read.
        """

    def former(self) -> list[Former]:
        """Return files that former versions name, whether they still exist or not.

        Raises:
            Refused: the log cannot be read.
        """

    def drop(self, paths: Sequence[str]) -> None:
        """Remove files that only former versions name, at once: a reader of such a version fails.

        Raises:
            Refused: the log or the storage refuses it.
        """

    def keep_up(self, now: datetime) -> None:
        """Keep the log short, and remove files that no version has needed for `GRACE_HOURS`.

        *now* lies before all that this process knows of the table: what others write later is too
        young to be removed, even if this process is suspended until it is old.
        """


Logs = Mapping[str, Log]

AREAS = (LINES, ROLLUP_MINUTE, ROLLUP_SOURCE)
