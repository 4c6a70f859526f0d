"""A pipeline in a simulated world: shippers and collectors as they are, and all else simulated.

A world lives through rounds. In each, programs write while faults happen; then the faults are over,
and within a named time everything has to be in its place, and the books have to balance.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, TextIO, TypeVar

import yaml

import logpipeline.failpoints
from logpipeline.nats.options import NatsOptions
from logpipeline.nats.session import RawMessage
from logpipeline.partition import partition_of
from logpipeline.plan.desired import desired
from logpipeline.records import assign, assignment_key
from logpipeline.spec.parse import load
from logpipeline.subjects import ControlSubjects, Names, key_value_subject
from logpipeline_collector import config as collector_config
from logpipeline_collector import reports
from logpipeline_collector import service as collector
from logpipeline_shipper import config as shipper_config
from logpipeline_shipper import service as shipper
from simulated import clock
from simulated.disk import Disk
from simulated.loop import PROCESS, Killed, VirtualLoop
from simulated.network import Network
from simulated.oracle import Outcome, Ownership, bounds, is_settled, outcome
from simulated.server import Server
from simulated.writers import Writer

# When all faults of a round are over, everything is in its place so long after, at the latest: a
# shipper that lost its positions waits a minute for collectors, a gap that was filled in vain is
# filled again after half a minute.
CONVERGE_S = 240.0
LOOK_S = 2.0
# So long after the last fault nothing is looked at: what goes on for a moment is not news.
CALM_S = 6.0
# Who ends by itself is started again after so long, as Kubernetes does.
RESTART_S = 2.0
# How long an answer to a question of the world may take.
ANSWER_S = 1.0
ENDING_S = 60.0


P = TypeVar("P")


class WentWrong(Exception):
    """Something that no fault explains."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a world is, and how long it lasts: so many rounds, each busy for *busy_s*."""

    seed: int
    rounds: int = 3
    busy_s: float = 90.0
    hosts: int = 2
    logs: int = 3
    partitions: int = 2
    collectors: int = 2
    # Seconds between two writes to a log, on average.
    pause_s: float = 1.5
    # Bytes of a batch, 0 for the default.
    batch_bytes: int = 0
    # Whether one stream holds all partitions.
    is_single: bool = False

    @property
    def stream_partitions(self) -> int:
        """How many partitions one stream holds."""
        return self.partitions if self.is_single else 1


def with_one_stream(shape: Shape) -> Shape:
    """Return *shape* with one stream for three partitions, which are idle for a while again and
    again.
    """
    return replace(shape, is_single=True, hosts=3, logs=1, partitions=3, pause_s=4.0)


@dataclass(slots=True)
class Process:
    """A process that is to run: how it is started, and what asks it to end."""

    start: Callable[[asyncio.Event], Coroutine[Any, Any, int]]
    data: Path
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[int] | None = None
    restarts: int = 0


@dataclass(slots=True, eq=False)
class Trap:
    """Waits for *subject* to come to *place* in its code, and then acts."""

    subject: str
    place: str
    act: Callable[[], None]
    sprung: asyncio.Event = field(default_factory=asyncio.Event)


class _Traps:
    """Stands where the product keeps the places at which a test ends it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __contains__(self, place: object) -> bool:
        self._world.reached(str(place))
        return False


class World:
    """See the module; its files are below *root*, which is to be in memory."""

    def __init__(self, shape: Shape, root: Path) -> None:
        self.shape = shape
        self.root = root
        self.random = Random(shape.seed)
        self.loop = VirtualLoop(self.random)
        self.disk = Disk(self.loop)
        self._digest = hashlib.blake2b(digest_size=8)
        self.notes = 0
        # Where each note is written as well, if anywhere.
        self.history: TextIO | None = None
        self.server = Server(self.loop, self.note)
        self.network = Network(self.loop, self.server, self.random)
        self.processes: dict[str, Process] = {}
        # The parts of the processes that were started last, by name.
        self.shippers: dict[str, shipper.Shipper] = {}
        self.services: dict[str, collector.Service] = {}
        # Processes that are not started again when they end.
        self.is_left_alone: set[str] = set()
        self.writers: list[Writer] = []
        self.boots: dict[str, int] = {}
        self.traps: list[Trap] = []
        # Whether stored lines were taken away, so that some are sent again behind others.
        self.may_be_late = False
        self.settled_s: list[float] = []
        self.problem = ""
        self._generation = 0
        self._is_ending = False
        self._make()

    @property
    def hosts(self) -> list[str]:
        """The names of the hosts, each of which has a shipper."""
        return [f"host-{number}" for number in range(self.shape.hosts)]

    @property
    def collectors(self) -> list[str]:
        """The names of the collectors."""
        return [f"collector-{number}" for number in range(self.shape.collectors)]

    @property
    def names(self) -> Names:
        """What the pipeline's streams, subjects and bucket are called."""
        return self._names

    @property
    def group(self) -> str:
        """The group of the collectors."""
        return self._pipeline.spec.collectors.group

    @property
    def digest(self) -> str:
        """What tells one history from another."""
        return self._digest.hexdigest()

    def note(self, what: str) -> None:
        """Note that something happened now."""
        line = f"{self.loop.now_s:.6f} {what}\n"
        self._digest.update(line.encode())
        self.notes += 1
        if self.history is not None:
            self.history.write(line)

    def outputs(self) -> list[Path]:
        """Return the folders of the collectors that wrote something."""
        return [
            self.root / name for name in self.collectors if (self.root / name / "logs").is_dir()
        ]

    def stream_names(self) -> list[str]:
        """Return the names of the streams of lines."""
        return [self._names.stream(number) for number in range(self._pipeline.stream_count)]

    def partition_of(self, host: str) -> int:
        """Return the partition of *host*."""
        return partition_of(host, self.shape.partitions)

    # -- what happens to it

    def assign(self, members: list[str], *, generation: int | None = None) -> None:
        """Share the partitions among *members*, as the operator does. With a *generation*, it is an
        assignment that the bucket had before.
        """
        if generation is None:
            self._generation += 1
        group = self._pipeline.spec.collectors.group
        wanted = assign(
            members,
            partitions=self.shape.partitions,
            generation=self._generation if generation is None else generation,
        ).encode()
        bucket = self._names.state_bucket
        # The operator tries until it is written.
        is_down, self.server.is_down = self.server.is_down, False
        self.server.receive(key_value_subject(bucket, assignment_key(group)), "", None, wanted)
        self.server.is_down = is_down

    def start(self, name: str) -> None:
        """Start the process *name*, or start it again."""
        process = self.processes[name]
        process.stop = asyncio.Event()
        process.task = self.loop.spawn(name, process.start(process.stop))
        process.task.add_done_callback(lambda task: self._ended(name, task))

    def kill(self, name: str, pid: str = "") -> None:
        """End the process *name* as `kill -9` does: the last one of this name, or *pid*."""
        pid = pid or self.loop.pid_of(name)
        self.loop.kill(pid)
        self.network.forget(pid)
        self.disk.close_all(pid)
        self.processes[name].restarts += 1

    def power_off(self, name: str, *, is_all_lost: bool = False) -> None:
        """Take the power from the machine of *name*: its disk loses what was not synced, or some of
        that.
        """
        if not self.loop.is_dead(name):
            self.kill(name)
        self.disk.lose_power(self.processes[name].data, None if is_all_lost else self.random)
        self.boots[name] = self.boots.get(name, 0) + 1

    def wipe(self, name: str) -> None:
        """Empty the folder of *name*, which does not run."""
        shutil.rmtree(self.processes[name].data, ignore_errors=True)

    def reached(self, place: str) -> None:
        """Note that the process that runs now has come to *place*."""
        if not self.traps:
            return
        name = PROCESS.get().partition("#")[0]
        for trap in self.traps:
            if trap.subject == name and trap.place == place:
                self.traps.remove(trap)
                self.note(f"{name} is at {place}")
                trap.act()
                trap.sprung.set()
                if self.loop.is_in_thread and self.loop.is_dead(name):
                    raise Killed
                return

    def take_lines(self, *partitions: int) -> None:
        """Note that the streams of *partitions* lose messages that they had acknowledged."""
        self.may_be_late = True
        if self.shape.is_single:
            partitions = tuple(range(self.shape.partitions))
        for partition in partitions:
            self.ownership.take_lines(partition)

    def heal(self, members: list[str] | None = None) -> None:
        """End all that is wrong, but for what happened. The partitions go to *members*, or to
        all.
        """
        self.traps.clear()
        self.server.is_down = False
        self.network.drop = self.network.slow_s = 0.0
        for names in (
            self.network.parted, self.network.deaf, self.network.denied, self.network.unable,
            self.disk.full, self.disk.failing, self.disk.exhausted,
        ):  # fmt: skip
            names.clear()
        clock.WRONG_S.clear()
        for stream in self.server.streams.values():
            stream.is_full, stream.replica_ns, stream.former_ns = False, None, None
        self.is_left_alone.clear()
        for name in self.processes:
            if self.loop.is_dead(name):
                self.start(name)
        self.assign(self.collectors if members is None else members)

    async def run(self, nemesis: Callable[[int, bool], Coroutine[Any, Any, None]]) -> Outcome:
        """Live through all rounds, of each of which *nemesis* carries out the faults: first those
        that happen while all is busy, then those that happen when it is calm.

        Raises:
            WentWrong: something is not as it should be.
        """
        for name in self.processes:
            self.start(name)
        for number in range(self.shape.rounds):
            until_s = self.loop.time() + self.shape.busy_s
            trouble = asyncio.create_task(nemesis(number, False))
            await asyncio.gather(*(writer.run(until_s) for writer in self.writers))
            await trouble
            self.heal()
            await self.settle()
            before_s = self.loop.time()
            await nemesis(number, True)
            if self.loop.time() > before_s:
                await self.settle()
        return await self._ended_well()

    async def play(self, script: Callable[[], Coroutine[Any, Any, None]]) -> Outcome:
        """Live through what *script* does, which returns when all is in its place.

        Raises:
            WentWrong: something is not as it should be.
        """
        for name in self.processes:
            self.start(name)
        await script()
        return await self._ended_well()

    async def _ended_well(self) -> Outcome:
        await self._end()
        made = outcome(self)
        self.complain(made.wrong if not self._named else self._only_wrong(made))
        return made

    async def ask(self) -> list[dict[str, Any]]:
        """Return what each process answers that is asked for its status."""
        answers = _Answers()
        self.server.peers.append(answers)
        for component in ("shipper", "collector"):
            subject = ControlSubjects(self._names.control_subject).status(component)
            self.server.publish(subject, b"", reply=answers.inbox)
        await asyncio.sleep(ANSWER_S)
        self.server.peers.remove(answers)
        return answers.found

    async def settle(self, within_s: float = CONVERGE_S) -> None:
        """Return when all is in its place, and the books balance.

        Raises:
            WentWrong: they do not within *within_s*, or something is larger than it may be.
        """
        began_s = self.loop.time()
        await asyncio.sleep(CALM_S)
        while True:
            statuses = await self.ask()
            moving = is_settled(self, statuses)
            found = None if moving else outcome(self, statuses)
            if found is not None and found.is_clean:
                break
            if self.loop.time() - began_s > within_s:
                found = found or outcome(self, statuses)
                self.complain([moving, *found.wrong] if moving else found.wrong)
            await asyncio.sleep(LOOK_S)
        self.settled_s.append(self.loop.time() - began_s)
        self._named = found.lost
        self.complain([*self.ownership.wrong, *bounds(self)])

    async def _end(self) -> None:
        self._is_ending = True
        for names in (self.hosts, self.collectors):
            for name in names:
                self.processes[name].stop.set()
            tasks = [self.processes[name].task for name in names]
            _, late = await asyncio.wait([task for task in tasks if task], timeout=ENDING_S)
            self.complain([f"{task.get_name()} does not end" for task in late])
        codes = {name: process.task.result() for name, process in self.processes.items()
                 if process.task is not None}  # fmt: skip
        self.complain([f"{name} ended with {code}" for name, code in codes.items() if code])

    def _only_wrong(self, made: Outcome) -> list[str]:
        # Without processes nothing is named any more: what was absent before may be so still.
        if made.lost != self._named:
            return made.wrong
        return [line for line in made.wrong if "absent" not in line]

    def complain(self, wrong: list[str]) -> None:
        """Fail where something is *wrong*.

        Raises:
            WentWrong: it says what.
        """
        if wrong:
            raise WentWrong("\n".join(wrong))

    def _ended(self, name: str, task: asyncio.Task[int]) -> None:
        """Start *name* again, which ended by itself: its disk failed, its folder was busy."""
        if self._is_ending or task is not self.processes[name].task:
            return
        if not task.cancelled() and (error := task.exception()) is not None:
            self.note(f"{name} ends: {type(error).__name__}")
        pid = self.loop.pid_of(name)
        self.loop.kill(pid)
        self.network.forget(pid)
        self.disk.close_all(pid)
        if name not in self.is_left_alone:
            self.loop.call_later(RESTART_S, self._restart, name)

    def _restart(self, name: str) -> None:
        if self.loop.is_dead(name) and not self._is_ending:
            self.start(name)

    # -- how it is made

    def _make(self) -> None:
        self._named = 0
        clock.install(self.loop, self.shape.seed)
        self.network.install()
        self.disk.install()
        logpipeline.failpoints._left = _Traps(self)  # type: ignore[assignment]
        vars(shipper)["boot_id"] = lambda: (
            f"{PROCESS.get()}".partition("#")[0]
            + str(self.boots.get(PROCESS.get().partition("#")[0], 0))
        )
        vars(shipper)["Shipper"] = _known(shipper.Shipper, self.shippers)
        vars(collector)["Service"] = _known(collector.Service, self.services)
        # Most of what a quiet world does is to look whether there is something to do.
        reports.LISTEN_EVERY_S = 0.5
        asyncio.set_event_loop(self.loop)
        resource = self.root / "pipeline.yaml"
        resource.write_text(yaml.safe_dump(self._resource()))
        self._pipeline = load(resource)
        self._names = self._pipeline.names
        self.ownership = Ownership(
            self._names.state_bucket,
            self._pipeline.spec.collectors.group,
            self.shape.partitions,
        )
        self.server.on_stored = self.ownership.note
        for stream in desired(self._pipeline).streams:
            self.server.add(dict(stream.config))
        self.assign(self.collectors)
        for name in self.collectors:
            self.processes[name] = Process(self._collector(name), self.root / name)
        for host in self.hosts:
            self.processes[host] = Process(self._shipper(host), self.root / "shippers" / host)
            for number in range(self.shape.logs):
                path = self._logs_of(host) / f"app{number}.log"
                seed = f"{self.shape.seed} {path.name} {host}"
                self.writers.append(Writer(path, Random(seed), self))

    def _resource(self) -> dict[str, Any]:
        shippers = [
            {"name": host, "host": host, "files": [{"include": [f"{self._logs_of(host)}/*.log*"]}]}
            for host in self.hosts
        ]
        return {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": "simulated"},
            "spec": {
                "partitions": self.shape.partitions,
                "collectors": {
                    # The world may have more, of which one has nothing to do.
                    "replicas": min(self.shape.collectors, self.shape.partitions),
                    "commit": {"interval": "1s"},
                    "snapshotEvery": "20s",
                    "rotation": {"maxBytes": 65536},
                },
                "local": {"shippers": shippers},
                # Replicas may lag.
                "stream": {"replicas": 3, **({"layout": "single"} if self.shape.is_single else {})},
                **({"batch": {"maxBytes": size}} if (size := self.shape.batch_bytes) else {}),
            },
        }

    def _logs_of(self, host: str) -> Path:
        return self.root / "logs" / host

    def _collector(self, name: str) -> Callable[[asyncio.Event], Coroutine[Any, Any, int]]:
        config = collector_config.from_pipeline(
            self._pipeline, member=name, data=self.root / name, nats=NatsOptions(name=name)
        )
        return lambda stop: collector.run(config, stop)

    def _shipper(self, name: str) -> Callable[[asyncio.Event], Coroutine[Any, Any, int]]:
        config = shipper_config.from_pipeline(
            self._pipeline,
            shipper=name,
            data=self.root / "shippers" / name,
            nats=NatsOptions(name=name),
        )
        return lambda stop: shipper.run(config, stop)


def _known(part: Callable[..., P], by_name: dict[str, P]) -> Callable[..., P]:
    """Return what makes a *part* of a process, and notes it by the name of that."""

    def make(*words: Any) -> P:
        made = by_name[PROCESS.get().partition("#")[0]] = part(*words)
        return made

    return make


class _Answers:
    """A connection of the world itself, which asks and takes what comes."""

    inbox = "_INBOX.world.answer"

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def wants(self, subject: str) -> list[int]:
        """Return its subscriptions to *subject*."""
        return [0] if subject == self.inbox else []

    def deliver(self, subscription: int, message: RawMessage) -> None:
        """Take an answer."""
        self.found.append(json.loads(message.data))

    def cut(self, error: Exception) -> None:
        """Nothing cuts it."""
