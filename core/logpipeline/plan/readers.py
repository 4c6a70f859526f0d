"""Who still needs what of the streams, as their bucket tells: groups of collectors, and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from logpipeline.nats.bucket import Bucket
from logpipeline.nats.jetstream import (
    MESSAGE_NOT_FOUND,
    STREAM_NOT_FOUND,
    ApiError,
    JetStream,
    time_ns_of,
)
from logpipeline.plan.floors import group_floor, groups_of
from logpipeline.plan.model import FoundStream
from logpipeline.plan.observe import ask
from logpipeline.records import BadRecord, EpochRecord, epoch_key
from logpipeline.spec import LogPipeline
from logpipeline.subjects import key_value_subject
from logpipeline.tables.missed import Missed
from logpipeline.tables.progress import (
    KEYS,
    TableProgress,
    done_of,
    table_floor,
    table_key,
)


@dataclass(frozen=True, slots=True)
class Table:
    """A table at *key*: *floor* is the last message of a stream that it needs no more, *done* the
    last that it has read, as far as that is known; at both 0 is none.
    """

    key: str
    floor: int
    done: int

    @property
    def reader(self) -> str:
        """Return what it is called among those who read the streams."""
        return f"table {self.key.removeprefix(KEYS)}"


@dataclass(frozen=True, slots=True)
class Readers:
    """The groups of collectors, and the tables by their keys; None where one has not begun."""

    bucket: Bucket
    groups: frozenset[str]
    told: Mapping[str, TableProgress | None]

    async def floors(self, js: JetStream, stream: FoundStream, partition: int) -> dict[str, int]:
        """Return the last message of *stream* that each group has done with."""
        return {
            f"group {group}": await _group_floor(js, self.bucket, group, partition, stream)
            for group in sorted(self.groups)
        }

    async def tables(self, js: JetStream, stream: FoundStream) -> list[Table]:
        """Return how far each table is in *stream*."""
        return [
            Table(
                key,
                await _table_floor(js, progress, stream),
                done_of(
                    progress.streams.get(stream.name) if progress is not None else None,
                    created=stream.created,
                    last_sequence=int(stream.state["last_seq"]),
                ),
            )
            for key, progress in sorted(self.told.items())
        ]


async def readers_of(js: JetStream, bucket: Bucket, pipeline: LogPipeline) -> Readers:
    """Return who reads the streams of *pipeline*.

    Raises:
        ApiError, NotSent, OutcomeUnknown: the bucket could not be read.
    """
    keys = await keys_of(js, bucket)
    return Readers(
        bucket,
        frozenset(groups_of(keys) | {pipeline.spec.collectors.group}),
        {key: await table_progress(bucket, key) for key in table_keys(keys, pipeline)},
    )


def table_keys(keys: Iterable[str], pipeline: LogPipeline) -> set[str]:
    """Return the keys of the tables that read the streams of *pipeline*, given those of its bucket:
    its own where it keeps one, begun or not, and those of other pipelines.
    """
    ours = table_key(pipeline.namespace, pipeline.name)
    tables = {key for key in keys if key.startswith(KEYS)} - {ours}
    return tables | {ours} if pipeline.spec.table.enabled else tables


async def table_progress(bucket: Bucket, key: str) -> TableProgress | None:
    """Return what a table says at *key*, or None where nothing is said that can be read."""
    entry = await bucket.get(key)
    try:
        return TableProgress.decode(entry.value) if entry is not None else None
    except BadRecord:
        return None


async def missed_by(bucket: Bucket, key: str) -> Missed:
    """Return what a table missed, as *key* tells; nothing where that cannot be read."""
    entry = await bucket.get(key)
    try:
        return Missed.decode(entry.value) if entry is not None else Missed()
    except BadRecord:
        return Missed()


async def keys_of(js: JetStream, bucket: Bucket) -> set[str]:
    """Return the keys that *bucket* has; none where it is not there."""
    prefix = key_value_subject(bucket.name, "")
    try:
        info = await ask(js, f"STREAM.INFO.{bucket.stream}", {"subjects_filter": f"{prefix}>"})
    except ApiError as error:
        if error.err_code == STREAM_NOT_FOUND:
            return set()
        raise
    return {subject.removeprefix(prefix) for subject in info["state"].get("subjects") or {}}


async def _table_floor(js: JetStream, progress: TableProgress | None, stream: FoundStream) -> int:
    position = progress.streams.get(stream.name) if progress is not None else None
    time_ns = await _time_of(js, stream.name, position.sequence) if position else None
    last = int(stream.state["last_seq"])
    return table_floor(position, created=stream.created, last_sequence=last, time_ns=time_ns)


async def _group_floor(
    js: JetStream, bucket: Bucket, group: str, partition: int, stream: FoundStream
) -> int:
    try:
        entry = await bucket.get(epoch_key(group, partition))
        record = EpochRecord.decode(entry.value) if entry is not None else None
    except BadRecord:
        return 0
    if record is None:
        return 0
    time_ns = await _time_of(js, stream.name, record.position.sequence)
    return group_floor(
        record, created=stream.created, last_sequence=stream.state["last_seq"], time_ns=time_ns
    )


async def _time_of(js: JetStream, stream: str, sequence: int) -> int | None:
    # Not by a direct get: that may be answered by a replica that lags behind.
    if sequence <= 0:
        return None
    try:
        answer = await ask(js, f"STREAM.MSG.GET.{stream}", {"seq": sequence})
    except ApiError as error:
        if error.err_code == MESSAGE_NOT_FOUND:
            return None
        raise
    return time_ns_of(answer["message"]["time"])
