"""The data source as Spark knows it: which methods it calls in the driver, and which in tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from logpipeline_spark.errors import Refused
from logpipeline_spark.source import planning, positions, rows
from logpipeline_spark.source.client import Client
from logpipeline_spark.source.options import SourceOptions, parse, starting_of
from logpipeline_spark.source.positions import Position
from logpipeline_spark.source.tasks import RangeTask, read_task

Offset = dict[str, Any]


class JetStreamDataSource(DataSource):
    """``spark.read.format("jetstream")`` and ``spark.readStream.format("jetstream")``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "jetstream"

    def schema(self) -> StructType:
        """Return the columns that the options ask for."""
        return rows.schema_of(parse(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a table."""
        return JetStreamReader(parse(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's
        """Return what reads batch after batch."""
        return JetStreamStreamReader(parse(self.options))


class JetStreamReader(DataSourceReader):
    """Reads what is there once."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> list[RangeTask]:
        """Return what each task reads."""
        options = self.options
        with Client(options) as client:
            seen = planning.states(client, options)
            begin = planning.start(client, options, starting_of(options, is_stream=False), seen)
            lasts = planning.lasts(client, options, seen)
            end = planning.ends(client, begin, seen, lasts, None)
        return planning.tasks(options, end, options.min_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        return _read(self.options, partition)


class JetStreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads batch after batch; its offsets are positions, and a batch is known by its end."""

    def __init__(self, options: SourceOptions) -> None:
        if options.ending is not None:
            raise Refused(
                "jetstream: a stream has no end; leave endingOffsets and endingTimestamp out, or "
                "use spark.read"
            )
        self.options = options
        self._client: Client | None = None
        self._start: Offset | None = None
        self._targets: dict[str, tuple[str, int]] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802  # Spark's name
        """Return where a new query begins. Spark asks twice; the answer stays the same."""
        if self._start is None:
            client, options = self._connected(), self.options
            place = starting_of(options, is_stream=True)
            seen = planning.states(client, options)
            begin = planning.start(client, options, place, seen)
            self._start = positions.encode(begin, is_start=True)
        return self._start

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802  # Spark's name
        """Return where the batch that begins at *start* ends."""
        client, options = self._connected(), self.options
        known = self._known(start)
        seen = planning.states(client, options)
        begin = planning.begins(client, options, known, seen)
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        lasts = {stream: self._last(stream, begin[stream], seen[stream].last) for stream in seen}
        end = planning.ends(client, begin, seen, lasts, bytes_max, known=known)
        return positions.encode(end)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Return the limit of the options."""
        most = self.options.max_bytes_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxBytes(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Remember what is there now: nothing behind it is read."""
        seen = planning.states(self._connected(), self.options)
        self._targets = {stream: (state.created, state.last) for stream, state in seen.items()}

    def reportLatestOffset(self) -> Offset:  # noqa: N802  # Spark's name
        """Return the ends of the streams, for the query's progress."""
        seen = planning.states(self._connected(), self.options)
        return {"streams": {stream: {"sequence": state.last} for stream, state in seen.items()}}

    def partitions(self, start: Offset, end: Offset) -> list[RangeTask]:
        """Return what each task of a batch reads."""
        known, until = self._known(start), self._known(end)
        is_first = "start" in start
        batch = {
            stream: position
            for stream, position in until.items()
            if is_first or position != known[stream]
        }
        return planning.tasks(self.options, batch, self.options.min_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        return _read(self.options, partition)

    def stop(self) -> None:
        """End the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connected(self) -> Client:
        if self._client is None:
            self._client = Client(self.options).open()
        return self._client

    def _known(self, offset: Offset) -> dict[str, Position]:
        known = positions.decode(offset)
        positions.check_streams(known, self.options.streams)
        return known

    def _last(self, stream: str, begin: Position, last: int) -> int:
        if self._targets is None:
            return last
        created, target = self._targets[stream]
        return min(last, target) if created == begin.created else begin.sequence

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy: a connection is not for them.
        return self.__dict__ | {"_client": None}


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    # Spark makes a task of nothing where there is nothing to read.
    if isinstance(partition, RangeTask):
        for messages in read_task(options, partition):
            yield from rows.batches(messages, partition.origin(options), options)
