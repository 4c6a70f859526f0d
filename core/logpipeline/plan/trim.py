"""Make room in full streams, by what everybody has done with.

Streams refuse new messages when they are full, so that nothing is lost; one full of archived data
would refuse them until it expires. Collectors know these purges from a loss by one rule: whatever
is at or below the committed position of every group was nobody's loss.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from logpipeline.plan.readers import readers_of
from logpipeline.spec import LogPipeline

log = logging.getLogger(__name__)

# At the highest rate measured, a stream of the default size takes several times this to fill.
INTERVAL_S = 2.0
# Down to this share of the level at which trimming begins, so that it does not begin at once again.
DOWN_TO = 0.8
# From this fill on, a stream that nothing may be purged from is worth a warning.
WARN_FILL = 0.9


@dataclass(frozen=True, slots=True)
class Decision:
    """Purge what is before sequence *below* (0: nothing); *held_by* names the reader that does not
    permit more, where more was wanted.
    """

    below: int = 0
    held_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """A stream that was above its level: so many *messages* before *below* were purged."""

    stream: str
    fill: float
    below: int
    messages: int
    held_by: str


def fill_of(config: Mapping[str, Any], state: Mapping[str, Any]) -> float:
    """Return how full a stream is, 1.0 being full; 0.0 where it has no limits."""
    levels = [
        state.get(used, 0) / config[limit]
        for limit, used in (("max_bytes", "bytes"), ("max_msgs", "messages"))
        if config.get(limit, -1) > 0
    ]
    return max(levels, default=0.0)


def decide(
    *, fill: float, above: float, first_sequence: int, last_sequence: int, floors: Mapping[str, int]
) -> Decision:
    """Return what to purge of a stream that is *fill* full and shall not be fuller than *above*,
    both being shares of its limit, given what each reader has done with.
    """
    if fill <= above or last_sequence < first_sequence:
        return Decision()
    if not floors:
        return Decision(held_by="no group of collectors has begun")
    holder, floor = min(floors.items(), key=lambda item: item[1])
    # Messages are taken as equally large; where they are not, the next round takes the rest.
    share = 1 - above * DOWN_TO / fill
    wanted = first_sequence + math.ceil((last_sequence - first_sequence + 1) * share)
    below = min(wanted, floor + 1)
    return Decision(
        below=below if below > first_sequence else 0, held_by=holder if below < wanted else ""
    )


async def trim_forever(
    js: JetStream, pipeline: Callable[[], LogPipeline], *, interval_s: float = INTERVAL_S
) -> None:
    """Trim the streams of what *pipeline* returns each time, until cancelled."""
    warned: set[str] = set()
    problem = ""
    while True:
        try:
            warned = _warn(await trim_once(js, pipeline()), warned)
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
    above = settings.trim_above / 100
    partitions = {pipeline.names.stream(n): n for n in range(max(pipeline.spec.partitions, 1))}
    # What is not ours is never touched, whatever it is called.
    due = [
        stream
        for stream in await streams_below(js, f"{pipeline.names.subject}.>")
        if stream.name in partitions
        and owner_of(stream.config) == f"{pipeline.namespace}/{pipeline.name}"
        and fill_of(stream.config, stream.state) > above
    ]
    if not due:
        return []
    bucket = Bucket(js, pipeline.names.state_bucket)
    readers = await readers_of(js, bucket, pipeline)
    trimmed = []
    for stream in due:
        all_floors = dict((floors or {}).get(stream.name, {}))
        all_floors |= await readers.floors(js, stream, partitions[stream.name])
        trimmed.append(await _trim(js, stream, above, all_floors))
    return trimmed


async def _trim(
    js: JetStream, stream: FoundStream, above: float, floors: dict[str, int]
) -> Trimmed:
    last = stream.state["last_seq"]
    fill = fill_of(stream.config, stream.state)
    durables = durable_floors(await consumers_of(js, stream.name), last_sequence=last)
    decision = decide(
        fill=fill,
        above=above,
        first_sequence=stream.state["first_seq"],
        last_sequence=last,
        floors=floors | durables,
    )
    purged = 0
    if decision.below:
        # Repeated, it finds nothing left to do: an unknown outcome needs no care.
        answer = await js.call(f"STREAM.PURGE.{stream.name}", {"seq": decision.below})
        purged = int(answer.get("purged", 0))
    return Trimmed(
        stream=stream.name,
        fill=fill,
        below=decision.below,
        messages=purged,
        held_by=decision.held_by,
    )


def _warn(trimmed: list[Trimmed], warned: set[str]) -> set[str]:
    stuck = {each.stream: each for each in trimmed if not each.below and each.fill >= WARN_FILL}
    for name in stuck.keys() - warned:
        log.warning(
            "a full stream cannot be trimmed",
            extra={"stream": name, "held_by": stuck[name].held_by},
        )
    return set(stuck)
