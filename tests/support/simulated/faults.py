"""What goes wrong in a simulated world, as a list that is made before it begins: so that one can
leave parts of it out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random

from simulated.world import World

DOWN_S = (1.0, 30.0)
FROZEN_S = (1, 5, 15, 40)
AWAY_S = (0.5, 5.0, 30.0)
DROPS_S = (1.0, 10.0)
DROP = 0.02
# About the patience after which a partition is taken over.
USURP_S = (8.0, 40.0)
USURPED_S = 20.0
TAIL_MAX = 15


@dataclass(frozen=True, slots=True)
class Fault:
    """At *at_s*, *kind* happens to *subject*, for *seconds* where it lasts."""

    at_s: float
    kind: str
    subject: str = ""
    seconds: float = 0.0
    count: int = 0

    def __str__(self) -> str:
        subject = f" {self.subject}" if self.subject else ""
        count = f", {self.count}" if self.count else ""
        lasts = f", {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.at_s:10.1f} s  {self.kind}{subject}{lasts}{count}"


async def cut(world: World, fault: Fault) -> None:
    """All connections break."""
    world.server.disconnect_all("server restarted")


async def freeze(world: World, fault: Fault) -> None:
    """A process stands still, and goes on as if nothing had been."""
    world.loop.freeze(fault.subject, fault.seconds)


async def kill(world: World, fault: Fault) -> None:
    """A process is killed, and started again later."""
    if world.loop.is_dead(fault.subject):
        return
    world.kill(fault.subject)
    await asyncio.sleep(fault.seconds)
    world.start(fault.subject)


async def down(world: World, fault: Fault) -> None:
    """The server is gone for a while."""
    world.server.is_down = True
    world.server.disconnect_all("the server ends")
    await asyncio.sleep(fault.seconds)
    world.server.is_down = False


async def drop(world: World, fault: Fault) -> None:
    """Connections break again and again."""
    world.network.drop = DROP
    await asyncio.sleep(fault.seconds)
    world.network.drop = 0.0


async def part(world: World, fault: Fault) -> None:
    """One process cannot reach the server."""
    world.network.parted.add(fault.subject)
    await asyncio.sleep(fault.seconds)
    world.network.parted.discard(fault.subject)


async def move(world: World, fault: Fault) -> None:
    """Partitions are shared out in another way."""
    collectors = world.collectors
    ways = (collectors, collectors[::-1], collectors[:1], collectors[-1:])
    world.assign(ways[fault.count % len(ways)])


async def usurp(world: World, fault: Fault) -> None:
    """A collector stands still, others are given its partitions, and it wakes up as if it still had
    them.
    """
    world.loop.freeze(fault.subject, fault.seconds)
    world.assign([name for name in world.collectors if name != fault.subject])
    await asyncio.sleep(fault.seconds + USURPED_S)
    world.assign(world.collectors)


async def crash(world: World, fault: Fault) -> None:
    """All processes of one kind are killed at once, and started again."""
    names = world.collectors if fault.subject in world.collectors else world.hosts
    dead = [name for name in names if not world.loop.is_dead(name)]
    for name in dead:
        world.kill(name)
    await asyncio.sleep(fault.seconds)
    for name in dead:
        world.start(name)


async def tail(world: World, fault: Fault) -> None:
    """The server loses what it had not synced, of each stream a part."""
    world.has_lost_tails = True
    random = Random(f"{world.shape.seed} {fault.at_s}")
    streams = (world.server.streams[name] for name in world.stream_names())
    world.server.lose_tails(
        {each.name: random.randrange(min(each.last, TAIL_MAX) + 1) for each in streams}
    )


KINDS: dict[str, Callable[[World, Fault], Awaitable[None]]] = {
    each.__name__: each for each in (cut, freeze, kill, crash, down, drop, part, move, usurp, tail)
}


def plan(world: World, *, every_s: float, kinds: Sequence[str]) -> list[Fault]:
    """Return faults for the time in which *world* is written to, one in *every_s* on average."""
    random = Random(f"faults {world.shape.seed}")
    faults, at_s = [], random.expovariate(1 / every_s)
    while at_s < world.end_s and kinds:
        faults.append(_made(random, at_s, random.choice(kinds), world))
        at_s += random.expovariate(1 / every_s)
    return faults


def _made(random: Random, at_s: float, kind: str, world: World) -> Fault:
    subject = random.choice([*world.collectors, *world.hosts])
    match kind:
        case "freeze":
            return Fault(at_s, kind, subject, float(random.choice(FROZEN_S)))
        case "usurp":
            subject = random.choice(world.collectors)
            return Fault(at_s, kind, subject, random.uniform(*USURP_S))
        case "kill" | "part" | "crash":
            return Fault(at_s, kind, subject, random.choice(AWAY_S))
        case "down":
            return Fault(at_s, kind, seconds=random.uniform(*DOWN_S))
        case "drop":
            return Fault(at_s, kind, seconds=random.uniform(*DROPS_S))
        case "move":
            return Fault(at_s, kind, count=random.randrange(1, 5))
    return Fault(at_s, kind)


async def carry_out(world: World, faults: Sequence[Fault]) -> None:
    """Do all of *faults*, each at its time, and return when they are over."""
    lasting = []
    for fault in faults:
        await asyncio.sleep(max(0.0, fault.at_s - world.loop.time()))
        world.note(str(fault))
        lasting.append(asyncio.create_task(_do(world, fault)))
    await asyncio.gather(*lasting)
    world.assign(world.collectors)


async def _do(world: World, fault: Fault) -> None:
    await KINDS[fault.kind](world, fault)
