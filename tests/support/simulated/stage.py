"""A short world that is played by hand: what a script does to it, and what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from logpipeline import checksum, wire
from logpipeline.plan import trim
from logpipeline.records import EpochRecord
from simulated.demands import Demands, Explained
from simulated.oracle import Outcome, outcome
from simulated.streams import Stream
from simulated.world import Shape, Trap, WentWrong, World
from simulated.writers import Writer

HOST, OWNER, OTHER = "host-0", "collector-0", "collector-1"
# Whatever a script waits for takes seconds; what has not come by then does not come.
WITHIN_S = 90.0
LOOK_S = 0.05
# When its faults are over, all is in its place so long after.
CONVERGE_S = 90.0
SMALL = Shape(1, rounds=1, hosts=1, logs=1, partitions=1, collectors=2)
# Of each of the hosts, the partition has its number.
ONE_STREAM = replace(SMALL, hosts=2, partitions=2, is_single=True)
# Ten lines of a hundred bytes: a batch is as small as the specification allows.
BATCH_BYTES = 1024
LINE_BYTES = 100


@dataclass(frozen=True, slots=True)
class Script:
    """A *play*, the defects that it *aims* at, and the shape of its world."""

    play: Callable[[Stage], Awaitable[None]]
    aims: tuple[str, ...]
    shape: Shape

    @property
    def name(self) -> str:
        """Its name, as a command takes it."""
        return self.play.__name__


class Stage:
    """What a script works with. *log* is the first log of the first host; `collector-0` owns the
    only partition at the begin.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.log: Writer = world.writers[0]
        self.demands = Demands(world)
        self._members = [OWNER]
        world.assign(self._members)

    @property
    def explained(self) -> Explained:
        """What the script explains."""
        return self.demands.explained

    @property
    def stream(self) -> Stream:
        """The stream of the only partition."""
        return self.world.server.streams[self.world.stream_names()[0]]

    @property
    def snapshots(self) -> str:
        """The name of the stream of snapshots."""
        return self.world._names.snapshot_stream

    @property
    def bucket(self) -> str:
        """The name of the stream of the state bucket."""
        return f"KV_{self.world._names.state_bucket}"

    @property
    def record(self) -> EpochRecord:
        """The record of the partition's owner."""
        return self.demands.records[0]

    # -- waiting

    async def sleep(self, seconds: float) -> None:
        """Let so much time pass."""
        await asyncio.sleep(seconds)

    async def until(self, fact: Callable[[], bool], what: str, within_s: float = WITHIN_S) -> None:
        """Return when *fact* is true.

        Raises:
            WentWrong: it is not within *within_s*.
        """
        until_s = self.world.loop.time() + within_s
        while not fact():
            if self.world.loop.time() > until_s:
                raise WentWrong(f"not within {within_s:g} s: {what}")
            await asyncio.sleep(LOOK_S)

    async def ship(self, lines: int = 3, *, log: Writer | None = None) -> None:
        """Write *lines*, and return when the server has acknowledged all."""
        self.write(lines, log=log)
        await self.acknowledged()

    async def ship_more(self, lines: int = 3) -> None:
        """Ship *lines* where others are lost, so that not all that was written is ever stored."""
        before, size = self.demands.stored_bytes, lines * LINE_BYTES
        self.write(lines)
        await self.until(lambda: self.demands.stored_bytes >= before + size, "it is stored")

    async def ship_each(self, batches: int, lines: int = 1) -> None:
        """Ship *batches*, one after the other, each of so many *lines*."""
        for _ in range(batches):
            await self.ship(lines)

    async def acknowledged(self) -> None:
        """Return when shippers have nothing more to send."""
        await self.until(self._is_level, "all lines are acknowledged")

    def _is_level(self) -> bool:
        wrote = sum(sum(writer.sizes) for writer in self.world.writers)
        shippers = [each._manager for each in self.world.shippers.values()]
        return self.demands.stored_bytes >= wrote and all(
            each.is_level() and not each.backlog_bytes() for each in shippers
        )

    async def collected(self, within_s: float = WITHIN_S) -> None:
        """Return when the group has committed all that is stored, and shippers know it."""
        await self.until(
            lambda: self.record.position.sequence == self.stream.last, "all is committed", within_s
        )
        await self.until(
            lambda: (
                not any(each._manager.on_the_way_bytes() for each in self.world.shippers.values())
            ),
            "shippers know what is committed",
            within_s,
        )

    async def owned_by(self, name: str, within_s: float = WITHIN_S) -> None:
        """Return when *name* owns the partition."""
        await self.until(
            lambda: (
                0 in self.demands.records and self.record.owner == name and not self.record.released
            ),
            f"{name} owns the partition",
            within_s,
        )

    async def begun(self) -> None:
        """Return when the first owner has the partition."""
        await self.owned_by(OWNER)

    async def begun_by_both(self) -> None:
        """Return when each of two owners has one of two partitions."""
        self.give(OWNER, OTHER)
        await self.until(
            lambda: (
                {n: each.owner for n, each in self.demands.records.items() if not each.released}
                == {0: OWNER, 1: OTHER}
            ),
            "each owns a partition",
        )

    async def passed(self) -> None:
        """Return when the group has all that the stream of all partitions holds, and knows of each
        partition that it holds no more of it.
        """
        await self.until(
            lambda: all(
                record.read_to == self.stream.last for record in self.demands.records.values()
            ),
            "each partition is read to the end",
        )

    def read_to(self, name: str = OWNER) -> int:
        """Return the sequence up to which the collector *name* has read."""
        worker = self.world.services[name]._workers.get(0)
        return worker.owned.position.sequence if worker is not None and worker.owned else 0

    # -- what happens

    def write(self, lines: int, *, log: Writer | None = None) -> None:
        """Write *lines* of a hundred bytes each."""
        (log or self.log).write(lines, line_bytes=LINE_BYTES)

    def give(self, *names: str) -> None:
        """Assign the partition to *names*."""
        self._members = list(names)
        self.world.assign(self._members)

    async def hand_over(self, name: str) -> None:
        """Assign the partition to *name*, and return when it has it."""
        self.give(name)
        await self.owned_by(name)

    def trap(self, name: str, place: str, act: Callable[[], None]) -> Trap:
        """Do *act* when *name* comes to *place* in its code."""
        made = Trap(name, place, act)
        self.world.traps.append(made)
        return made

    async def sprung(self, trap: Trap) -> None:
        """Return when *trap* was sprung.

        Raises:
            WentWrong: nothing comes to its place.
        """
        await self.until(trap.sprung.is_set, f"{trap.subject} comes to {trap.place}")

    def kill(self, name: str) -> None:
        """Kill the process *name*; it stays dead until it is started."""
        self.world.kill(name)

    def start(self, name: str) -> None:
        """Start *name* again."""
        self.world.start(name)

    def freeze(self, name: str, seconds: float) -> None:
        """Let *name* stand still."""
        self.world.loop.freeze(name, seconds)

    def deafen(self, name: str) -> None:
        """Let nothing reach *name*, though what it sends arrives."""
        self.world.network.deaf.add(name)

    def hear(self, name: str) -> None:
        """Let *name* hear again."""
        self.world.network.deaf.discard(name)

    async def stop(self, name: str) -> None:
        """Ask *name* to end, and return when it has; it stays away."""
        process = self.world.processes[name]
        assert process.task is not None
        self.world.is_left_alone.add(name)
        process.stop.set()
        await asyncio.wait([process.task])

    def lose_tail(self, count: int) -> None:
        """Let the server come back without its last *count* messages."""
        self.world.server.lose_tails({self.stream.name: count})

    def lag(self, stream: str) -> None:
        """Let the replicas of *stream*, which answer direct gets, store nothing from now on."""
        self.world.server.streams[stream].replica_ns = self.world.server.now_ns()

    def keep_up(self, stream: str) -> None:
        """Undo `lag`."""
        self.world.server.streams[stream].replica_ns = None

    def forge(self, sequence: int) -> None:
        """Have another client publish what it made up, for bytes in the middle of the batch at
        *sequence*.
        """
        genuine = self.stream.messages[sequence]
        batch = wire.decode_headers(wire.parse_headers(genuine.headers))
        assert batch is not None
        data = b"forged" * 2
        start = batch.start + 7
        made = replace(
            batch,
            start=start,
            end=start + len(data),
            lines=1,
            compressed=False,
            previous=None,
            checksums=wire.Checksums.around(data, checksum.extend(checksum.NOTHING, data)),
        )
        headers = wire.encode_headers(made, "forged")
        self.world.server.receive(genuine.subject, "", headers, data)

    def trim(self) -> None:
        """Remove what the owners' records allow to."""
        stream, floors = self.stream, []
        for record in self.demands.records.values():
            passed = record.passed
            floors.append(
                trim.group_floor(
                    record,
                    created=stream.created,
                    last_sequence=stream.last,
                    time_ns=self._time_ns(record.position.sequence),
                    passed_time_ns=self._time_ns(passed.sequence) if passed else None,
                )
            )
        stream.purge(below=min(floors) + 1, filter=None)

    def _time_ns(self, sequence: int) -> int | None:
        message = self.stream.messages.get(sequence)
        return None if message is None else message.time_ns

    # -- what is there

    async def books(self) -> Outcome:
        """Compare lines and books now, of the processes that run."""
        return outcome(self.world, await self.world.ask())

    def check(self, fact: bool, what: str) -> None:
        """Have the script fail unless *fact*.

        Raises:
            WentWrong: it is not.
        """
        if not fact:
            raise WentWrong(f"not so: {what}")

    def path(self, name: str) -> Path:
        """Return the path *name* beside the log."""
        return self.log.path.with_name(name)

    async def end(self) -> None:
        """End what is wrong, and return when all is as it should be.

        Raises:
            WentWrong: it is not.
        """
        self.world.heal(self._members)
        await self.world.settle(CONVERGE_S)
        self.world.complain(await self.demands.wrong())


class Scripts(list[Script]):
    """The scripts of one module, in the order in which they stand there, in worlds like *shape*."""

    def __init__(self, shape: Shape = SMALL) -> None:
        super().__init__()
        self._shape = shape

    def add(
        self, *aims: str, logs: int = 1, batch_bytes: int = 0
    ) -> Callable[[Callable[[Stage], Awaitable[None]]], Callable[[Stage], Awaitable[None]]]:
        """Return a decorator that adds a play, which *aims* at planted defects."""

        def added(play: Callable[[Stage], Awaitable[None]]) -> Callable[[Stage], Awaitable[None]]:
            shape = replace(self._shape, logs=logs, batch_bytes=batch_bytes)
            self.append(Script(play, aims, shape))
            return play

        return added
