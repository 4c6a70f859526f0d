"""The one writer of a table: the batches in the table, and how a start finishes what a crash left
half-done.

The log of lines decides: a batch is in the table when the log has its transaction. The state of
that batch is written before, and the logs of counts follow. A transaction's number begins with the
number of its writer, which each writer takes from the log when it begins. Earlier writers cannot
commit any more, since the log has a transaction that they did not write.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from logpipeline.failpoints import reach
from logpipeline_spark.errors import Refused
from logpipeline_spark.formats.log import AREAS, Change, Logs, Overtaken
from logpipeline_spark.table.counts import MINUTES, SOURCES
from logpipeline_spark.table.files import (
    LINES,
    ROLLUP_MINUTE,
    ROLLUP_SOURCE,
    FileEntry,
    Range,
    has_lines,
)
from logpipeline_spark.table.parquet import plain
from logpipeline_spark.table.state import Counted, Kept, State, States, last_state
from logpipeline_spark.table.storage import Storage

# A writer of another name that committed something within so many seconds is at work.
PATIENCE_S = 20.0
# Other writers that begin now, or began and died, take numbers too.
BEGIN_ATTEMPTS = 20
# A job that begins reads the log, and then the state that the log names; so does `table verify`. If
# a fast writer removed that state with its next commit, neither would ever find one.
STATES_KEPT_S = 60.0
# The bits of a transaction's number in which a writer counts its batches.
BATCH_BITS = 32
COUNTS = {ROLLUP_MINUTE: MINUTES, ROLLUP_SOURCE: SOURCES}
# So many streams have their heads in each commit, some 150 bytes each. With more, commits would be
# larger than all else in a log.
LOGGED_STREAMS_MAX = 128
_NOTHING: Mapping[str, Kept] = {}
# The properties of a log that name the owner of the table.
PIPELINE = "logpipeline.pipeline"
SUBJECTS = "logpipeline.subjects"


class Held(Refused):
    """Another writer is at work."""


class TableWriter:
    """The right to write a table, and the state of the table. For one thread only."""

    def __init__(self, storage: Storage, logs: Logs, state: State, rows: Any) -> None:
        self._logs = logs
        self._states = States(storage)
        self._storage = storage
        self.state = state
        self.rows: Mapping[str, Mapping[str, Any]] = rows
        # Times of the monotonic clock, each with the first state that is needed since then. What is
        # not needed at the start may go at once.
        self._first_needed = deque([(-math.inf, state.first_needed)])

    @classmethod
    def open(
        cls,
        storage: Storage,
        logs: Logs,
        *,
        pipeline: str,
        subjects: str,
        holder: str,
        schema: pa.Schema,
        wait: Callable[[float], object] = time.sleep,
    ) -> TableWriter:
        """Take the table over, and finish what its former writer left. *holder* is the writer's
        name; a writer of the same name need not wait.

        Raises:
            Refused: it belongs to another pipeline, another process writes it, or it is damaged.
        """
        storage.check()
        properties = {PIPELINE: pipeline, SUBJECTS: subjects}
        for area in AREAS:
            logs[area].begin(COUNTS.get(area, plain(schema)), properties)
        for attempt in range(BEGIN_ATTEMPTS):
            state, rows = last_state(storage, logs)
            if not attempt and state.holder not in ("", holder):
                wait(PATIENCE_S)
                if _transaction(logs) != state.transaction:
                    raise Held(
                        f"{state.holder} writes {storage.url}: stop it, or choose another path."
                    )
            table = cls(storage, logs, state, rows)
            if table._begin(holder):
                reach("table.begun")
                table._catch_up()
                return table
        raise Held(f"Other writers take {storage.url} over again and again: stop all but one.")

    @classmethod
    def renew(
        cls, storage: Storage, logs: Logs, state: State, kept: Mapping[str, Kept]
    ) -> TableWriter:
        """Put a rebuilt *state*, with the stored form of all streams (*kept*), in the place of the
        state that *logs* had when they were read. It gets a new writer's number, so that earlier
        writers cannot commit any more; the next writer continues from it at once.

        Raises:
            Held: another writer committed meanwhile; nothing was changed.
        """
        storage.check()
        table = cls(storage, logs, state, {})
        if not table._begin("", kept):
            raise Held(f"Another process writes {storage.url}: stop it, and try again.")
        return table

    @property
    def writer(self) -> int:
        """A number that no other writer has."""
        return self.state.transaction >> BATCH_BITS

    def commit_batch(
        self,
        batch: str,
        ranges: Mapping[str, Range],
        added: Sequence[FileEntry],
        kept: Mapping[str, Kept],
        *,
        skipped: frozenset[str] = frozenset(),
        lost: Mapping[str, Sequence[Range]] | None = None,
        begun: datetime | None = None,
    ) -> None:
        """Commit the files that a batch wrote since it was *begun*, with the stored form of all
        streams (*kept*) as of this batch.

        Raises:
            Overtaken: another writer committed meanwhile.
            Late: a clean-up may have removed the files.
            WrongRange: a range does not continue where the last one ended.
        """
        number = self.state.transaction + 1
        lines = [entry for entry in added if has_lines(entry.path)]
        counts = {area: tuple(_beneath(area, added)) for area in COUNTS}
        state = replace(
            self.state,
            transaction=number,
            batch=batch,
            cover=self.state.cover.after(ranges, skipped=skipped, lost=lost),
            counted=Counted(number, counts),
            heads={stream: each.head for stream, each in kept.items()},
            batches=self.state.batches + 1,
            lines=self.state.lines + sum(entry.rows for entry in lines),
        )
        following = self._states.save(state, kept)
        if following is None:
            raise Overtaken(f"Another writer took the number of this one in {self._storage.url}.")
        reach("table.state-written")
        newest_us = max((entry.last_us for entry in lines), default=0)
        self._logs[LINES].commit(
            Change(
                operation="WRITE",
                added=lines,
                transaction=number,
                said={"batch": batch, "newest_us": newest_us},
                state=_logged(state),
                begun=begun,
            )
        )
        self.state = following
        reach("table.batch-committed")
        for area in COUNTS:
            self._count(area)

    def prune(self) -> None:
        """Remove the states that have not been needed for `STATES_KEPT_S`."""
        now_s, since = time.monotonic(), self._first_needed
        since.append((now_s, self.state.first_needed))
        while len(since) > 1 and since[1][0] <= now_s - STATES_KEPT_S:
            since.popleft()
        self._states.remove_before(since[0][1])

    def close(self) -> None:
        """Let the next writer go on at once."""
        state = replace(self.state, transaction=self.state.transaction + 1, holder="")
        if self._states.save(state, {}) is not None:
            self._commit_alone(state)
            self.state = state

    def _begin(self, holder: str, kept: Mapping[str, Kept] = _NOTHING) -> bool:
        """Take a number that no writer has; return whether no other writer was faster. The stored
        form of all streams (*kept*) goes with it if the state was rebuilt.
        """
        # Numbers of writers that died before they had begun are taken too, however many: while a
        # log refuses commits, each start leaves one.
        taken = max(self.writer, self._states.newest() >> BATCH_BITS)
        for _ in range(BEGIN_ATTEMPTS):
            taken += 1
            begun = replace(self.state, transaction=taken << BATCH_BITS, holder=holder)
            # Another writer that begins now may be faster.
            following = self._states.save(begun, kept)
            if following is not None:
                try:
                    self._commit_alone(begun)
                except Overtaken:
                    return False
                self.state = following
                return True
        return False

    def _commit_alone(self, state: State) -> None:
        """Commit a transaction without lines."""
        number = state.transaction
        self._logs[LINES].commit(
            Change(operation="WRITE", transaction=number, state=_logged(state))
        )

    def _catch_up(self) -> None:
        """Let the logs of counts follow that of lines after a crash in between."""
        for area in self.state.counted.files:
            if self._is_counted(area):
                continue
            try:
                self._count(area)
            except Overtaken:
                # The former writer may be alive, and commit the counts of its last batch itself.
                # It cannot commit another batch, so this writer need not end for it.
                if not self._is_counted(area):
                    raise

    def _is_counted(self, area: str) -> bool:
        return (self._logs[area].transaction() or 0) >= self.state.counted.transaction

    def _count(self, area: str) -> None:
        counted = self.state.counted
        # Also for a batch without counts, so that each log says how far it is.
        self._logs[area].commit(
            Change(operation="WRITE", added=counted.files[area], transaction=counted.transaction)
        )
        reach("table.counted")


def _logged(state: State) -> Mapping[str, Any]:
    """Return the part of *state* that the log stores; with it a lost state can be rebuilt."""
    logged = {
        "counted": state.counted.transaction,
        "batches": state.batches,
        "lines": state.lines,
    }
    if len(state.heads) > LOGGED_STREAMS_MAX:
        return logged
    return {**logged, "heads": dict(state.heads)}


def _transaction(logs: Logs) -> int:
    return logs[LINES].transaction() or 0


def _beneath(area: str, entries: Sequence[FileEntry]) -> Sequence[FileEntry]:
    return [entry for entry in entries if entry.path.startswith(f"{area}/")]
