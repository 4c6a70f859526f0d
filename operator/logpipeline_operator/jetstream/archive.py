"""How far the table of a pipeline is behind its streams, as its progress in the bucket tells: the
job itself may be gone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from logpipeline.archiving import (
    ArchiveState,
    StreamLag,
    archive_key,
    done_of,
    is_overtaken_soon,
    lag_of,
)
from logpipeline.missed import missed_key_of
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.jetstream import MESSAGE_NOT_FOUND, ApiError, JetStream, time_ns_of
from logpipeline.plan.observe import REQUESTS_MAX, ask
from logpipeline.plan.readers import archive_progress, missed_by
from logpipeline.plan.trim import Levels
from logpipeline.records import StreamPosition
from logpipeline.spec import LogPipeline
from logpipeline.survey import PartitionState
from logpipeline.tables import TableStream, stream_of


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """One stream: what of it is behind the table, and whether that will be deleted soon."""

    lag: StreamLag
    is_overtaken_soon: bool
    table: TableStream


async def archive_state(
    js: JetStream, pipeline: LogPipeline, partitions: Sequence[PartitionState] = ()
) -> ArchiveState:
    """Return how the table of *pipeline* stands, whose *partitions* a survey found.

    Raises:
        NotSent, OutcomeUnknown, ApiError: the server could not be asked.
    """
    names = pipeline.names
    key, bucket = archive_key(pipeline.namespace, pipeline.name), Bucket(js, names.state_bucket)
    progress = await archive_progress(bucket, key)
    missed = await missed_by(bucket, missed_key_of(key))
    positions = progress.streams if progress is not None else {}
    committed = {each.stream: each.committed for each in partitions}
    gate = asyncio.Semaphore(REQUESTS_MAX)

    async def found(stream: str) -> _Found | None:
        async with gate:
            info = await js.stream_info(stream)
            if info is None:
                return None
            table = stream_of(
                info,
                positions.get(stream),
                missed,
                committed=committed.get(stream, 0),
                levels=Levels.of(pipeline.spec.stream),
            )
            lag, is_soon = await _behind(js, stream, info, positions.get(stream))
        return _Found(lag=lag, is_overtaken_soon=is_soon, table=table)

    streams = [names.stream(number) for number in range(max(pipeline.spec.partitions, 1))]
    there = [each for each in await asyncio.gather(*map(found, streams)) if each is not None]
    state = ArchiveState(
        progress=progress,
        held_back=tuple(each.table.stream for each in there if each.table.holds_back),
        misses=tuple(each.table.stream for each in there if not each.table.passed),
        missed_messages=missed.messages,
    )
    if progress is not None and progress.commit < 0:
        # It told why it could not begin, and nothing of the table.
        return state
    return replace(
        state,
        lags={each.table.stream: each.lag for each in there},
        overtaken_soon=tuple(each.table.stream for each in there if each.is_overtaken_soon),
    )


async def _behind(
    js: JetStream, stream: str, info: Mapping[str, Any], position: StreamPosition | None
) -> tuple[StreamLag, bool]:
    """Return what of *stream* is behind *position*, and whether it will be deleted soon."""
    state = info["state"]
    done = done_of(position, created=info["created"], last_sequence=int(state["last_seq"]))
    lag = lag_of(position if done else None, state, 0.0)
    if lag.messages:
        first = max(done + 1, int(state["first_seq"]))
        lag = lag_of(position if done else None, state, await _age_s(js, stream, first))
    return lag, is_overtaken_soon(lag, info["config"])


async def _age_s(js: JetStream, stream: str, sequence: int) -> float:
    """Return the age of the first message at or behind *sequence*: some in between may be gone."""
    try:
        answer = await ask(js, f"STREAM.MSG.GET.{stream}", {"seq": sequence, "next_by_subj": ">"})
    except ApiError as error:
        if error.err_code == MESSAGE_NOT_FOUND:
            return 0.0
        raise
    return max(0.0, (time.time_ns() - time_ns_of(answer["message"]["time"])) / 1e9)
