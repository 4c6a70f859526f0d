"""Kills the parts of a pipeline at seeded moments, and takes down what was at stake at each kill.

A kill in a quiet moment shows nothing. So before a part dies, it or the server is frozen, and only
then it is asked what is open: nothing can be finished between that look and the kill.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
from logpipeline.records import EpochRecord, epoch_key
from pipeline_under_test import PipelineUnderTest
from waiting import eventually

T = TypeVar("T")

SERVER = "nats-server"
# Between a start and the next kill: now while it recovers, now while it is at work.
PAUSE_S = (0.2, 2.5)
DOWN_S = (0.0, 0.4)
SETTLED_WITHIN_S = 30.0
LOOKS_MAX = 20
LOOK_AGAIN_S = 0.01


@dataclass(frozen=True, slots=True)
class Stake:
    """What was open when something died."""

    is_writing: bool
    unacknowledged_bytes: int = 0
    uncommitted_messages: int = 0

    @property
    def counts(self) -> bool:
        """Whether a kill at this moment shows anything."""
        return self.is_writing and bool(self.unacknowledged_bytes or self.uncommitted_messages)


@dataclass
class Nemesis:
    """Kills the parts of *pipeline* in turn, as *rng* says when."""

    pipeline: PipelineUnderTest
    rng: random.Random
    rounds: int = 0
    counted: Counter[str] = field(default_factory=Counter)

    async def run(self, rounds: int) -> None:
        """Kill and start again *rounds* times, each part as often as the others."""
        victims: list[str] = []
        for _ in range(rounds):
            if not victims:
                victims = [*self.pipeline.shippers, *self.pipeline.members, SERVER]
                self.rng.shuffle(victims)
            await asyncio.sleep(self.rng.uniform(*PAUSE_S))
            await self.strike(victims.pop())

    async def strike(self, victim: str) -> None:
        """Kill *victim*, note what was at stake, and start it again after a moment."""
        pipeline = self.pipeline
        if victim == SERVER:
            stake = await self._kill_server()
        elif victim in pipeline.shippers:
            stake = await self._kill_shipper(victim)
        else:
            stake = await self._kill_collector(victim)
        self.rounds += 1
        self.counted[victim] += stake.counts
        await asyncio.sleep(self.rng.uniform(*DOWN_S))
        if victim == SERVER:
            await pipeline.server.start()
        else:
            pipeline.components[victim].start()

    def report(self) -> str:
        """Say how many kills there were, and how many of them count."""
        shares = ", ".join(f"{name} {count}" for name, count in sorted(self.counted.items()))
        return f"rounds: {self.rounds}, counted: {self.counted.total()} ({shares})"

    async def _kill_server(self) -> Stake:
        server = self.pipeline.server
        server.suspend()
        stake = Stake(self.pipeline.writers.is_writing(), await self._unacknowledged_bytes())
        server.kill()
        return stake

    async def _kill_shipper(self, name: str) -> Stake:
        # With the server frozen no acknowledgement can come any more.
        server = self.pipeline.server
        server.suspend()
        try:
            stake = Stake(self.pipeline.writers.is_writing(), await self._unacknowledged_bytes())
            self.pipeline.components[name].kill()
        finally:
            server.resume()
        return stake

    async def _kill_collector(self, name: str) -> Stake:
        # Stored before it froze, and not committed after: uncommitted when it dies.
        component = self.pipeline.components[name]
        stored = await self._stored(name)
        component.freeze()
        committed = await self._committed()
        is_writing = self.pipeline.writers.is_writing()
        component.kill()
        open_messages = sum(
            max(0, last - committed.get(partition, last)) for partition, last in stored.items()
        )
        return Stake(is_writing, uncommitted_messages=open_messages)

    async def _unacknowledged_bytes(self) -> int:
        for _ in range(LOOKS_MAX):
            pages = [await self.pipeline.components[n].metrics() for n in self.pipeline.shippers]
            if open_bytes := sum(page.get("in_flight_bytes", 0) for page in pages):
                return int(open_bytes)
            await asyncio.sleep(LOOK_AGAIN_S)
        return 0

    async def _stored(self, member: str) -> dict[int, int]:
        """Return the last message of each partition that *member* owns."""
        pipeline = self.pipeline

        async def look() -> dict[int, int]:
            stored = {}
            for partition in range(pipeline.shape.partitions):
                record = await _record(pipeline, partition)
                if record is not None and record.owner == member and not record.released:
                    info = await pipeline.js.stream_info(pipeline.pipeline.names.stream(partition))
                    stored[partition] = info["state"]["last_seq"] if info else 0
            return stored

        return await answered(look)

    async def _committed(self) -> dict[int, int]:
        pipeline = self.pipeline

        async def look() -> dict[int, int]:
            records = {p: await _record(pipeline, p) for p in range(pipeline.shape.partitions)}
            return {p: record.position.sequence for p, record in records.items() if record}

        return await answered(look)


async def answered(look: Callable[[], Awaitable[T]]) -> T:
    """Return what *look* returns once the server, which may just come up, answers."""

    async def attempt() -> tuple[T]:
        try:
            return (await look(),)
        except (NotSent, OutcomeUnknown, ApiError) as error:
            raise AssertionError(str(error)) from error

    return (await eventually(attempt, within_s=SETTLED_WITHIN_S, what="the server answers"))[0]


async def _record(pipeline: PipelineUnderTest, partition: int) -> EpochRecord | None:
    entry = await pipeline.bucket.get(epoch_key(pipeline.group, partition))
    return EpochRecord.decode(entry.value) if entry else None
