"""A whole pipeline of real processes with writers and a ledger, to be hurt and then judged.

Whatever a test does to it, the end is the same: `settle` heals, waits until everything that was
written is archived, and asks the oracle.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from busy_hosts import BusyHosts, hosts_of
from component import Component
from logpipeline.embedded import EmbeddedServer, ServerOptions
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.spec import LogPipeline, load
from logpipeline_cli.local.assigner import ensure_assigned
from logpipeline_demo.expected import Expected
from logpipeline_demo.oracle import check
from logpipeline_demo.verdict import Verdict
from waiting import eventually

PARTITIONS = 4
HOSTS_PER_SHIPPER = 5
TAKEOVER_AFTER_S = 1
CONNECT_PATIENCE_S = 10
# When all faults are over, everything written must be archived within this time.
CONVERGE_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How the pipeline under test looks; *spec* is merged over its resource's spec."""

    seed: int
    shippers: int = 1
    collectors: int = 2
    partitions: int = PARTITIONS
    hosts_per_shipper: int = HOSTS_PER_SHIPPER
    lines_per_second: float = 1200
    server: ServerOptions = field(default_factory=ServerOptions)
    spec: dict[str, Any] = field(default_factory=dict)


class PipelineUnderTest:
    """Server, shippers, collectors and writers below *folder*; an asynchronous context manager.

    *urls* gives a component another way to the server than the direct one, such as a proxy.
    """

    def __init__(self, folder: Path, shape: Shape) -> None:
        self.folder = folder
        self.shape = shape
        self.urls: dict[str, str] = {}
        self.server = EmbeddedServer(folder / "nats", shape.server)
        self.resource = folder / "pipeline.yaml"
        self.shippers = [f"shipper-{number}" for number in range(shape.shippers)]
        self.components: dict[str, Component] = {}
        self.members: list[str] = []
        self.writers = BusyHosts(
            {
                self.root_of(name): hosts_of(
                    shape.hosts_per_shipper,
                    seed=shape.seed * 100 + number,
                    partitions=shape.partitions,
                )
                for number, name in enumerate(self.shippers)
            },
            folder / "ledger",
            seed=shape.seed,
            lines_per_second=shape.lines_per_second,
        )
        self._connection: Connection | None = None

    async def __aenter__(self) -> Self:
        print(f"seed: {self.shape.seed} (again with SEED={self.shape.seed})")
        await self.server.start()
        self.resource.write_text(yaml.safe_dump(self._resource()))
        self.pipeline: LogPipeline = load(self.resource)
        self._connection = Connection(NatsOptions(servers=(self.server.url,), name="test"))
        await self._connection.start(patience_s=CONNECT_PATIENCE_S)
        await self.apply()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.writers.close()
        for component in self.components.values():
            component.kill()
        if kind is not None:
            for component in self.components.values():
                print(component.log_tail())
            print(self.server.log_tail())
        if self._connection is not None:
            await self._connection.close()
        self.server.kill()

    @property
    def js(self) -> JetStream:
        """The test's own way to the server, never cut."""
        assert self._connection is not None
        return JetStream(self._connection)

    @property
    def bucket(self) -> Bucket:
        """The state of the pipeline."""
        return Bucket(self.js, self.pipeline.names.state_bucket)

    @property
    def group(self) -> str:
        """The group of our collectors."""
        return self.pipeline.spec.collectors.group

    @property
    def collectors(self) -> list[str]:
        """The names of all collectors that were ever started."""
        return [name for name in self.components if name not in self.shippers]

    def root_of(self, shipper: str) -> Path:
        """Return the folder whose hosts *shipper* reads."""
        return self.folder / "hosts" / shipper

    def data_of(self, name: str) -> Path:
        """Return the data folder of a component."""
        return self.folder / "data" / name

    async def apply(self) -> None:
        """Make JetStream as the resource says, as a user does."""
        words = ["apply", "-f", str(self.resource), "--nats", self.server.url]
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "logpipeline_cli", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    async def run(self) -> None:
        """Start everything, and return when lines flow."""
        for number in range(self.shape.collectors):
            self.start_collector(f"collector-{number}")
        await self.assign([f"collector-{number}" for number in range(self.shape.collectors)])
        for name in self.shippers:
            self.start_shipper(name)
        self.writers.start()
        await asyncio.gather(*(component.ready() for component in self.components.values()))

    def start_shipper(self, name: str, **environment: str) -> Component:
        """Start the shipper *name*, or start it again."""
        words = ["ship", "--name", name]
        return self._start(name, words, self.data_of(name), environment)

    def start_collector(
        self, member: str, *, name: str = "", data: Path | None = None, **environment: str
    ) -> Component:
        """Start the collector *member*, or start it again; another *name* and *data* make a
        second process of the same member.
        """
        name = name or member
        words = ["collect", "--member", member]
        return self._start(name, words, data or self.data_of(name), environment)

    async def assign(self, members: Sequence[str]) -> None:
        """Share the partitions among *members*."""
        await ensure_assigned(
            self.bucket, self.group, list(members), partitions=self.shape.partitions
        )
        self.members = list(members)

    async def settle(
        self,
        *,
        within_s: float = CONVERGE_WITHIN_S,
        outputs: Sequence[Path] | None = None,
        **allowed: Any,
    ) -> Verdict:
        """Stop writing, wait until everything written is archived, stop the collectors, and
        return the oracle's verdict on what they left. *allowed* goes to the oracle.

        Raises:
            AssertionError: it did not converge *within_s*; that is a fault as loss is.
        """
        await asyncio.to_thread(self.writers.close)
        expected = Expected.read(self.writers.ledger_path)
        folders = outputs if outputs is not None else self.outputs()

        async def is_archived() -> bool:
            seen = await asyncio.to_thread(check, expected, folders, **allowed)
            if seen.lost:
                raise AssertionError(f"{seen.summary()}\n{seen.explain(5)}")
            return True

        await eventually(is_archived, within_s=within_s, what="everything written is archived")
        # What is archived now may still be uncommitted, and could go twice: stop in good order.
        for name in [*self.shippers, *self.collectors]:
            if self.components[name].is_running:
                await self.components[name].stop()
        return check(expected, folders, **allowed)

    def outputs(self) -> list[Path]:
        """Return the folders of every collector that wrote something."""
        found = sorted((self.folder / "data").glob("collector*/logs"))
        return [path.parent for path in found]

    async def copy_store(self, target: Path) -> None:
        """Keep what the server's store holds now, as a snapshot of its disk would."""
        self.server.suspend()
        try:
            await asyncio.to_thread(shutil.copytree, self.server.store, target)
        finally:
            self.server.resume()

    def put_store_back(self, source: Path) -> None:
        """Give the server, which is down, the older store that `copy_store` kept."""
        assert not self.server.is_running
        shutil.rmtree(self.server.store)
        shutil.copytree(source, self.server.store)

    def _start(
        self, name: str, words: list[str], data: Path, environment: dict[str, str]
    ) -> Component:
        component = self.components.get(name)
        if component is None:
            url = self.urls.get(name, self.server.url)
            common = ["-f", str(self.resource), "--nats", url, "--data", str(data)]
            log = self.folder / "logs" / f"{name}.log"
            component = self.components[name] = Component(name, [*words, *common], log)
        component.start(**environment)
        return component

    def _resource(self) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "subject": "logs",
            "partitions": self.shape.partitions,
            "stream": {"maxBytes": "256Mi"},
            "collectors": {
                "replicas": max(self.shape.collectors, 1),
                "takeoverAfter": f"{TAKEOVER_AFTER_S}s",
                "snapshotEvery": "1s",
                # So small that rotation and compression happen while things die.
                "rotation": {"maxBytes": "64Ki"},
            },
            "shippers": {"rescan": "500ms"},
            "local": {
                "shippers": [
                    {"name": name, "hostsBelow": str(self.root_of(name))} for name in self.shippers
                ]
            },
        }
        return {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": "faults", "namespace": "test"},
            "spec": merged(spec, self.shape.spec),
        }


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return *base* with the values of *over*, folder by folder."""
    result = dict(base)
    for key, value in over.items():
        inner = result.get(key)
        both = isinstance(inner, dict) and isinstance(value, dict)
        result[key] = merged(inner, value) if both else value  # type: ignore[arg-type]
    return result
