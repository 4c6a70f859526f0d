"""The upkeep of a table: compaction into fewer and larger files, retention, and a short log.

It adds no lines, so any process may do it beside the table's writer. If two processes replace the
same files, the log accepts one of them.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from logpipeline.failpoints import reach
from logpipeline_spark.errors import Damaged
from logpipeline_spark.formats.log import GRACE_HOURS, Change, Conflict, Late, Logs
from logpipeline_spark.table import counts
from logpipeline_spark.table.compaction import Merge, Sizes, due, write_merged
from logpipeline_spark.table.files import (
    LINES,
    WRITING,
    FileEntry,
    end_of,
    folder_of,
    hour_folder,
    is_of_time,
)
from logpipeline_spark.table.state import States
from logpipeline_spark.table.storage import Storage
from logpipeline_spark.table.word_filters import remove_unneeded
from logpipeline_spark.table.writer import COUNTS

# Retention tries so often if others change the same files.
ATTEMPTS = 3

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of age and size of the lines; None is no limit."""

    age: timedelta | None = None
    total_bytes: int | None = None


def expired(files: Iterable[FileEntry], now: datetime, limits: Limits) -> list[FileEntry]:
    """Return the files of whole hours to remove: those that are too old, then the oldest beyond the
    size.

    The newest hour stays, however large it is, since it is being written.
    """
    hours: dict[datetime, list[FileEntry]] = defaultdict(list)
    for entry in files:
        hours[_end_of(entry)].append(entry)
    total_bytes = sum(entry.bytes for entries in hours.values() for entry in entries)
    newest = max(hours, default=now)
    gone: list[FileEntry] = []
    for end, entries in sorted(hours.items()):
        is_old = limits.age is not None and end + limits.age <= now
        is_beyond = limits.total_bytes is not None and total_bytes > limits.total_bytes
        if is_old or (is_beyond and end != newest):
            gone += entries
            total_bytes -= sum(entry.bytes for entry in entries)
    return gone


def _end_of(entry: FileEntry) -> datetime:
    """Return the end of the hour of a file; one that another program wrote may hold many."""
    if is_of_time(entry.path):
        return end_of(folder_of(entry.path))
    return end_of(hour_folder(datetime.fromtimestamp(entry.last_us / 1_000_000, UTC)))


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The upkeep of one table; no other object may use its *logs*. Where it *has words*, merged
    files get word filters.
    """

    storage: Storage
    logs: Logs
    has_words: bool = False

    def compact(
        self, now: datetime, sizes: Sizes | None = None, *, merges_max: int | None = None
    ) -> list[Merge]:
        """Merge the small files of hours that are over, and add counts up. Return the merges, at
        most *merges_max*. One whose files cannot be read does not keep the others from it.

        Raises:
            Damaged: a file is missing or cannot be read; all other merges are done.
            Refused: the log cannot be written.
        """
        sizes = sizes or Sizes()
        files = {area: self._files(area) for area in (LINES, *COUNTS)}
        merges = [(LINES, merge) for merge in due(files[LINES], now, sizes)]
        merges += [(area, merge) for area in COUNTS for merge in counts.due(files[area], now)]
        done, failed = [], []
        tried = 0
        for area, merge in merges:
            # What failed takes the place of no other merge: it fails at each call.
            if tried == merges_max:
                break
            begun = datetime.now(UTC)
            try:
                entries = self._written(area, merge, sizes)
            except Damaged as error:
                log.warning("%s was not merged: %s", merge.folder, error)
                failed.append(error)
                continue
            tried += 1
            reach("table.merge-written")
            if self._replace(area, merge.sources, entries, begun):
                done.append(merge)
            reach("table.merge-committed")
        if done:
            # The next merge may be an hour away.
            pa.default_memory_pool().release_unused()
        if failed:
            raise failed[0]
        return done

    def _written(self, area: str, merge: Merge, sizes: Sizes) -> list[FileEntry]:
        if area != LINES:
            return counts.write_summed(self.storage, merge, COUNTS[area], sizes=sizes)
        # All columns of the log, whichever program added them: only the merged files keep them.
        schema = self.logs[area].schema()
        assert schema is not None, "there are files, and no log"
        return write_merged(self.storage, merge, schema, sizes=sizes, has_words=self.has_words)

    def retain(self, now: datetime, limits: Limits) -> list[FileEntry]:
        """Remove whole hours beyond *limits* from the table; return their files.

        Raises:
            Refused: the log cannot be written.
        """
        for _ in range(ATTEMPTS):
            gone = expired(self._files(LINES), now, limits)
            if not gone:
                break
            try:
                self.logs[LINES].commit(Change(operation="DELETE", removed=gone))
            except Conflict:
                # Another process merged some of them: then the merged files are removed.
                continue
            return gone
        return []

    def clean(self, now: datetime) -> None:
        """Keep the logs short, and remove files that no version has needed for a while. *now* is
        the time of the call, or earlier.

        Raises:
            Damaged: the table's state cannot be read.
            Refused: the storage refuses it.
        """
        # Files of a batch that comes later are too young to be removed.
        behind = self._behind()
        for area, each in self.logs.items():
            if area not in behind:
                each.keep_up(now)
        remove_unneeded(self.storage)
        # Files that a process had begun to write when it was killed.
        self.storage.delete(
            stored.path
            for stored in self.storage.list(WRITING)
            if stored.modified <= now - timedelta(hours=GRACE_HOURS)
        )

    def _behind(self) -> set[str]:
        """Return the areas whose logs lack files of the last batch: its writer died, or failed,
        before it committed them there. The next writer commits these files, however old they are by
        then.
        """
        transaction = self.logs[LINES].transaction()
        if not transaction:
            return set()
        counted = States(self.storage).counted(transaction)
        if counted is None:
            # A later batch has replaced it: this batch is no longer the last one.
            return set(COUNTS)
        return {
            area
            for area in counted.files
            if (self.logs[area].transaction() or 0) < counted.transaction
        }

    def _files(self, area: str) -> list[FileEntry]:
        # The log commits a change after the version that it read last.
        self.logs[area].transaction()
        return self.logs[area].files()

    def _replace(
        self,
        area: str,
        sources: Sequence[FileEntry],
        entries: Sequence[FileEntry],
        begun: datetime,
    ) -> bool:
        change = Change(operation="OPTIMIZE", added=entries, removed=sources, begun=begun)
        try:
            self.logs[area].commit(change)
        except (Conflict, Late) as error:
            # A later clean-up removes the files that were written for it.
            log.info("%s was not merged: %s", area, error)
            return False
        return True
