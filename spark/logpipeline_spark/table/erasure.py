"""Erasure: removes lines from a table for good. Files that hold such lines are written again
without them, one version of the log replaces the old files by the new ones, and the old files are
removed.

It adds no line, so it needs no right to write: like other upkeep it runs beside the job. A batch is
in the table by its range and the log's transaction, not by its lines, so that no batch brings a
line back. If it is killed, it can be repeated: a change that is not committed was not made, and
after a commit the log knows the files of former versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import translate

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from logpipeline.failpoints import reach
from logpipeline_spark.errors import Damaged, Refused
from logpipeline_spark.formats.log import GRACE_HOURS, Change, Conflict, Former, Logs
from logpipeline_spark.lines.schema import LINES as SCHEMA
from logpipeline_spark.lines.schema import TIME
from logpipeline_spark.table import word_filters
from logpipeline_spark.table.compaction import Parts, Sizes
from logpipeline_spark.table.files import LINES, FileEntry, folder_of, words_path
from logpipeline_spark.table.parquet import checked_file
from logpipeline_spark.table.scan import fitted, microseconds
from logpipeline_spark.table.storage import Storage

# It tries so often if other processes merge or remove the same files. A merge takes about as long
# as an attempt: of two that run side by side, one succeeds each time.
ATTEMPTS = 10


# Columns that must equal the given value.
_EXACT = ("host", "namespace", "pod", "container")


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The condition for lines to erase: their names, and a time range, up to but without *until*,
    in which the server stored them; None means any. A *source* is a whole name, or a pattern:
    `*` stands for any characters, `/` among them, and `?` for one.

    Raises:
        Refused: there is no name, an empty name, or an empty time range.
    """

    host: str | None = None
    namespace: str | None = None
    pod: str | None = None
    container: str | None = None
    source: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        names = self._names()
        if empty := [name for name, value in names.items() if not value]:
            raise Refused(f"--{empty[0]} is empty: pass a name, or leave it out.")
        if not names:
            # A time alone would erase the lines of all sources: that is the task of retention.
            raise Refused(
                "Nothing names the lines to erase: pass --host, --namespace, --pod, --container or "
                "--source. To remove whole hours of all lines, set spec.table.retention."
            )
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise Refused("--since is not before --until: there is no time between them.")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the condition uses."""
        has_times = self.since is not None or self.until is not None
        return (*self._names(), *(("ts",) if has_times else ()))

    def data(self) -> dict[str, str]:
        """Return the condition as JSON values."""
        times = {"since": self.since, "until": self.until}
        return self._names() | {
            name: time.astimezone(UTC).isoformat() for name, time in times.items() if time
        }

    def may_be_in(self, entry: FileEntry) -> bool:
        """Return whether a file may hold lines of the time range."""
        return (self.since is None or entry.last_us >= microseconds(self.since)) and (
            self.until is None or entry.first_us < microseconds(self.until)
        )

    def matches(self, table: pa.Table) -> pa.ChunkedArray:
        """Return for each line of *table* whether it fits: true or false, never null."""
        found = [
            pc.equal(table[name], value) for name, value in self._names().items() if name in _EXACT
        ]
        if self.source is not None:
            found.append(pc.is_in(table["source"], value_set=_fitting(table, self.source)))
        if self.since is not None:
            found.append(pc.greater_equal(table["ts"], pa.scalar(self.since, TIME)))
        if self.until is not None:
            found.append(pc.less(table["ts"], pa.scalar(self.until, TIME)))
        whole = found[0]
        for each in found[1:]:
            whole = pc.and_(whole, each)
        # A line without a namespace fits no namespace. With null it would be neither erased nor
        # kept.
        return pc.fill_null(whole, False)

    def _names(self) -> dict[str, str]:
        said = {name: getattr(self, name) for name in (*_EXACT, "source")}
        return {name: value for name, value in said.items() if value is not None}


def _fitting(table: pa.Table, source: str) -> pa.Array:
    """Return the sources in *table* that fit *source*. They are few: each is compared once."""
    # Brackets are characters like others: as a range of a glob, the whole name of app[1].log would
    # take the lines of app1.log, too.
    pattern = re.compile(translate(source.replace("[", "[[]")))
    names = pc.unique(table["source"]).to_pylist()
    fitting = [name for name in names if name and pattern.match(name)]
    return pa.array(fitting, pa.string())


@dataclass(frozen=True, slots=True)
class Found:
    """A file with the number of its *lines* that fit, and of the bytes of their text."""

    entry: FileEntry
    lines: int
    text_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The fitting lines of a version of the table."""

    version: int
    files: tuple[Found, ...]
    schema: pa.Schema

    @property
    def lines(self) -> int:
        """The number of lines to erase."""
        return sum(found.lines for found in self.files)

    @property
    def text_bytes(self) -> int:
        """The bytes of their text."""
        return sum(found.text_bytes for found in self.files)


@dataclass(frozen=True, slots=True)
class Replaced:
    """A file that was removed, and the files that replace it: none if all its lines were erased."""

    found: Found
    by: tuple[FileEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The result: no file of *version_after* holds the lines of *version_before* that fit
    *condition*. *remaining* are files that still hold such lines: those of former versions, and
    what merges wrote in vain, since the erasure was faster.
    """

    table: str
    condition: Condition
    time: datetime
    version_before: int
    version_after: int
    replaced: tuple[Replaced, ...]
    remaining: tuple[Former, ...]
    dropped: tuple[str, ...]

    @property
    def lines(self) -> int:
        """The number of erased lines."""
        return sum(each.found.lines for each in self.replaced)

    @property
    def text_bytes(self) -> int:
        """The bytes of their text."""
        return sum(each.found.text_bytes for each in self.replaced)

    @property
    def gone_by(self) -> datetime | None:
        """The time from which upkeep may remove the last of the former files; None if there is
        none.
        """
        return max((former.goes_at for former in self.remaining), default=None)


@dataclass(frozen=True, slots=True)
class Erasure:
    """Erases lines of one table. Its *logs* must not be shared with another writer: they remember
    the version that they read last.
    """

    storage: Storage
    logs: Logs
    condition: Condition

    def plan(self) -> Plan:
        """Find the lines that fit, and change nothing.

        Raises:
            Damaged: a file is missing or cannot be read.
            Refused: there is no table.
        """
        log = self.logs[LINES]
        # The log commits a change after the version that it read last.
        if log.transaction() is None:
            raise Refused(
                f"There is no table at {self.storage.url}: see spec.table.path, or --path."
            )
        version = log.version()
        entries = sorted(log.files(), key=lambda entry: entry.path)
        # Read after the files, so that it has all of their columns.
        schema = log.schema()
        assert schema is not None, "there are files, and no log"
        return Plan(version, tuple(self._found(entries)), schema)

    def erase(self, now: datetime, *, has_grace: bool = True) -> Proof:
        """Erase the lines that fit. Files of former versions that hold such lines stay for readers
        that began before; without *grace* they are removed at once.

        Raises:
            Damaged: a file is missing or cannot be read; nothing was changed.
            Refused: the log cannot be written, or other processes change the same files again and
                again.
        """
        plan, replaced = self._committed()
        after = self.logs[LINES].version()
        former = tuple(self._holding(self.logs[LINES].former()))
        in_vain = tuple(self._holding(self._of_no_version()))
        # Word filters reveal whether a word was there: they are removed at once, and the files are
        # read without them.
        word_filters.drop(self.storage, [each.path for each in (*former, *in_vain)])
        if not has_grace and former:
            self.logs[LINES].drop([each.path for each in former])
            reach("table.erased-files-dropped")
        return Proof(
            table=f"{self.storage.url}/{LINES}",
            condition=self.condition,
            time=now,
            version_before=plan.version,
            version_after=after,
            replaced=replaced,
            # A merge of lines that came after the erasure may be under way: no file of it is
            # removed before its time.
            remaining=(*(former if has_grace else ()), *in_vain),
            dropped=() if has_grace else tuple(each.path for each in former),
        )

    def _committed(self) -> tuple[Plan, tuple[Replaced, ...]]:
        """Remove the lines from the table, in one version."""
        for _ in range(ATTEMPTS):
            plan = self.plan()
            if not plan.files:
                return plan, ()
            begun = datetime.now(UTC)
            replaced = tuple(
                Replaced(found, self._rewritten(found, plan.schema)) for found in plan.files
            )
            reach("table.erasure-written")
            change = Change(
                operation="DELETE",
                added=[entry for each in replaced for entry in each.by],
                removed=[each.found.entry for each in replaced],
                # Without the condition: a history that names a person would have to be erased too.
                said={"erased_lines": plan.lines},
                begun=begun,
            )
            try:
                self.logs[LINES].commit(change)
            except Conflict:
                # Another process merged or removed some of them: the lines are in other files now.
                # What was written holds none of them, and is left to a later clean-up: only the log
                # says what is needed, and not what an answer of the storage makes of it.
                continue
            reach("table.erasure-committed")
            return plan, replaced
        raise Refused(
            f"Other processes merge or remove the same files of {self.storage.url} again and "
            "again, and nothing was erased: try again when they are done."
        )

    def _found(self, entries: Iterable[FileEntry]) -> Iterator[Found]:
        for entry in entries:
            if self.condition.may_be_in(entry):
                found = self._counted(entry)
                if found.lines:
                    yield found

    def _counted(self, entry: FileEntry) -> Found:
        lines = text_bytes = 0
        with checked_file(self.storage, entry.path) as file:
            for number in range(file.num_row_groups):
                fits = self._matching(file, number)
                count = _sum(fits)
                if count:
                    texts = file.read_row_group(number, columns=["line"])["line"].filter(fits)
                    lines += count
                    text_bytes += _sum(pc.binary_length(texts))
        return Found(entry, lines, text_bytes)

    def _matching(self, file: pq.ParquetFile, number: int) -> pa.ChunkedArray:
        columns = self.condition.columns
        schema = pa.schema([SCHEMA.field(name) for name in columns])
        return self.condition.matches(fitted(file.read_row_group(number, columns=columns), schema))

    def _rewritten(self, found: Found, schema: pa.Schema) -> tuple[FileEntry, ...]:
        """Write the other lines of a file, in their order and groups, into its folder."""
        entry = found.entry
        entries: list[FileEntry] = []
        has_words = word_filters.are_there(self.storage, entry.path)
        folder = folder_of(entry.path)
        parts = Parts(self.storage, folder, schema, entries, has_words=has_words)
        erased = 0
        with checked_file(self.storage, entry.path) as file, parts.stack:
            for number in range(file.num_row_groups):
                table = fitted(file.read_row_group(number), schema)
                fits = self.condition.matches(table)
                erased += _sum(fits)
                rest = table.filter(pc.invert(fits))
                if rest.num_rows:
                    parts.add(rest, is_new_group=True, sizes=Sizes())
            parts.end()
        kept = sum(each.rows for each in entries)
        assert erased == found.lines, f"{entry.path}: {found.lines} lines were found, and {erased}"
        assert kept + erased == entry.rows, f"{entry.path}: {entry.rows} rows became {kept}"
        return tuple(entries)

    def _of_no_version(self) -> Iterator[Former]:
        """Give the files of merges that neither this version nor a former one names."""
        log = self.logs[LINES]
        # The files first: one that is committed meanwhile is in the log then.
        merged = [each for each in self.storage.list(LINES) if words_path(each.path) is not None]
        named = {each.path for each in log.files()} | {each.path for each in log.former()}
        for stored in merged:
            if stored.path not in named:
                yield Former(stored.path, stored.modified + timedelta(hours=GRACE_HOURS))

    def _holding(self, files: Iterable[Former]) -> Iterator[Former]:
        """Give those of *files* that hold lines that fit."""
        for former in sorted(files, key=lambda former: former.path):
            try:
                with checked_file(self.storage, former.path) as file:
                    groups = range(file.num_row_groups)
                    holds_some = any(_sum(self._matching(file, number)) for number in groups)
            except Damaged:
                # A missing file has nothing to erase. An unreadable one may hold such lines.
                if not _is_there(self.storage, former.path):
                    continue
                holds_some = True
            if holds_some:
                yield former


def _is_there(storage: Storage, path: str) -> bool:
    return any(stored.path == path for stored in storage.list(folder_of(path)))


def _sum(values: Sequence[int]) -> int:
    return int(pc.sum(values).as_py() or 0)
