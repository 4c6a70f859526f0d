"""How far the table of a pipeline is behind its streams, as its progress in the bucket tells: the
job itself may be gone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from logpipeline.archiving import (
    ArchiveState,
    StreamLag,
    archive_key,
    is_overtaken_soon,
    lag_of,
)
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.jetstream import MESSAGE_NOT_FOUND, ApiError, JetStream, time_ns_of
from logpipeline.plan.observe import REQUESTS_MAX, ask
from logpipeline.plan.readers import archive_progress
from logpipeline.records import StreamPosition
from logpipeline.spec import LogPipeline


async def archive_state(js: JetStream, pipeline: LogPipeline) -> ArchiveState:
    """Return how the table of *pipeline* stands.

    Raises:
        NotSent, OutcomeUnknown, ApiError: the server could not be asked.
    """
    names = pipeline.names
    key = archive_key(pipeline.namespace, pipeline.name)
    progress = await archive_progress(Bucket(js, names.state_bucket), key)
    if progress is not None and progress.commit < 0:
        # It told why it could not begin, and nothing of the table.
        return ArchiveState(progress=progress)
    positions = progress.streams if progress is not None else {}
    gate = asyncio.Semaphore(REQUESTS_MAX)
    streams = [names.stream(number) for number in range(max(pipeline.spec.partitions, 1))]
    found = await asyncio.gather(
        *(_behind(js, gate, stream, positions.get(stream)) for stream in streams)
    )
    there = {stream: each for stream, each in zip(streams, found, strict=True) if each is not None}
    return ArchiveState(
        progress=progress,
        lags={stream: lag for stream, (lag, _) in there.items()},
        overtaken_soon=tuple(stream for stream, (_, is_soon) in there.items() if is_soon),
    )


async def _behind(
    js: JetStream, gate: asyncio.Semaphore, stream: str, position: StreamPosition | None
) -> tuple[StreamLag, bool] | None:
    """Return what of *stream* is behind *position*, and whether it will be deleted soon; None where
    there is no stream.
    """
    async with gate:
        info = await js.stream_info(stream)
        if info is None:
            return None
        state = info["state"]
        if position is not None and not _is_of(position, info):
            position = None
        lag = lag_of(position, state, 0.0)
        if lag.messages:
            done = position.sequence if position is not None else 0
            first = max(done + 1, int(state["first_seq"]))
            lag = lag_of(position, state, await _age_s(js, stream, first))
    return lag, is_overtaken_soon(lag, info["config"])


def _is_of(position: StreamPosition, info: Mapping[str, Any]) -> bool:
    """Return whether *position* is one in this very stream, and not in a former one."""
    return bool(
        position.created == info["created"] and position.sequence <= info["state"]["last_seq"]
    )


async def _age_s(js: JetStream, stream: str, sequence: int) -> float:
    """Return the age of the first message at or behind *sequence*: some in between may be gone."""
    try:
        answer = await ask(js, f"STREAM.MSG.GET.{stream}", {"seq": sequence, "next_by_subj": ">"})
    except ApiError as error:
        if error.err_code == MESSAGE_NOT_FOUND:
            return 0.0
        raise
    return max(0.0, (time.time_ns() - time_ns_of(answer["message"]["time"])) / 1e9)
