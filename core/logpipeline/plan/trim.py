"""Make room in full streams, by what everybody has done with.

Streams refuse new messages when they are full, so that nothing is lost; one full of archived data
would refuse them until it expires. Collectors know these purges from a loss by one rule: whatever
is at or below the committed position of every group was nobody's loss.

The files are what a pipeline is for, and a table stands beside them: up to a named level trimming
waits for tables, and beyond it for groups and consumers alone. What a table misses is written down
before it is purged.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import (
    ApiError,
    JetStream,
)
from logpipeline.plan.floors import durable_floors
from logpipeline.plan.model import FoundStream, owner_of
from logpipeline.plan.observe import consumers_of, streams_below
from logpipeline.plan.readers import Table, missed_by, readers_of
from logpipeline.spec import LogPipeline
from logpipeline.spec.streams import Stream
from logpipeline.tables.missed import MissedRange, missed_key_of

log = logging.getLogger(__name__)

# At the highest rate measured, a stream of the default size takes several times this to fill.
INTERVAL_S = 2.0
# Down to this share of the level at which trimming begins, so that it does not begin at once again.
DOWN_TO = 0.8
# From this fill on, a stream that nothing may be purged from is worth a warning.
WARN_FILL = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """Shares of a stream's limit: it is trimmed *above* the one, and above *skip_tables* without
    waiting for tables; from 1.0 on they are always waited for.
    """

    above: float
    skip_tables: float = 1.0

    @staticmethod
    def of(stream: Stream) -> Levels:
        """Return what the resource says."""
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
    if settings.external or settings.trim != "archived" or settings.deny_purge:
        return []
    levels = Levels.of(settings)
    partitions = {pipeline.names.stream(n): n for n in range(max(pipeline.spec.partitions, 1))}
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
    purged, missed = 0, [table for table in tables if max(table.done + 1, first) < decision.below]
    if decision.below:
        for table in missed:
            await _tell_missed(bucket, stream, table, decision.below)
        # Repeated, it finds nothing left to do: an unknown outcome needs no care.
        answer = await js.call(f"STREAM.PURGE.{stream.name}", {"seq": decision.below})
        purged = int(answer.get("purged", 0))
    return Trimmed(
        stream=stream.name,
        fill=fill,
        below=decision.below,
        messages=purged,
        held_by=decision.held_by,
        missed_by=tuple(table.reader for table in missed),
    )


async def _tell_missed(bucket: Bucket, stream: FoundStream, table: Table, below: int) -> None:
    """Write down that *table* misses its unread messages before sequence *below*.

    Before the purge: a crash between the two tells of too much, until the next round purges it;
    the other order would tell of nothing.
    """
    key = missed_key_of(table.key)
    first = max(table.done + 1, int(stream.state["first_seq"]))
    gone = MissedRange(created=stream.created, first=first, last=below - 1, at_ns=time.time_ns())
    known = await missed_by(bucket, key)
    await bucket.put(key, known.with_range(stream.name, gone).encode())


@dataclass(slots=True)
class _Warnings:
    """Logs each warning about a stream that is too full once."""

    stuck: set[str] = field(default_factory=set)
    skipped: set[tuple[str, str]] = field(default_factory=set)

    def log(self, trimmed: Sequence[Trimmed]) -> None:
        stuck = {each.stream: each for each in trimmed if not each.below and each.fill >= WARN_FILL}
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
