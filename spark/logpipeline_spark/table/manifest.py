"""The table's history: one object for each commit, put where none may be yet.

Each `WHOLE_EVERY`-th commit carries the whole list of files, so that reading a table takes a
bounded number of objects, however old it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from logpipeline_spark.errors import Refused
from logpipeline_spark.table.commit import COMMITS, Change, Commit, commit_path, decode, encode
from logpipeline_spark.table.names import TABLE, name_of
from logpipeline_spark.table.packed import missing
from logpipeline_spark.table.snapshot import Snapshot, after, from_data, to_data
from logpipeline_spark.table.storage import Storage

WHOLE_EVERY = 64
# A whole list of so many files still is an object that can be read at once. Compaction keeps a
# table far below: some files an hour, and some for each day's counts.
FILES_MAX = 1_000_000
# Kept for those who ask what happened; a reader needs no more than WHOLE_EVERY of them.
COMMITS_KEPT = 1024
STATE = f"{TABLE}/state"


class Overtaken(Refused):
    """Another writer committed meanwhile."""


class Manifest:
    """A table's commits, and what the table is after the last one."""

    def __init__(self, storage: Storage, snapshot: Snapshot) -> None:
        self._storage = storage
        self.snapshot = snapshot

    @classmethod
    def read(cls, storage: Storage) -> Manifest:
        """Read the table as it is now; one without any commit is empty.

        Raises:
            Damaged: a commit is missing or is not what was written.
        """
        numbers = sorted(commit_numbers(storage))
        snapshot = Snapshot()
        if numbers:
            whole = numbers[-1] - numbers[-1] % WHOLE_EVERY
            for number in range(whole, numbers[-1] + 1):
                snapshot = _next(snapshot, read_commit(storage, number))
        return cls(storage, snapshot)

    def commit(self, change: Change, *, epoch: int, writer: str, time_us: int) -> Commit:
        """Commit *change*, after which readers see it.

        Raises:
            Overtaken: another writer was first; nothing has been committed.
            Refused: the change does not fit the table.
        """
        number = self.snapshot.number + 1
        commit = Commit(number, epoch, writer, time_us, change)
        following = after(self.snapshot, commit)
        if change.kind == "batch" and len(following.files) > FILES_MAX:
            raise Refused(
                f"{self._storage.url} has {FILES_MAX} files, and more cannot be listed: run "
                "`logpipeline archive compact`, and let spec.archive.compaction be enabled."
            )
        if number % WHOLE_EVERY == 0:
            commit = Commit(number, epoch, writer, time_us, change, to_data(following))
        if not self._storage.put_if_absent(commit_path(number), encode(commit)):
            raise Overtaken(
                f"Another writer committed to {self._storage.url} meanwhile: "
                "let one pipeline alone write there."
            )
        self.snapshot = following
        return commit

    def prune(self) -> None:
        """Remove old commits, and state that no commit of those that stay names last."""
        oldest = self.snapshot.number - COMMITS_KEPT
        numbers = commit_numbers(self._storage)
        self._storage.delete(commit_path(number) for number in numbers if number < oldest)
        named = set(self.snapshot.state.values())
        states = [stored.path for stored in self._storage.list(STATE)]
        self._storage.delete(path for path in states if path not in named)


def commit_numbers(storage: Storage) -> list[int]:
    """Return the numbers of all commits that are there."""
    names = (name_of(stored.path).removesuffix(".json") for stored in storage.list(COMMITS))
    return [int(name) for name in names if name.isdecimal()]


def read_commit(storage: Storage, number: int) -> Commit:
    """Return one commit.

    Raises:
        Damaged: it is missing or is not what was written.
    """
    path = commit_path(number)
    raw = storage.read(path)
    if raw is None:
        raise missing(f"{storage.url}/{path}")
    return decode(raw, number)


def history(storage: Storage) -> Iterator[Commit]:
    """Give all commits that are kept, the oldest first."""
    for number in sorted(commit_numbers(storage)):
        yield read_commit(storage, number)


def _next(snapshot: Snapshot, commit: Commit) -> Snapshot:
    return after(snapshot, commit) if commit.whole is None else from_data(commit.whole)
