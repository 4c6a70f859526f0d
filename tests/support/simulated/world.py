"""A pipeline in a simulated world: shippers and collectors as they are, and all else simulated."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TextIO

import yaml

from logpipeline.nats.options import NatsOptions
from logpipeline.plan.desired import desired
from logpipeline.records import assign, assignment_key
from logpipeline.spec.parse import load
from logpipeline.subjects import key_value_subject
from logpipeline_collector import config as collector_config
from logpipeline_collector import service as collector
from logpipeline_shipper import config as shipper_config
from logpipeline_shipper import service as shipper
from simulated import clock
from simulated.disk import Disk
from simulated.loop import VirtualLoop
from simulated.network import Network
from simulated.server import Server
from simulated.writers import Writer

# When all faults are over, everything is to be in its place so long after.
SETTLE_S = 240.0


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a world is, and how long it lasts."""

    seed: int
    hours: float
    hosts: int = 3
    logs: int = 3
    partitions: int = 4
    collectors: int = 2
    # Seconds between two writes to a log, on average.
    pause_s: float = 20.0


@dataclass(slots=True)
class Process:
    """A process that is to run: how it is started, and what asks it to end."""

    start: Callable[[asyncio.Event], Coroutine[Any, Any, int]]
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[int] | None = None
    restarts: int = 0


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
        self.writers: list[Writer] = []
        self._generation = 0
        # Whether the server lost messages that it had acknowledged.
        self.has_lost_tails = False
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
    def end_s(self) -> float:
        """When nothing is written any more."""
        return self.shape.hours * 3600

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
        return [self.root / name for name in self.collectors if (self.root / name).is_dir()]

    def stream_names(self) -> list[str]:
        """Return the names of the streams of lines."""
        return [self._names.stream(number) for number in range(self.shape.partitions)]

    # -- what happens to it

    def assign(self, members: list[str]) -> None:
        """Share the partitions among *members*, as the operator does."""
        self._generation += 1
        group = self._pipeline.spec.collectors.group
        wanted = assign(
            members, partitions=self.shape.partitions, generation=self._generation
        ).encode()
        bucket = self._names.state_bucket
        self.server.receive(key_value_subject(bucket, assignment_key(group)), "", None, wanted)

    def start(self, name: str) -> None:
        """Start the process *name*, or start it again."""
        process = self.processes[name]
        process.stop = asyncio.Event()
        process.task = self.loop.spawn(name, process.start(process.stop))

    def kill(self, name: str) -> None:
        """End the process *name* as `kill -9` does."""
        pid = self.loop.pid_of(name)
        self.loop.kill(name)
        self.network.forget(pid)
        self.disk.close_all(pid)
        self.processes[name].restarts += 1

    async def run(self, nemesis: Coroutine[Any, Any, None]) -> None:
        """Live until everything that was written should have arrived."""
        for name in self.processes:
            self.start(name)
        writing = [asyncio.create_task(writer.run()) for writer in self.writers]
        trouble = asyncio.create_task(nemesis)
        await asyncio.gather(*writing)
        await trouble
        await asyncio.sleep(SETTLE_S)
        for names in (self.hosts, self.collectors):
            for name in names:
                self.processes[name].stop.set()
            await asyncio.gather(*(self._ended(name) for name in names))

    async def _ended(self, name: str) -> None:
        task = self.processes[name].task
        assert task is not None
        code = await task
        assert code == 0, f"{name} ended with {code}"

    # -- how it is made

    def _make(self) -> None:
        clock.install(self.loop, self.shape.seed)
        self.network.install()
        self.disk.install()
        asyncio.set_event_loop(self.loop)
        resource = self.root / "pipeline.yaml"
        resource.write_text(yaml.safe_dump(self._resource()))
        self._pipeline = load(resource)
        self._names = self._pipeline.names
        for stream in desired(self._pipeline).streams:
            self.server.add(stream.config)
        self.assign(self.collectors)
        for name in self.collectors:
            self.processes[name] = Process(self._collector(name))
        for host in self.hosts:
            self.processes[host] = Process(self._shipper(host))
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
                    "replicas": self.shape.collectors,
                    # Most of what a quiet world does is to look whether there is something to do.
                    "commit": {"interval": "1s"},
                },
                "local": {"shippers": shippers},
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
