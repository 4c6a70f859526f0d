"""Make room in full streams: remove what all readers have finished with.

Streams refuse new messages when they are full, so that nothing is lost; one full of collected data
would refuse them until it expires. Collectors know these purges from a loss by one rule: whatever
is at or below the committed position of every group is not lost.

The files are what a pipeline is for, and a table stands beside them: up to a named level trimming
waits for tables, and beyond it for groups and consumers alone. What a table misses is written down
before it is purged.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import (
    MESSAGE_NOT_FOUND,
    STREAM_NOT_FOUND,
    ApiError,
    JetStream,
    time_ns_of,
)
from logpipeline.plan.model import FoundStream, owner_of
from logpipeline.plan.observe import ask, consumers_of, stored_subjects, streams_below
from logpipeline.records import BadRecord, EpochRecord, assignment_key, epoch_key
from logpipeline.spec import LogPipeline
from logpipeline.spec.streams import Stream
from logpipeline.subjects import key_value_subject
from logpipeline.tables.progress import (
    KEYS,
    Missed,
    MissedRange,
    TableProgress,
    done_of,
    missed_key_of,
    table_floor,
    table_key,
)

# Below these stand the keys that name a group.
_EPOCHS = epoch_key("", 0).split(".")[0] + "."
_ASSIGNMENTS = assignment_key("")

log = logging.getLogger(__name__)

# At the highest rate measured, a stream of the default size takes several times this to fill.
INTERVAL_S = 2.0
# Down to this share of the level at which trimming begins, so that it does not begin at once again.
DOWN_TO = 0.8
# From this fill on, a stream that nothing may be purged from is worth a warning.
WARN_FILL = 0.9


# A floor is a promise that no reader will ask for a message again, so whatever is in doubt is 0: a
# position of another incarnation of the stream, one that the server has rolled back, no snapshot.
def groups_of(keys: Iterable[str]) -> set[str]:
    """Return the groups of collectors that the state bucket's *keys* name."""
    groups = set()
    for key in keys:
        if key.startswith(_EPOCHS):
            groups.add(key.removeprefix(_EPOCHS).rpartition(".")[0])
        elif key.startswith(_ASSIGNMENTS):
            groups.add(key.removeprefix(_ASSIGNMENTS))
    return groups - {""}


def group_floor(
    record: EpochRecord | None,
    *,
    created: str,
    last_sequence: int,
    time_ns: int | None,
    passed_time_ns: int | None = None,
) -> int:
    """Return the floor of a group of collectors, whose *record* it is.

    *created* and *last_sequence* are the stream's; *time_ns* is the server's time of the message
    at the record's position, None where it has no such message, *passed_time_ns* that of the
    message at what the group passed.
    """
    if record is None:
        return 0
    position, passed = record.position, record.passed
    # A successor learns nothing from what stands behind the position: it is others'.
    known = max(record.snapshot_at if record.snapshot else 0, record.begun)
    is_all_known = position.sequence <= known
    if (
        passed is not None
        and is_all_known
        and (passed.created, passed.time_ns) == (created, passed_time_ns)
        and passed.sequence <= last_sequence
    ):
        return passed.sequence - 1
    if position.created != created:
        return 0
    if position.sequence > last_sequence or position.time_ns != time_ns:
        return 0
    # The message at the position stays: by its time the position is verified. What comes after
    # the snapshot stays: a successor with another folder reads its headers, from where the group
    # began if there is no snapshot yet.
    return max(0, min(position.sequence - 1, known))


def durable_floors(consumers: Iterable[Mapping[str, Any]], *, last_sequence: int) -> dict[str, int]:
    """Return the floors of the durables among *consumers*, as the server lists them.

    *last_sequence* is the stream's from before the listing: for a consumer that waits
    for nothing, everything up to there is done.
    """
    return {
        f"consumer {consumer['name']}": _durable_floor(consumer, last_sequence)
        for consumer in consumers
        if consumer["config"].get("durable_name")
    }


def _durable_floor(consumer: Mapping[str, Any], last_sequence: int) -> int:
    is_acked = consumer["config"].get("ack_policy", "none") != "none"
    waiting = consumer.get("num_pending", 0) + (
        consumer.get("num_ack_pending", 0) if is_acked else 0
    )
    if not waiting:
        # With a filter, its own figures may be far behind.
        return last_sequence
    return int(consumer["ack_floor" if is_acked else "delivered"].get("stream_seq", 0))


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
        """Its name in the list of readers."""
        return f"table {self.key.removeprefix(KEYS)}"

    def unread(self, sequences: range) -> range:
        """Return the part of *sequences*, a range of its stream, that it has not read."""
        return range(max(self.done + 1, sequences.start), sequences.stop)


@dataclass(frozen=True, slots=True)
class Readers:
    """The groups of collectors, and the tables by their keys; None where one has not begun."""

    bucket: Bucket
    groups: frozenset[str]
    progress: Mapping[str, TableProgress | None]

    async def floors(
        self, js: JetStream, stream: FoundStream, partitions: Sequence[int]
    ) -> dict[str, int]:
        """Return the last message of *stream*, which holds *partitions*, that each group has done
        with.
        """
        return {
            f"group {group}": min(
                [
                    await _group_floor(js, self.bucket, group, partition, stream)
                    for partition in partitions
                ]
            )
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
            for key, progress in sorted(self.progress.items())
        ]


async def readers_of(js: JetStream, bucket: Bucket, pipeline: LogPipeline) -> Readers:
    """Return the readers of the streams of *pipeline*.

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
    """Return the progress of a table at *key*, or None where there is none that can be read."""
    entry = await bucket.get(key)
    try:
        return TableProgress.decode(entry.value) if entry is not None else None
    except BadRecord:
        return None


async def missed_by(bucket: Bucket, key: str) -> Missed:
    """Return the messages that a table missed; none where the record at *key* cannot be read."""
    entry = await bucket.get(key)
    try:
        return Missed.decode(entry.value) if entry is not None else Missed()
    except BadRecord:
        return Missed()


async def keys_of(js: JetStream, bucket: Bucket) -> set[str]:
    """Return the keys that *bucket* has; none where it is not there."""
    prefix = key_value_subject(bucket.name, "")
    subjects = stored_subjects(js, bucket.stream, f"{prefix}>")
    try:
        return {subject.removeprefix(prefix) async for subject, _ in subjects}
    except ApiError as error:
        if error.err_code == STREAM_NOT_FOUND:
            return set()
        raise


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
    passed = record.passed
    return group_floor(
        record,
        created=stream.created,
        last_sequence=stream.state["last_seq"],
        time_ns=await _time_of(js, stream.name, record.position.sequence),
        passed_time_ns=await _time_of(js, stream.name, passed.sequence) if passed else None,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """Shares of a stream's limit: it is trimmed *above* the one, and above *skip_tables* without
    waiting for tables; from 1.0 on they are always waited for.
    """

    above: float
    skip_tables: float = 1.0

    @staticmethod
    def of(stream: Stream) -> Levels:
        """Return the levels of the resource."""
        above = stream.trim_above / 100
        return Levels(above=above, skip_tables=max(above, stream.skip_tables_above / 100))


@dataclass(frozen=True, slots=True)
class Decision:
    """Purge what is before sequence *below* (0: nothing); *held_by* names the reader that does not
    permit more, where more was wanted.
    """

    below: int = 0
    held_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """A stream that was above its level: so many *messages* before *below* were purged, and each
    of *missed_by* had not read some of them.
    """

    stream: str
    fill: float
    below: int
    messages: int
    held_by: str
    missed_by: tuple[str, ...] = ()

    @property
    def is_stuck(self) -> bool:
        """Whether it is almost full, and nothing of it may be purged."""
        return not self.below and self.fill >= WARN_FILL


def fill_of(config: Mapping[str, Any], state: Mapping[str, Any]) -> float:
    """Return how full a stream is, 1.0 being full; 0.0 where it has no limits."""
    levels = [
        state.get(used, 0) / config[limit]
        for limit, used in (("max_bytes", "bytes"), ("max_msgs", "messages"))
        if config.get(limit, -1) > 0
    ]
    return max(levels, default=0.0)


def decide(
    *,
    fill: float,
    levels: Levels,
    first_sequence: int,
    last_sequence: int,
    floors: Mapping[str, int],
    tables: Mapping[str, int] | None = None,
) -> Decision:
    """Return what to purge of a stream that is *fill* full, a share of its limit, given what each
    reader has done with: *floors* are those of readers that are always waited for.
    """
    if fill <= levels.above or last_sequence < first_sequence:
        return Decision()
    if not floors:
        return Decision(held_by="no group of collectors has begun")
    count = last_sequence - first_sequence + 1

    def down_to(level: float) -> int:
        # Messages are taken as equally large; where they are not, the next round takes the rest.
        return first_sequence + math.ceil(count * (1 - level / fill))

    wanted = down_to(levels.above * DOWN_TO)
    holder, floor = min({**floors, **(tables or {})}.items(), key=lambda item: item[1])
    below = min(wanted, floor + 1)
    if levels.skip_tables < 1 and fill > levels.skip_tables:
        # No more than that: what a table has not read stays for it as long as there is room.
        needed = down_to(levels.skip_tables)
        first_holder, first_floor = min(floors.items(), key=lambda item: item[1])
        below = max(below, min(needed, first_floor + 1))
        if below < needed:
            holder = first_holder
    return Decision(
        below=below if below > first_sequence else 0, held_by=holder if below < wanted else ""
    )


async def trim_forever(
    js: JetStream, pipeline: Callable[[], LogPipeline], *, interval_s: float = INTERVAL_S
) -> None:
    """Trim the streams of what *pipeline* returns each time, until cancelled."""
    warnings, problem = _Warnings(), ""
    while True:
        try:
            warnings.log(await trim_once(js, pipeline()))
            problem = ""
        except (ApiError, NotSent, OutcomeUnknown) as error:
            if str(error) != problem:
                log.warning("streams could not be trimmed", extra={"reason": str(error)})
            problem = str(error)
        await asyncio.sleep(interval_s)


async def trim_once(
    js: JetStream, pipeline: LogPipeline, *, floors: Mapping[str, Mapping[str, int]] | None = None
) -> list[Trimmed]:
    """Purge what everybody has done with from each stream of *pipeline* that is fuller than it
    should be, and return those streams.

    *floors* has, per stream, those of readers that stand in no bucket, by their names.

    Raises:
        ApiError, NotSent, OutcomeUnknown: not all was done; the next call goes on.
    """
    settings = pipeline.spec.stream
    if settings.external or settings.trim != "collected" or settings.deny_purge:
        return []
    levels = Levels.of(settings)
    partitions: dict[str, list[int]] = {}
    for number in range(max(pipeline.spec.partitions, 1)):
        partitions.setdefault(pipeline.names.stream(number), []).append(number)
    # What is not ours is never touched, whatever it is called.
    due = [
        stream
        for stream in await streams_below(js, f"{pipeline.names.subject}.>")
        if stream.name in partitions
        and owner_of(stream.config) == f"{pipeline.namespace}/{pipeline.name}"
        and fill_of(stream.config, stream.state) > levels.above
    ]
    if not due:
        return []
    bucket = Bucket(js, pipeline.names.state_bucket)
    readers = await readers_of(js, bucket, pipeline)
    trimmed = []
    for stream in due:
        all_floors = dict((floors or {}).get(stream.name, {}))
        all_floors |= await readers.floors(js, stream, partitions[stream.name])
        durables = await consumers_of(js, stream.name)
        all_floors |= durable_floors(durables, last_sequence=stream.state["last_seq"])
        tables = await readers.tables(js, stream)
        trimmed.append(await _trim(js, bucket, stream, levels, all_floors, tables))
    return trimmed


async def _trim(
    js: JetStream,
    bucket: Bucket,
    stream: FoundStream,
    levels: Levels,
    floors: Mapping[str, int],
    tables: Sequence[Table],
) -> Trimmed:
    fill, first = fill_of(stream.config, stream.state), int(stream.state["first_seq"])
    decision = decide(
        fill=fill,
        levels=levels,
        first_sequence=first,
        last_sequence=stream.state["last_seq"],
        floors=floors,
        tables={table.reader: table.floor for table in tables},
    )
    going, purged = range(first, decision.below), 0
    missed = {table: unread for table in tables if (unread := table.unread(going))}
    if decision.below:
        for table, unread in missed.items():
            await _note_missed(bucket, stream, table, unread)
        # Repeated, it finds nothing left to do: an unknown outcome needs no care.
        answer = await js.call(f"STREAM.PURGE.{stream.name}", {"seq": decision.below})
        purged = int(answer["purged"])
    return Trimmed(
        stream=stream.name,
        fill=fill,
        below=decision.below,
        messages=purged,
        held_by=decision.held_by,
        missed_by=tuple(table.reader for table in missed),
    )


async def _note_missed(bucket: Bucket, stream: FoundStream, table: Table, sequences: range) -> None:
    """Write down that *table* misses the messages with these *sequences*.

    Before the purge: after a crash between the two the record names too much, until the next round
    purges it; in the other order it would name nothing.
    """
    key = missed_key_of(table.key)
    gone = MissedRange(
        created=stream.created, first=sequences[0], last=sequences[-1], at_ns=time.time_ns()
    )
    known = await missed_by(bucket, key)
    await bucket.put(key, known.with_range(stream.name, gone).encode())


@dataclass(slots=True)
class _Warnings:
    """Logs each warning about a stream that is too full once."""

    stuck: set[str] = field(default_factory=set)
    skipped: set[tuple[str, str]] = field(default_factory=set)

    def log(self, trimmed: Sequence[Trimmed]) -> None:
        stuck = {each.stream: each for each in trimmed if each.is_stuck}
        for name in stuck.keys() - self.stuck:
            log.warning(
                "a full stream cannot be trimmed",
                extra={"stream": name, "held_by": stuck[name].held_by},
            )
        skipped = {(each.stream, table) for each in trimmed for table in each.missed_by}
        for name, table in sorted(skipped - self.skipped):
            log.warning(
                "a stream was filling up with what only a table had not read: it was deleted",
                extra={"stream": name, "table": table},
            )
        # A stream that is at its level has rounds without a purge in between.
        full = {each.stream for each in trimmed}
        self.stuck = set(stuck)
        self.skipped = {each for each in self.skipped if each[0] in full} | skipped
