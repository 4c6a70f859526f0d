"""The data source `jetstream`: the methods that Spark calls in the driver and in tasks, and its
rows: lines, or whole messages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from logpipeline.wire import BadMessage, parse_headers
from logpipeline_spark.errors import Refused
from logpipeline_spark.lines.arrow import tables_of
from logpipeline_spark.lines.messages import Message, groups
from logpipeline_spark.lines.schema import LINES, TIME, Origin
from logpipeline_spark.source import offsets, planning
from logpipeline_spark.source.client import Client
from logpipeline_spark.source.offsets import Position
from logpipeline_spark.source.options import SourceOptions, parse, starting_of
from logpipeline_spark.source.planning import Positions, States
from logpipeline_spark.source.ranges import RangeTask, read_task

Offset = dict[str, Any]


class JetStreamDataSource(DataSource):
    """``spark.read.format("jetstream")`` and ``spark.readStream.format("jetstream")``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "jetstream"

    def schema(self) -> StructType:
        """Return the columns for the options."""
        return schema_of(parse(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        return JetStreamReader(parse(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's
        """Return the reader of a streaming query."""
        return JetStreamStreamReader(parse(self.options))


class JetStreamReader(DataSourceReader):
    """Reads the present messages once."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> list[RangeTask]:
        """Return the range of each task."""
        options = self.options
        with Client(options) as client:
            seen = planning.look(client, options)
            begin = planning.start(client, options, starting_of(options, is_stream=False), seen)
            lasts = planning.lasts(client, options, seen)
            end = planning.ends(client, begin, seen, lasts, None)
            planning.check_whole(begin, end, lasts)
        roots = planning.roots(options, seen)
        return planning.tasks(options, end, options.min_partitions, roots)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        return _read(self.options, partition)


class JetStreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads batch after batch. Its offsets are positions, and a batch is known by its end."""

    def __init__(
        self, options: SourceOptions, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if options.ending is not None:
            raise Refused(
                "jetstream: a streaming query has no end; leave out endingOffsets, "
                "endingOffsetsByTimestamp and endingTimestamp, or use spark.read"
            )
        self.options = options
        self._clock = clock
        self._client: Client | None = None
        self._start: Offset | None = None
        self._targets: dict[str, tuple[str, int]] | None = None
        self._batch_at_s: float | None = None
        self._seen: States = {}
        self._end: Positions = {}
        self._roots: dict[str, str] = {}

    def initialOffset(self) -> Offset:  # noqa: N802  # Spark's name
        """Return where a new query begins. Spark asks twice; the answer stays the same."""
        if self._start is None:
            place = starting_of(self.options, is_stream=True)
            begin = planning.start(self._connected(), self.options, place, self._look())
            self._start = offsets.encode(begin, is_start=True)
        return self._start

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802  # Spark's name
        """Return the end of the batch that begins at *start*: *start* itself, if the batch should
        wait.
        """
        client, options = self._connected(), self.options
        seen = self._seen = self._look()
        known = planning.known(client, options, offsets.decode(start), seen)
        begin = planning.begins(client, options, known, seen)
        lasts = {stream: self._last(stream, begin[stream], seen[stream].last) for stream in seen}
        is_limited = not isinstance(limit, ReadAllAvailable)
        self._end = begin
        if is_limited and self._is_early(begin, seen, lasts):
            return start
        self._end = planning.ends(
            client,
            begin,
            seen,
            lasts,
            options.max_bytes_per_trigger if is_limited else None,
            known=known,
            count_max=options.max_offsets_per_trigger if is_limited else None,
        )
        return offsets.encode(self._end)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Return one limit of the options. Spark handles one at a time, and passes it back: any of
        them means that all apply.
        """
        options = self.options
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Remember the present ends of the streams: later messages are not read."""
        self._targets = {
            stream: (state.created, state.last) for stream, state in self._look().items()
        }

    def reportLatestOffset(self) -> Offset:  # noqa: N802  # Spark's name
        """Return the ends of the streams, and the number of messages after the planned batch, for
        the query's progress.
        """
        return planning.report(self._seen or self._look(), self._end)

    def partitions(self, start: Offset, end: Offset) -> list[RangeTask]:
        """Return the range of each task of a batch."""
        known, until = offsets.decode(start), offsets.decode(end)
        is_first = "start" in start
        batch = {
            stream: position
            for stream, position in until.items()
            if is_first or position != known.get(stream)
        }
        # The streams of a batch from before this query started are not known yet.
        if not batch.keys() <= self._roots.keys():
            self._look()
        return planning.tasks(self.options, batch, self.options.min_partitions, self._roots)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        return _read(self.options, partition)

    def stop(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connected(self) -> Client:
        if self._client is None:
            self._client = Client(self.options).open()
        return self._client

    def _look(self) -> States:
        seen = planning.look(self._connected(), self.options)
        self._roots |= planning.roots(self.options, seen)
        return seen

    def _is_early(self, begin: Positions, seen: States, lasts: dict[str, int]) -> bool:
        options, now_s = self.options, self._clock()
        # With availableNow, everything is read, however little it is.
        if options.min_offsets_per_trigger is None or self._targets is not None:
            return False
        waiting = planning.backlogs(begin, seen, lasts)
        last_s = self._batch_at_s
        # As with Kafka, the first batch does not wait: it keeps the start in the checkpoint.
        is_overdue = last_s is None or now_s - last_s >= options.max_trigger_delay_s
        least = options.min_offsets_per_trigger
        if planning.is_early(waiting, count_min=least, is_overdue=is_overdue):
            return True
        self._batch_at_s = now_s
        return False

    def _last(self, stream: str, begin: Position, last: int) -> int:
        if self._targets is None:
            return last
        created, target = self._targets.get(stream, ("", 0))
        return min(last, target) if created == begin.created else begin.sequence

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy, without the connection.
        return self.__dict__ | {"_client": None}


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    # If there is nothing to read, Spark makes a task without a partition.
    if isinstance(partition, RangeTask):
        for messages in read_task(options, partition):
            yield from batches(messages, partition.origin(options), options)


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
# The JVM receives so many rows at once.
BATCH_ROWS_MAX = 65_536


def schema_of(options: SourceOptions) -> StructType:
    """Return the columns for *options*."""
    return from_arrow_schema(_arrow(options))


def batches(
    messages: Sequence[Message], origin: Origin, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of *messages*."""
    # Spark compares types in all details, such as the names of a map's fields.
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
        # Headers that cannot be parsed are shown as they are.
        return [("", headers.decode("utf-8", "replace"))]
    return [(_text(name), _text(value)) for name, value in fields.items()]


def _text(value: str) -> str:
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
