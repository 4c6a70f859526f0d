"""Kills the parts of a pipeline at seeded moments, and takes down what was at stake at each kill.

A kill in a quiet moment shows nothing. So before a part dies, it or the server is frozen, and only
then it is asked what is open: nothing can be finished between that look and the kill.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

from faults.pipeline_under_test import PipelineUnderTest

SERVER = "nats-server"
# Between a start and the next kill: now while it recovers, now while it is at work.
PAUSE_S = (0.1, 1.2)
DOWN_S = (0.0, 0.3)
LOOKS_MAX = 20
ROUNDS_PER_COUNTED_MAX = 2
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

    async def run(self, *, counted: int) -> None:
        """Kill and start again, each part as often as the others, until *counted* kills count, or
        so many are in vain that something is wrong.
        """
        victims: list[str] = []
        while self.counted.total() < counted and self.rounds < counted * ROUNDS_PER_COUNTED_MAX:
            if not victims:
                victims = [*self.pipeline.shippers, *self.pipeline.members, SERVER]
                self.rng.shuffle(victims)
            await asyncio.sleep(self.rng.uniform(*PAUSE_S))
            await self.strike(victims.pop())

    async def strike(self, victim: str) -> None:
        """Kill *victim*, and start it again after a moment."""
        await self.kill(victim)
        await asyncio.sleep(self.rng.uniform(*DOWN_S))
        if victim == SERVER:
            await self.pipeline.server.start()
        else:
            self.pipeline.components[victim].start()

    async def kill(self, victim: str) -> Stake:
        """Kill *victim*, and return what was at stake."""
        if victim == SERVER:
            stake = await self._kill_server()
        elif victim in self.pipeline.shippers:
            stake = await self._kill_shipper(victim)
        else:
            stake = await self._kill_collector(victim)
        self.rounds += 1
        self.counted[victim] += stake.counts
        return stake

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
        stored = await self.pipeline.state.stored()
        component.freeze()
        records = await self.pipeline.state.records()
        is_writing = self.pipeline.writers.is_writing()
        component.kill()
        open_messages = sum(
            max(0, stored[number] - record.position.sequence)
            for number, record in records.items()
            if record.owner == name and not record.released
        )
        return Stake(is_writing, uncommitted_messages=open_messages)

    async def _unacknowledged_bytes(self) -> int:
        for _ in range(LOOKS_MAX):
            pages = [await self.pipeline.components[n].metrics() for n in self.pipeline.shippers]
            if open_bytes := sum(page.get("in_flight_bytes", 0) for page in pages):
                return int(open_bytes)
            await asyncio.sleep(LOOK_AGAIN_S)
        return 0
