"""A whole pipeline of real processes with writers and a ledger, to be hurt and then judged.

Whatever a test does to it, the end is the same: `settle` heals, waits until everything that was
written is collected, and asks the oracle.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

import warm
from cluster.busy_hosts import BusyHosts, hosts_of
from components.component import Component
from faults import table
from faults.pipeline_state import PipelineState
from faults.shape import Shape, resource_of
from logpipeline.embedded import EmbeddedServer
from logpipeline.group.assignment import ensure_assigned
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.spec import LogPipeline, load
from logpipeline_demo.expected import Expected
from logpipeline_demo.oracle import check
from logpipeline_demo.verdict import Verdict
from waiting import WITHIN_S, eventually

# When all faults are over, everything written must be collected within this time.
CONVERGE_WITHIN_S = 60.0
EXPLAINED_MAX = 8
LOOK_EVERY_S = 0.15


class PipelineUnderTest:
    """Server, shippers, collectors and writers below *folder*; an asynchronous context manager.

    *urls* gives a component another way to the server than the direct one, such as a proxy;
    *targets* another function that runs its command.
    """

    def __init__(self, folder: Path, shape: Shape) -> None:
        self.folder = folder
        self.shape = shape
        # How often the test hurts it, for the table of all faults.
        self.rounds = 1
        self.urls: dict[str, str] = {}
        self.targets: dict[str, str] = {}
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
            rotate_bytes=shape.rotate_bytes,
            has_banners=shape.has_banners,
        )
        self._connection: Connection | None = None

    async def __aenter__(self) -> Self:
        await self.server.start()
        roots = {name: self.root_of(name) for name in self.shippers}
        self.resource.write_text(yaml.safe_dump(resource_of(self.shape, roots)))
        self.pipeline: LogPipeline = load(self.resource)
        self._connection = Connection(NatsOptions(servers=(self.server.url,), name="test"))
        await self._connection.start(patience_s=WITHIN_S)
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
            print(*(line for line in self.server.log_tail().splitlines() if "[INF]" not in line))
        if self._connection is not None:
            await self._connection.close()
        self.server.kill()

    @property
    def js(self) -> JetStream:
        """The test's own way to the server, never cut."""
        assert self._connection is not None
        return JetStream(self._connection)

    @property
    def state(self) -> PipelineState:
        """What server and state bucket say now."""
        return PipelineState(self.js, self.pipeline)

    @property
    def collectors(self) -> list[str]:
        """The names of all collectors that were ever started."""
        return [name for name in self.components if name not in self.shippers]

    @property
    def server_port(self) -> int:
        """Where the server listens, for a proxy before it."""
        return int(self.server.url.rpartition(":")[2])

    def root_of(self, shipper: str) -> Path:
        """Return the folder whose hosts *shipper* reads."""
        return self.folder / "hosts" / shipper

    def data_of(self, name: str) -> Path:
        """Return the data folder of a component."""
        return self.folder / "data" / name

    async def apply(self) -> None:
        """Make JetStream as the resource says, as a user does."""
        words = ["apply", "-f", str(self.resource), "--nats", self.server.url]
        done = await asyncio.to_thread(warm.run_text, words, timeout_s=WITHIN_S)
        assert done.returncode == 0, done.stdout + done.stderr

    async def status(self) -> dict[str, Any]:
        """Return what `logpipeline status` says now."""
        done = await self._asked("-o", "json")
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    async def problems(self) -> list[str]:
        """Return what `logpipeline status --check` finds now."""
        done = await self._asked("--check", "-o", "json")
        assert done.stdout, done.stderr
        return [str(each) for each in json.loads(done.stdout)["problems"]]

    async def _asked(self, *options: str) -> subprocess.CompletedProcess[str]:
        words = ["status", "-f", str(self.resource), "--nats", self.server.url, *options]
        return await asyncio.to_thread(warm.run_text, words, timeout_s=WITHIN_S)

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
        await ensure_assigned(self.state.bucket, self.pipeline, list(members))
        self.members = list(members)

    async def write(self, lines: int, *, hurried: bool = True) -> None:
        """Return when so many more lines were written, as fast as can be or at the usual pace."""
        enough = self.writers.lines + lines
        with self.writers.hurried() if hurried else nullcontext():
            await eventually(lambda: self.writers.lines >= enough, what=f"{lines} lines")

    async def settle(
        self,
        *,
        within_s: float = CONVERGE_WITHIN_S,
        is_enough: Callable[[Verdict], bool] = lambda verdict: verdict.is_clean,
        reason: str = "",
        **allowed: Any,
    ) -> Verdict:
        """Stop writing, wait until the oracle says that what is collected *is_enough*, stop every
        part, and return the verdict on what they left. *allowed* goes to the oracle, and *reason*,
        why lines had to be lost or to come twice, to the table of all faults.

        Raises:
            AssertionError: it did not converge *within_s*; that is a fault as loss is.
        """
        await asyncio.to_thread(self.writers.close)
        expected = Expected.read(self.writers.ledger_path)
        began_s = time.monotonic()
        deadline = began_s + within_s
        while True:
            await self.quiet(within_s=deadline - time.monotonic())
            seen = await asyncio.to_thread(check, expected, self.outputs(), **allowed)
            if is_enough(seen):
                break
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"not within {within_s} s: {seen.summary()}\n{seen.explain(8)}"
                )
            await asyncio.sleep(LOOK_EVERY_S)
        # What is collected now may still be uncommitted, and could go twice: stop in good order.
        for names in (self.shippers, self.collectors):
            running = [self.components[n] for n in names if self.components[n].is_running]
            await asyncio.gather(*(component.stop() for component in running))
        seconds = time.monotonic() - began_s
        verdict = check(expected, self.outputs(), **allowed)
        counts = (verdict.lines, verdict.lost, verdict.twice, verdict.out_of_order)
        table.settled.append(table.Settled(self.rounds, *counts, seconds, reason))
        return verdict

    def outputs(self) -> list[Path]:
        """Return the folders of every collector that wrote something."""
        found = sorted((self.folder / "data").glob("collector*/logs"))
        return [path.parent for path in found]

    async def until_stored(self) -> None:
        """Return when the server has lines: a new shipper asks what collectors know before it
        begins.
        """

        async def are_there() -> bool:
            return any((await self.state.stored()).values())

        await eventually(are_there, what="the server has lines")

    async def quiet(self, *, within_s: float = CONVERGE_WITHIN_S) -> None:
        """Stop writing, and return when no part has anything left to do, or one that others wait
        for has ended, or *within_s*: then the oracle has the last word.
        """
        await asyncio.to_thread(self.writers.close)
        deadline = time.monotonic() + within_s
        shippers = [self.components[name] for name in self.shippers]
        collectors = [self.components[name] for name in self.members if name in self.components]
        while time.monotonic() < deadline:
            # Its numbers are up to a second old: what was written last may not be in them.
            await asyncio.sleep(LOOK_EVERY_S)
            if not all(component.is_running for component in (*shippers, *collectors)):
                return
            pages = [await shipper.metrics() for shipper in shippers]
            backlog = sum(page.get("backlog_bytes", 1) for page in pages)
            stored, records = await self.state.stored(), await self.state.records()
            committed = {number: record.position.sequence for number, record in records.items()}
            if not backlog and all(committed.get(n, 0) >= last for n, last in stored.items()):
                return

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
            target = self.targets.get(name, warm.COMMAND)
            component = Component(name, [*words, *common], log, target=target)
            self.components[name] = component
        component.start(**environment)
        return component
