"""Rows as Spark takes them: lines, or messages as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from logpipeline.wire import BadMessage, parse_headers
from logpipeline_spark.lines.opening import Message, groups
from logpipeline_spark.lines.schema import LINES, TIME, Origin
from logpipeline_spark.lines.table import tables_of
from logpipeline_spark.source.options import SourceOptions

MESSAGES = pa.schema(
    [
        ("stream", pa.string()),
        ("incarnation", pa.string()),
        ("seq", pa.int64()),
        ("ts", TIME),
        ("subject", pa.string()),
        ("value", pa.binary()),
    ]
)
HEADERS = pa.map_(pa.string(), pa.string())
# What the JVM is handed at once.
BATCH_ROWS_MAX = 65_536


def schema_of(options: SourceOptions) -> StructType:
    """Return the columns that *options* ask for."""
    return from_arrow_schema(_arrow(options))


def batches(
    messages: Sequence[Message], origin: Origin, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of *messages*."""
    # Spark compares types to the last detail, such as the names of a map's fields.
    schema = to_arrow_schema(schema_of(options), timezone="UTC")
    tables = _messages(messages, origin, options)
    if options.format == "lines":
        tables = _lines(messages, origin, options)
    for table in tables:
        yield from table.cast(schema).to_batches(max_chunksize=BATCH_ROWS_MAX)


def _arrow(options: SourceOptions) -> pa.Schema:
    base = LINES if options.format == "lines" else MESSAGES
    return base.append(pa.field("headers", HEADERS)) if options.include_headers else base


def _lines(
    messages: Sequence[Message], origin: Origin, options: SourceOptions
) -> Iterator[pa.Table]:
    for group in groups(messages, origin):
        inside = [opened.message for opened in group]
        for table in tables_of(group, origin):
            lines = table.cast(LINES)
            if options.include_headers:
                sequences = np.array([message.sequence for message in inside])
                owners = np.searchsorted(sequences, lines["seq"].to_numpy())
                lines = lines.append_column("headers", _headers(inside).take(pa.array(owners)))
            yield lines


def _messages(
    messages: Sequence[Message], origin: Origin, options: SourceOptions
) -> Iterator[pa.Table]:
    count = len(messages)
    columns = [
        pa.repeat(origin.stream, count),
        pa.repeat(origin.incarnation, count),
        pa.array([message.sequence for message in messages], pa.int64()),
        pa.array([message.time_ns // 1000 for message in messages], pa.int64()).view(TIME),
        pa.array([_text(message.subject) for message in messages], pa.string()),
        pa.array([message.data for message in messages], pa.binary()),
    ]
    table = pa.table(columns, schema=MESSAGES)
    yield table.append_column("headers", _headers(messages)) if options.include_headers else table


def _headers(messages: Sequence[Message]) -> pa.MapArray:
    return pa.array([_fields(message.headers) for message in messages], HEADERS)


def _fields(headers: bytes) -> list[tuple[str, str]]:
    if not headers:
        return []
    try:
        fields = parse_headers(headers)
    except BadMessage:
        # Headers that cannot be taken apart are shown as they are.
        return [("", headers.decode("utf-8", "replace"))]
    return [(_text(name), _text(value)) for name, value in fields.items()]


def _text(value: str) -> str:
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
