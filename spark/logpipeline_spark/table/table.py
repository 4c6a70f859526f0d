"""A table as its one writer has it: what is committed, in which order things are done, and how a
start finishes what a crash left half-done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import pyarrow as pa

from logpipeline.failpoints import reach
from logpipeline_spark.formats.format import Format, Parquet
from logpipeline_spark.table import counts
from logpipeline_spark.table.commit import Change, FileEntry, Range
from logpipeline_spark.table.compact import Merge, Sizes, due, write_merged
from logpipeline_spark.table.lease import LEASE_S, Fence, Lease
from logpipeline_spark.table.manifest import STATE, Manifest, Overtaken
from logpipeline_spark.table.names import LINES, WAITING, escaped, has_lines, shown
from logpipeline_spark.table.owner import Owner, sign
from logpipeline_spark.table.packed import missing
from logpipeline_spark.table.parquet import columns_of, plain
from logpipeline_spark.table.repair import Strays, refuse_orphans, repair, sweep
from logpipeline_spark.table.retain import Limits, expired
from logpipeline_spark.table.snapshot import Columns, Snapshot
from logpipeline_spark.table.storage import Storage

# A former writer that does not see yet that it is one commits at most what it has at hand.
BEGIN_ATTEMPTS = 5


class Table:
    """The right to write a table, and what it is now.

    Batches may be committed while another thread does the upkeep; upkeep is one thread's.
    """

    def __init__(
        self, storage: Storage, manifest: Manifest, lease: Lease, schema: pa.Schema, format: Format
    ) -> None:
        self._storage = storage
        self._manifest = manifest
        self._lease = lease
        self._schema = plain(schema)
        self._format = format
        self._lock = threading.RLock()
        self.repaired = Strays((), ())

    @classmethod
    def open(
        cls,
        storage: Storage,
        owner: Owner,
        *,
        holder: str,
        schema: pa.Schema,
        format: Format | None = None,
        patience_s: float = LEASE_S,
    ) -> Table:
        """Take the table over, and finish what its former writer left.

        Raises:
            Refused: it is another pipeline's, another process writes it, or it is damaged.
        """
        format = format or Parquet()
        storage.check()
        if Manifest.read(storage).snapshot.number < 0:
            refuse_orphans(storage)
        sign(storage, owner)
        lease = Lease.take(storage, holder, patience_s=patience_s)
        table = cls(storage, Manifest.read(storage), lease, schema, format)
        table._begin(columns_of(schema))
        reach("table.begun")
        table._catch_up()
        table.repaired = repair(storage, table.snapshot)
        table._show()
        return table

    @property
    def snapshot(self) -> Snapshot:
        """What is committed."""
        return self._manifest.snapshot

    @property
    def fence(self) -> Fence:
        """What tasks ask before they show a file."""
        return self._lease.fence

    def commit_batch(
        self,
        batch: str,
        ranges: Mapping[str, Range],
        added: Sequence[FileEntry],
        *,
        state: Mapping[str, bytes] | None = None,
        skipped: frozenset[str] = frozenset(),
        lost: Mapping[str, tuple[Range, ...]] | None = None,
    ) -> bool:
        """Commit what a batch wrote; False says that this batch was committed before.

        *state* is kept as it is, by stream, and belongs to the table as of this commit.

        Raises:
            Overtaken: another writer committed meanwhile.
            WrongRange: a range does not go on where the last one ended.
        """
        # Together with its state, which pruning would else take for an old one.
        with self._lock:
            if self.snapshot.batch == batch:
                return False
            places = self._write_state(state or {})
            reach("table.state-written")
            change = Change(
                "batch",
                added=tuple(added),
                batch=batch,
                ranges=ranges,
                skipped=skipped,
                lost=lost or {},
                state=places,
            )
            self._commit(change)
        return True

    def read_state(self) -> dict[str, bytes]:
        """Return what the last commits kept, by stream.

        Raises:
            Damaged: it is missing, without which lines that are sent again cannot be told.
        """
        kept: dict[str, bytes] = {}
        for stream, path in self.snapshot.state.items():
            data = self._storage.read(path)
            if data is None:
                raise missing(f"{self._storage.url}/{path}")
            kept[stream] = data
        return kept

    def compact(
        self, now: datetime, sizes: Sizes | None = None, *, merges_max: int | None = None
    ) -> list[Merge]:
        """Merge the small files of hours that are over, and add counts up; return what was merged,
        which is no more than *merges_max*.
        """
        sizes = sizes or Sizes()
        merges = [*due(self.snapshot, now, sizes), *counts.due(self.snapshot, now)][:merges_max]
        sweep(self._storage, self.snapshot)
        for merge in merges:
            with self._lease.fence.explaining(self._storage):
                entries = self._merged(merge, sizes)
            reach("table.merge-written")
            sources = tuple(entry.path for entry in merge.sources)
            self._commit(Change("compaction", added=tuple(entries), removed=sources))
            self._storage.delete(sources)
            reach("table.merge-removed")
            self._show()
        return merges

    def _merged(self, merge: Merge, sizes: Sizes) -> list[FileEntry]:
        number = self.snapshot.number + 1
        if merge.folder.startswith(f"{LINES}/"):
            return write_merged(self._storage, merge, self._schema, number=number, sizes=sizes)
        return counts.write_summed(self._storage, merge, number=number, sizes=sizes)

    def retain(self, now: datetime, limits: Limits) -> list[str]:
        """Remove whole hours beyond *limits*; return the files that went."""
        gone = expired(self.snapshot, now, limits)
        if gone:
            self._commit(Change("retention", removed=tuple(gone)))
            self._storage.delete(gone)
        return gone

    def prune(self) -> None:
        """Remove commits and state that nobody needs any more."""
        with self._lock:
            self._manifest.prune()

    def renew(self) -> None:
        """Say that this writer lives; to be done every `RENEW_S`.

        Raises:
            LeaseLost: another one took over.
        """
        self._lease.renew()

    def close(self) -> None:
        """Let the next writer go on at once."""
        self._lease.release()

    def _begin(self, columns: Columns) -> None:
        """Take the next number, so that whoever wrote before cannot commit any more."""
        for _ in range(BEGIN_ATTEMPTS - 1):
            try:
                return self._commit(Change("begin", columns=columns))
            except Overtaken:
                # The former writer's last one, which it began before the lease was ours.
                self._manifest = Manifest.read(self._storage)
        return self._commit(Change("begin", columns=columns))

    def _commit(self, change: Change) -> None:
        fence = self._lease.fence
        with self._lock:
            fence.check(self._storage)
            time_us = time.time_ns() // 1000
            commit = self._manifest.commit(
                change, epoch=fence.number, writer=fence.writer, time_us=time_us
            )
            reach("table.committed")
            added = [entry for entry in change.added if has_lines(entry.path)]
            removed = [path for path in change.removed if has_lines(path)]
            if added or removed:
                self._format.commit(added, removed, number=commit.number, schema=self._schema)
            reach("table.registered")

    def _show(self) -> None:
        """Show the files that are committed, now that those which they replaced are gone."""
        files = self.snapshot.files
        hidden = [entry for path, entry in files.items() if path.startswith(f"{WAITING}/")]
        if not hidden:
            return
        for entry in hidden:
            self._storage.copy(entry.path, shown(entry.path))
            reach("table.merge-shown")
        removed = tuple(entry.path for entry in hidden)
        self._commit(Change("shown", added=tuple(map(_shown, hidden)), removed=removed))
        self._storage.delete(removed)

    def _catch_up(self) -> None:
        """Register what a crash kept from being registered, before any file goes away."""
        files = {path: entry for path, entry in self.snapshot.files.items() if has_lines(path)}
        known = self._format.paths()
        added = [entry for path, entry in files.items() if path not in known]
        removed = sorted(known - set(files))
        if added or removed:
            number = self.snapshot.number
            self._format.commit(added, removed, number=number, schema=self._schema)

    def _write_state(self, state: Mapping[str, bytes]) -> dict[str, str]:
        number = self.snapshot.number + 1
        epoch = self._lease.fence.number
        places = {stream: f"{STATE}/{number}-{epoch}-{escaped(stream)}" for stream in state}
        for stream, data in state.items():
            self._storage.write(places[stream], data)
        return places


def _shown(entry: FileEntry) -> FileEntry:
    return replace(entry, path=shown(entry.path))
