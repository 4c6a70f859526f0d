"""What goes wrong in a simulated world, as a list that is made before it begins: so that one can
leave parts of it out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from simulated import clock
from simulated.world import Trap, World

DOWN_S = (1.0, 20.0)
FROZEN_S = (1, 5, 15, 40)
AWAY_S = (0.5, 3.0, 12.0)
DROPS_S = (1.0, 10.0)
DROP = 0.02
LASTS_S = (1.0, 12.0)
# About the patience after which a partition is taken over.
USURP_S = (8.0, 25.0)
USURPED_S = 5.0
TAIL_MAX = 15
SLOW_S = (0.3, 2.0, 6.0)
# A daemon that steps the clock, a machine that wakes up, a wrong time zone, a wrong date.
JUMPS_S = (-86400.0, -3600.0, -300.0, -30.0, 30.0, 300.0, 3600.0, 86400.0)
# How long to wait until a process comes to the place at which it is to be hit.
TRAP_S = 20.0

SHIPPER_PLACES = (
    "shipper.before-send", "shipper.before-send", "shipper.after-send", "shipper.after-ack",
    "shipper.before-save", "shipper.after-save",
)  # fmt: skip
COLLECTOR_PLACES = (
    "collector.before-swap", "collector.before-swap", "collector.after-swap",
    "collector.after-write", "collector.after-fsync", "collector.after-state",
    "collector.after-take-over", "collector.after-snapshot", "collector.after-release",
    "files.new-announced", "files.new-named", "files.rotate-intent", "files.rotate-renamed",
    "files.rotate-noted", "files.compress-intent", "files.compress-written",
    "files.compress-renamed", "files.compress-removed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """In a *round*, *at_s* after its begin, *kind* happens to *subject*, for *seconds* where it
    lasts; with a *place*, when the subject comes to it in its code.
    """

    round: int
    at_s: float
    kind: str
    subject: str = ""
    seconds: float = 0.0
    count: int = 0
    place: str = ""

    def __str__(self) -> str:
        subject = f" {self.subject}" if self.subject else ""
        place = f" at {self.place}" if self.place else ""
        count = f", {self.count}" if self.count else ""
        lasts = f", {self.seconds:.1f} s" if self.seconds else ""
        return f"round {self.round}, {self.at_s:6.1f} s  {self.kind}{subject}{place}{lasts}{count}"


async def cut(world: World, fault: Fault) -> None:
    """All connections break."""
    world.server.disconnect_all("server restarted")


async def freeze(world: World, fault: Fault) -> None:
    """A process stands still, and goes on as if nothing had been."""
    await _hit(world, fault, lambda: world.loop.freeze(fault.subject, fault.seconds))


async def kill(world: World, fault: Fault) -> None:
    """A process is killed, and started again later."""
    await _hit(world, fault, lambda: world.kill(fault.subject))
    await _again(world, fault)


async def crash(world: World, fault: Fault) -> None:
    """All processes of one kind are killed at once, and started again."""
    names = world.collectors if fault.subject in world.collectors else world.hosts
    dead = [name for name in names if not world.loop.is_dead(name)]
    for name in dead:
        world.kill(name)
    await asyncio.sleep(fault.seconds)
    for name in dead:
        if world.loop.is_dead(name):
            world.start(name)


async def power(world: World, fault: Fault) -> None:
    """A machine loses its power, and its disk what was not synced."""
    await _hit(world, fault, lambda: world.power_off(fault.subject))
    await _again(world, fault)


async def wipe(world: World, fault: Fault) -> None:
    """A shipper is killed, and its folder emptied."""
    if not world.loop.is_dead(fault.subject):
        world.kill(fault.subject)
    world.wipe(fault.subject)
    await _again(world, fault)


async def twin(world: World, fault: Fault) -> None:
    """A second process is started in the folder of one that lives, which is killed later."""
    if world.loop.is_dead(fault.subject):
        return
    pid = world.loop.pid_of(fault.subject)
    world.start(fault.subject)
    await asyncio.sleep(fault.seconds)
    if not world.loop.is_killed(pid):
        world.kill(fault.subject, pid)


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


async def slow(world: World, fault: Fault) -> None:
    """Messages and answers take long, some longer than they are waited for."""
    world.network.slow_s = SLOW_S[fault.count % len(SLOW_S)]
    await asyncio.sleep(fault.seconds)
    world.network.slow_s = 0.0


async def part(world: World, fault: Fault) -> None:
    """One process cannot reach the server."""
    await _for_a_while(world, fault, world.network.parted)


async def deaf(world: World, fault: Fault) -> None:
    """Nothing reaches a process, though what it sends arrives: acknowledgements are lost."""
    await _for_a_while(world, fault, world.network.deaf)


async def deny(world: World, fault: Fault) -> None:
    """A process may not publish, until its rights are changed, for which it is disconnected."""
    await _while_it_may_not(world, fault, world.network.denied)


async def forbid(world: World, fault: Fault) -> None:
    """A collector may not create consumers, until its rights are changed: so it cannot read what
    it takes over.
    """
    await _while_it_may_not(world, fault, world.network.unable)


async def full(world: World, fault: Fault) -> None:
    """A stream is full, or all of them and the bucket of the state."""
    every = list(world.server.streams.values())
    streams = every if fault.count == 1 else every[: world.shape.partitions]
    for stream in streams:
        stream.is_full = True
    await asyncio.sleep(fault.seconds)
    for stream in streams:
        stream.is_full = False


async def leader(world: World, fault: Fault) -> None:
    """Another server leads a stream: its consumers are gone, and for a moment nothing is answered,
    though some is stored.
    """
    for name in world.stream_names():
        world.server.change_leader(name)
    names = [*world.collectors, *world.hosts]
    world.network.deaf.update(names)
    await asyncio.sleep(fault.seconds / 4)
    world.network.deaf.difference_update(names)


async def stuck(world: World, fault: Fault) -> None:
    """Consumers give nothing any more."""
    for name in world.stream_names():
        for consumer in world.server.streams[name].consumers.values():
            consumer.is_stuck = True


async def lag(world: World, fault: Fault) -> None:
    """Direct gets are answered by a replica that lags: of all streams, or of all but the bucket, by
    which a successor would see that something is missing.
    """
    now_ns = world.server.now_ns()
    streams = [
        stream
        for name, stream in world.server.streams.items()
        if fault.count % 2 or not name.startswith("KV_")
    ]
    for stream in streams:
        stream.replica_ns = now_ns
    await asyncio.sleep(fault.seconds / 2)
    for stream in streams:
        stream.replica_ns = None


async def move(world: World, fault: Fault) -> None:
    """Partitions are shared out in another way."""
    collectors = world.collectors
    ways = (collectors, collectors[::-1], collectors[:1], collectors[-1:])
    world.assign(ways[fault.count % len(ways)])


async def usurp(world: World, fault: Fault) -> None:
    """A collector stands still, others are given its partitions, and it wakes up as if it still had
    them.
    """
    await _hit(world, fault, lambda: world.loop.freeze(fault.subject, fault.seconds))
    world.assign([name for name in world.collectors if name != fault.subject])
    await asyncio.sleep(fault.seconds + USURPED_S)
    world.assign(world.collectors)


async def outlive(world: World, fault: Fault) -> None:
    """A collector cannot reach the server, others are given its partitions, and it comes back."""
    world.network.parted.add(fault.subject)
    world.assign([name for name in world.collectors if name != fault.subject])
    await asyncio.sleep(fault.seconds)
    world.network.parted.discard(fault.subject)
    await asyncio.sleep(USURPED_S)
    world.assign(world.collectors)


async def nospace(world: World, fault: Fault) -> None:
    """The disk of a process is full."""
    await _for_a_while(world, fault, world.disk.full)


async def broken(world: World, fault: Fault) -> None:
    """The next sync of a process fails."""
    world.disk.failing.add(fault.subject)


async def exhaust(world: World, fault: Fault) -> None:
    """A process has no descriptor left: it goes on in files that it has open, and cannot look into
    the copy of one that was emptied.
    """
    world.may_be_late = True
    await _for_a_while(world, fault, world.disk.exhausted)


async def jump(world: World, fault: Fault) -> None:
    """The wall clock of a process is wrong for a while."""
    clock.WRONG_S[fault.subject] = JUMPS_S[fault.count % len(JUMPS_S)]
    await asyncio.sleep(fault.seconds)
    clock.WRONG_S.pop(fault.subject, None)


async def tail(world: World, fault: Fault) -> None:
    """The server loses what it had not synced, of each stream a part."""
    world.take_lines(*range(world.shape.partitions))
    random = Random(f"{world.shape.seed} {fault.round} {fault.at_s}")
    streams = (world.server.streams[name] for name in world.stream_names())
    world.server.lose_tails(
        {each.name: random.randrange(min(each.last, TAIL_MAX) + 1) for each in streams}
    )


async def purge(world: World, fault: Fault) -> None:
    """Someone empties a stream, or all but its last messages."""
    names = world.stream_names()
    world.take_lines(fault.count % len(names))
    stream = world.server.streams[names[fault.count % len(names)]]
    below = None if fault.count % 2 else max(1, stream.last - TAIL_MAX // 3)
    stream.purge(below=below, filter=None)


async def remade(world: World, fault: Fault) -> None:
    """Someone deletes a stream, and makes it again."""
    names = world.stream_names()
    world.take_lines(fault.count % len(names))
    world.server.make_anew(names[fault.count % len(names)])


async def _hit(world: World, fault: Fault, act: Callable[[], None]) -> None:
    """Do *act* to the subject, where the fault has a place, when it is there."""

    def do() -> None:
        if not world.loop.is_dead(fault.subject):
            if fault.count % 2 and fault.kind != "freeze" and fault.kind != "usurp":
                # What it is about to send does not leave any more.
                world.network.forget(world.loop.pid_of(fault.subject))
            act()

    if not fault.place:
        do()
        return
    trap = Trap(fault.subject, fault.place, do)
    world.traps.append(trap)
    with suppress(TimeoutError):
        async with asyncio.timeout(TRAP_S):
            await trap.sprung.wait()
    if trap in world.traps:
        world.traps.remove(trap)


async def _again(world: World, fault: Fault) -> None:
    await asyncio.sleep(fault.seconds)
    if world.loop.is_dead(fault.subject):
        world.start(fault.subject)


async def _for_a_while(world: World, fault: Fault, names: set[str]) -> None:
    names.add(fault.subject)
    await asyncio.sleep(fault.seconds)
    names.discard(fault.subject)


async def _while_it_may_not(world: World, fault: Fault, names: set[str]) -> None:
    await _for_a_while(world, fault, names)
    if not world.loop.is_dead(fault.subject):
        world.network.forget(world.loop.pid_of(fault.subject))


KINDS: dict[str, Callable[[World, Fault], Awaitable[None]]] = {
    each.__name__: each
    for each in (
        cut, freeze, kill, crash, power, wipe, twin, down, drop, slow, part, deaf, deny, full,
        leader, stuck, lag, move, usurp, outlive, nospace, broken, exhaust, jump, tail, purge,
        remade, forbid,
    )
}  # fmt: skip
# After these, lines are sent again behind younger ones.
TAKES_LINES = ("tail", "purge", "remade")
# A shipper without its state waits for some seconds for collectors that say what they have. If none
# can be asked, it sends all once more: that is so by design.
ALONE = ("wipe",)
# So many kinds happen in one world: a mixture of all is rarely as hard as a few of them often.
KINDS_AT_ONCE = (3, 8)
# What shows most planted defects: owners that change and are hit at places in their code; a server
# that loses lines under owners that stay; answers that are lost, and disks that fail.
MIXTURES = (
    ("kill", "usurp", "move", "outlive", "power", "freeze"),
    ("tail", "purge", "remade", "kill", "deaf", "cut"),
    ("deaf", "drop", "kill", "leader", "full", "power", "stuck"),
)
# Of what can hit a process at a place in its code, so much does.
AT_PLACES = 0.6


def plan(world: World, *, every_s: float, kinds: Sequence[str] | None) -> list[Fault]:
    """Return faults for the time in which *world* is written to, one in *every_s* on average, of
    *kinds*, or of some that its seed chooses.
    """
    random = Random(f"faults {world.shape.seed}")
    if kinds is None:
        kinds = random.sample(sorted(KINDS), random.randint(*KINDS_AT_ONCE))
        if random.random() < 0.5:
            kinds = [kind for kind in kinds if kind not in TAKES_LINES] or ["kill"]
    faults: list[Fault] = []
    for number in range(world.shape.rounds):
        at_s = random.expovariate(1 / every_s)
        while at_s < world.shape.busy_s and kinds:
            faults.append(_made(random, number, at_s, random.choice(kinds), world))
            at_s += random.expovariate(1 / every_s)
    return faults


def _made(random: Random, number: int, at_s: float, kind: str, world: World) -> Fault:
    subject = random.choice([*world.collectors, *world.hosts])
    count = random.randrange(1, 60)
    is_at_place = random.random() < AT_PLACES
    places = COLLECTOR_PLACES if subject in world.collectors else SHIPPER_PLACES
    place = random.choice(places) if is_at_place else ""
    seconds = random.uniform(*LASTS_S)
    match kind:
        case "freeze":
            return Fault(number, at_s, kind, subject, float(random.choice(FROZEN_S)), count, place)
        case "usurp":
            subject = random.choice(world.collectors)
            place = random.choice(COLLECTOR_PLACES[:6]) if is_at_place else ""
            return Fault(number, at_s, kind, subject, random.uniform(*USURP_S), count, place)
        case "kill" | "power":
            return Fault(number, at_s, kind, subject, random.choice(AWAY_S), count, place)
        case "crash" | "part" | "deaf" | "exhaust" | "jump" | "nospace" | "twin":
            return Fault(number, at_s, kind, subject, seconds, count)
        case "broken":
            return Fault(number, at_s, kind, random.choice(world.collectors))
        case "outlive":
            return Fault(
                number, at_s, kind, random.choice(world.collectors), random.uniform(*USURP_S)
            )
        case "wipe":
            return Fault(number, at_s, kind, random.choice(world.hosts), seconds)
        case "deny":
            return Fault(number, at_s, kind, subject, seconds)
        case "forbid":
            return Fault(number, at_s, kind, random.choice(world.collectors), seconds)
        case "down":
            return Fault(number, at_s, kind, seconds=random.uniform(*DOWN_S))
        case "drop":
            return Fault(number, at_s, kind, seconds=random.uniform(*DROPS_S))
        case "slow" | "full" | "leader" | "lag":
            return Fault(number, at_s, kind, seconds=seconds, count=count)
    return Fault(number, at_s, kind, count=count)


async def carry_out(
    world: World, faults: Sequence[Fault], number: int, *, is_calm: bool = False
) -> None:
    """Do those of *faults* that the round *number* has, each at its time, and return when they are
    over; when all is calm again, those that are to happen alone.
    """
    began_s = world.loop.time()
    lasting: list[asyncio.Task[None]] = []
    for fault in faults:
        if fault.round != number or (fault.kind in ALONE) is not is_calm:
            continue
        await asyncio.sleep(max(0.0, began_s + fault.at_s - world.loop.time()))
        world.note(str(fault))
        lasting.append(asyncio.create_task(KINDS[fault.kind](world, fault)))  # type: ignore[arg-type]
    await asyncio.gather(*lasting)
