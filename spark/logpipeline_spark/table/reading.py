"""Which files a reader of the table reads, and how rows come out of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import translate

import pyarrow as pa
import pyarrow.compute as pc

from logpipeline_spark.errors import Refused
from logpipeline_spark.formats.choosing import Logs
from logpipeline_spark.lines.schema import TIME
from logpipeline_spark.table.entry import FileEntry
from logpipeline_spark.table.names import LINES
from logpipeline_spark.table.parquet import checked_file
from logpipeline_spark.table.storage import Storage

ROWS_AT_ONCE = 64 * 1024
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)

# Columns that a line must have with just that value.
_EXACT = ("host", "namespace", "pod", "container")


def files(
    logs: Logs,
    since: datetime | None = None,
    until: datetime | None = None,
    *,
    area: str = LINES,
) -> list[FileEntry]:
    """Return the committed files that may hold rows from *since* to before *until*.

    Raises:
        Refused: the log cannot be read.
    """
    first_us = None if since is None else microseconds(since)
    end_us = None if until is None else microseconds(until)
    return [
        entry
        for entry in sorted(logs[area].files(), key=lambda entry: entry.path)
        if first_us is None or entry.last_us >= first_us
        if end_us is None or entry.first_us < end_us
    ]


def urls(storage: Storage, entries: Iterable[FileEntry]) -> list[str]:
    """Return how other readers find *entries*."""
    return [f"{storage.url}/{entry.path}" for entry in entries]


def tables(storage: Storage, entries: Iterable[FileEntry], schema: pa.Schema) -> Iterator[pa.Table]:
    """Give the rows of *entries*, a few at a time; columns that a file lacks are null."""
    for entry in entries:
        with checked_file(storage, entry.path) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=schema.names):
                yield fitted(pa.Table.from_batches([batch]), schema)


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return *table* with the columns of *schema*: those that were added later are null."""
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.schema.names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def microseconds(time: datetime) -> int:
    """Return *time* as files have it."""
    return (time - _BEGIN) // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Names of lines, and from when to before when the server stored them; None means any. A
    *source* is a whole name, or a glob whose `*` stands for `/` as well.

    Raises:
        Refused: it names nothing, an empty name, or a time that has no end.
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
            raise Refused(f"--{empty[0]} is empty: give a name, or leave it out.")
        if not names:
            # A time alone would take the lines of all: that is what retention is for.
            raise Refused(
                "Nothing says whose lines are meant: give --host, --namespace, --pod, --container "
                "or --source. Whole hours of all lines go by spec.table.retention."
            )
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise Refused("--since is not before --until: nothing lies between them.")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decide whether a line is meant."""
        has_times = self.since is not None or self.until is not None
        return (*self._names(), *(("ts",) if has_times else ()))

    def data(self) -> dict[str, str]:
        """Return what is said, as JSON has it."""
        times = {"since": self.since, "until": self.until}
        return self._names() | {
            name: time.astimezone(UTC).isoformat() for name, time in times.items() if time
        }

    def may_be_in(self, entry: FileEntry) -> bool:
        """Return whether a file is of the time that is asked for."""
        return (self.since is None or entry.last_us >= microseconds(self.since)) and (
            self.until is None or entry.first_us < microseconds(self.until)
        )

    def matches(self, table: pa.Table) -> pa.ChunkedArray:
        """Return for each line of *table* whether it is meant: true or false, never null."""
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
        # A line without a namespace is in no namespace. As a null it would be neither erased nor
        # kept.
        return pc.fill_null(whole, False)

    def _names(self) -> dict[str, str]:
        said = {name: getattr(self, name) for name in (*_EXACT, "source")}
        return {name: value for name, value in said.items() if value is not None}


def _fitting(table: pa.Table, source: str) -> pa.Array:
    """Return the sources in *table* that *source* means. They are few: each is compared once."""
    glob = re.compile(translate(source))
    names = pc.unique(table["source"]).to_pylist()
    # A path may hold a bracket, and then is no glob.
    fitting = [name for name in names if name == source or (name and glob.match(name))]
    return pa.array(fitting, pa.string())
