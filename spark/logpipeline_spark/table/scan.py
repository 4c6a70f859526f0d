"""Scans of a table: which files a reader reads, and its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from logpipeline_spark.formats.log import Logs
from logpipeline_spark.table.files import LINES, FileEntry
from logpipeline_spark.table.parquet import checked_file
from logpipeline_spark.table.storage import Storage

ROWS_AT_ONCE = 64 * 1024
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


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
    """Return the addresses of *entries* for other readers."""
    return [f"{storage.url}/{entry.path}" for entry in entries]


def tables(storage: Storage, entries: Iterable[FileEntry], schema: pa.Schema) -> Iterator[pa.Table]:
    """Give the rows of *entries*, a few at a time; columns that a file lacks are null."""
    for entry in entries:
        with checked_file(storage, entry.path) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=schema.names):
                yield fitted(pa.Table.from_batches([batch]), schema)


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return *table* with the columns of *schema*; columns that were added later are null."""
    if table.schema.equals(schema):
        return table
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.schema.names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def microseconds(time: datetime) -> int:
    """Return *time* in the form of files."""
    return (time - _BEGIN) // timedelta(microseconds=1)
