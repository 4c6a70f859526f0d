"""State of the tables that read a pipeline's streams: their progress, whether trimming waits for
them, and what they missed. From streams and bucket alone: the jobs may be gone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from logpipeline.lag import PartitionState, StreamLag, lag_of
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.jetstream import MESSAGE_NOT_FOUND, ApiError, JetStream, time_ns_of
from logpipeline.plan.observe import REQUESTS_MAX, ask
from logpipeline.plan.trim import (
    Levels,
    decide,
    fill_of,
    keys_of,
    missed_by,
    table_keys,
    table_progress,
)
from logpipeline.spec import LogPipeline
from logpipeline.tables.progress import (
    KEYS,
    Missed,
    MissedRange,
    TableProgress,
    done_of,
    is_overtaken_soon,
    missed_key_of,
    table_key,
)

_TABLE, _GROUP = "table", "group"
# A stream as the server describes it.
_Info = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStream:
    """A stream as one table stands in it: *lag* is what is not in the table; it is *overtaken soon*
    where the server is about to delete some of that. *fill* is how full the stream is, 1.0 being
    full; it *holds back* where trimming waits for the table alone. Of what it *missed* it has not
    *passed* all while it did not go on behind that.
    """

    stream: str
    lag: StreamLag
    is_overtaken_soon: bool = False
    fill: float = 0.0
    holds_back: bool = False
    missed: tuple[MissedRange, ...] = ()
    passed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """One table, by the *name* of its pipeline, with its namespace: the *progress* that its job
    wrote, None before the first, and how it stands in each of the *streams* that are there.
    """

    name: str
    progress: TableProgress | None = None
    missed_messages: int = 0
    streams: tuple[TableStream, ...] = ()

    @property
    def is_unknown(self) -> bool:
        """Whether its job wrote why it could not begin, and nothing of the table."""
        return self.progress is not None and self.progress.commit < 0

    @property
    def held_back(self) -> tuple[str, ...]:
        """Streams that are not trimmed because of this table alone."""
        return tuple(each.stream for each in self.streams if each.holds_back)

    @property
    def misses(self) -> tuple[str, ...]:
        """Streams of which it misses lines that it did not go on behind yet."""
        return tuple(each.stream for each in self.streams if not each.passed)

    @property
    def overtaken_soon(self) -> tuple[str, ...]:
        """Streams about to delete lines that are not in the table; none while that is unknown."""
        if self.is_unknown:
            return ()
        return tuple(each.stream for each in self.streams if each.is_overtaken_soon)


async def table_of(
    js: JetStream, pipeline: LogPipeline, partitions: Sequence[PartitionState] = ()
) -> TableState:
    """Return the state of *pipeline*'s table; a survey found the *partitions*.

    Raises:
        NotSent, OutcomeUnknown, ApiError: the server could not be asked.
    """
    names, committed = pipeline.names, _committed(partitions)
    streams = [names.stream(number) for number in range(pipeline.stream_count)]
    infos = await _infos(js, streams)
    key = table_key(pipeline.namespace, pipeline.name)
    return await _table(js, key, pipeline, infos, committed)


async def tables_of(
    js: JetStream, pipeline: LogPipeline, partitions: Sequence[PartitionState]
) -> list[TableState]:
    """Return the tables that read the streams of *pipeline*, whose *partitions* a survey found.

    Raises:
        NotSent, OutcomeUnknown, ApiError: the server could not be asked.
    """
    bucket = Bucket(js, pipeline.names.state_bucket)
    keys = sorted(table_keys(await keys_of(js, bucket), pipeline))
    committed = _committed([each for each in partitions if each.is_there])
    infos = await _infos(js, committed if keys else ())
    return [await _table(js, key, pipeline, infos, committed) for key in keys]


def _committed(partitions: Iterable[PartitionState]) -> dict[str, int]:
    """Return up to where each stream is in files: all of its partitions."""
    committed: dict[str, int] = {}
    for each in partitions:
        done = max(each.committed, each.read_to)
        committed[each.stream] = min(done, committed.get(each.stream, done))
    return committed


async def _infos(js: JetStream, streams: Iterable[str]) -> list[_Info]:
    """Return the server's description of those of *streams* that exist."""
    gate = asyncio.Semaphore(REQUESTS_MAX)

    async def info_of(stream: str) -> _Info | None:
        async with gate:
            return await js.stream_info(stream)

    found = await asyncio.gather(*map(info_of, streams))
    return [info for info in found if info is not None]


async def _table(
    js: JetStream,
    key: str,
    pipeline: LogPipeline,
    infos: Sequence[_Info],
    committed: Mapping[str, int],
) -> TableState:
    """Return the table at *key*; of each stream, everything up to *committed* is in files."""
    bucket = Bucket(js, pipeline.names.state_bucket)
    progress = await table_progress(bucket, key)
    missed = await missed_by(bucket, missed_key_of(key))
    levels = Levels.of(pipeline.spec.stream)
    gate = asyncio.Semaphore(REQUESTS_MAX)

    async def stream_of(info: _Info) -> TableStream:
        found = _stream(info, progress, missed, committed, levels)
        if found.lag.messages:
            async with gate:
                age_s = await _age_s(js, info, progress)
            found = replace(found, lag=replace(found.lag, age_s=age_s))
        return replace(found, is_overtaken_soon=is_overtaken_soon(found.lag, info["config"]))

    return TableState(
        name=key.removeprefix(KEYS),
        progress=progress,
        missed_messages=missed.messages,
        streams=tuple(await asyncio.gather(*map(stream_of, infos))),
    )


def _stream(
    info: _Info,
    progress: TableProgress | None,
    missed: Missed,
    committed: Mapping[str, int],
    levels: Levels,
) -> TableStream:
    """Return all but what the age of a line says."""
    state, name, created = info["state"], str(info["config"]["name"]), str(info["created"])
    done, fill = _done(info, progress), fill_of(info["config"], state)
    decision = decide(
        fill=fill,
        levels=levels,
        first_sequence=int(state["first_seq"]),
        last_sequence=int(state["last_seq"]),
        floors={_GROUP: committed.get(name, 0)},
        tables={_TABLE: done},
    )
    return TableStream(
        stream=name,
        lag=lag_of(done, state),
        fill=fill,
        holds_back=decision.held_by == _TABLE,
        missed=missed.streams.get(name, ()),
        passed=missed.is_passed(name, created=created, done=done),
    )


def _done(info: _Info, progress: TableProgress | None) -> int:
    """Return up to where a stream is in the table."""
    position = progress.streams.get(info["config"]["name"]) if progress is not None else None
    last = int(info["state"]["last_seq"])
    return done_of(position, created=str(info["created"]), last_sequence=last)


async def _age_s(js: JetStream, info: _Info, progress: TableProgress | None) -> float:
    """Return the age of the first line that is not in the table, in seconds."""
    stream = info["config"]["name"]
    # Some messages behind the position may be gone.
    sequence = max(_done(info, progress) + 1, int(info["state"]["first_seq"]))
    try:
        answer = await ask(js, f"STREAM.MSG.GET.{stream}", {"seq": sequence, "next_by_subj": ">"})
    except ApiError as error:
        if error.err_code == MESSAGE_NOT_FOUND:
            return 0.0
        raise
    return max(0.0, (time.time_ns() - time_ns_of(answer["message"]["time"])) / 1e9)
