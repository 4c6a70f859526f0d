"""How the tables stand that read a pipeline's streams: how far they are, whether trimming waits for
them, and what they missed. From streams and bucket alone: the jobs may be gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from logpipeline.archiving import KEYS, StreamLag, done_of, lag_of
from logpipeline.missed import Missed, MissedRange, missed_key_of
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.jetstream import JetStream
from logpipeline.plan.readers import archive_progress, keys_of, missed_by, table_keys
from logpipeline.plan.trim import Levels, decide, fill_of
from logpipeline.records import StreamPosition
from logpipeline.spec import LogPipeline
from logpipeline.survey import PartitionState

_TABLE, _GROUP = "table", "group"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStream:
    """A stream as one table stands in it: *lag* is what is not in the table, without its age;
    *fill* is how full the stream is, 1.0 being full; it *holds back* where trimming waits for the
    table alone. Of what it *missed* it has not *passed* all while it did not go on behind that.
    """

    stream: str
    lag: StreamLag
    fill: float
    holds_back: bool
    missed: tuple[MissedRange, ...]
    passed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """One table, by the *name* of its pipeline, with its namespace; before it told anything it has
    no *path*, and its *commit* is -1.
    """

    name: str
    path: str = ""
    commit: int = -1
    rows: int = 0
    problem: str = ""
    missed_messages: int = 0
    streams: tuple[TableStream, ...] = ()


async def tables_of(
    js: JetStream, pipeline: LogPipeline, partitions: Sequence[PartitionState]
) -> list[TableState]:
    """Return the tables that read the streams of *pipeline*, whose *partitions* a survey found.

    Raises:
        NotSent, OutcomeUnknown, ApiError: the server could not be asked.
    """
    bucket = Bucket(js, pipeline.names.state_bucket)
    keys = sorted(table_keys(await keys_of(js, bucket), pipeline))
    there = [each for each in partitions if each.is_there] if keys else []
    infos = await asyncio.gather(*(js.stream_info(each.stream) for each in there))
    seen = [(each, info) for each, info in zip(there, infos, strict=True) if info is not None]
    return [await _table(bucket, key, pipeline, seen) for key in keys]


def stream_of(
    info: Mapping[str, Any],
    position: StreamPosition | None,
    missed: Missed,
    *,
    committed: int,
    levels: Levels,
) -> TableStream:
    """Return how a table at *position* stands in the stream of which the server tells *info*, and
    of which everything up to *committed* is in files.
    """
    state, created = info["state"], str(info["created"])
    name, last = str(info["config"]["name"]), int(state["last_seq"])
    done = done_of(position, created=created, last_sequence=last)
    fill = fill_of(info["config"], state)
    decision = decide(
        fill=fill,
        levels=levels,
        first_sequence=int(state["first_seq"]),
        last_sequence=last,
        floors={_GROUP: committed},
        tables={_TABLE: done},
    )
    return TableStream(
        stream=name,
        lag=lag_of(position if done else None, state, 0.0),
        fill=fill,
        holds_back=decision.held_by == _TABLE,
        missed=missed.streams.get(name, ()),
        passed=missed.is_passed(name, created=created, done=done),
    )


async def _table(
    bucket: Bucket,
    key: str,
    pipeline: LogPipeline,
    seen: Sequence[tuple[PartitionState, Mapping[str, Any]]],
) -> TableState:
    progress = await archive_progress(bucket, key)
    missed = await missed_by(bucket, missed_key_of(key))
    levels = Levels.of(pipeline.spec.stream)
    streams = tuple(
        stream_of(
            info,
            progress.streams.get(partition.stream) if progress is not None else None,
            missed,
            committed=partition.committed,
            levels=levels,
        )
        for partition, info in seen
    )
    name = key.removeprefix(KEYS)
    if progress is None:
        return TableState(name=name, missed_messages=missed.messages, streams=streams)
    return TableState(
        name=name,
        path=progress.path,
        commit=progress.commit,
        rows=progress.rows,
        problem=progress.problem,
        missed_messages=missed.messages,
        streams=streams,
    )
