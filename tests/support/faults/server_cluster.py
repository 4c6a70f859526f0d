"""Three nats-servers that are one JetStream cluster, in the place of the one server of a pipeline
under test.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any, Self

from faults.pipeline_under_test import PipelineUnderTest
from faults.shape import Shape
from logpipeline.nats.connection import Connection, NatsOptions, NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.server_binary import find_binary
from ports import free_port
from waiting import eventually

SERVERS = 3
# Each is a client of another server.
PARTS = ("shipper-0", "collector-0", "collector-1")
REPLICATED: dict[str, Any] = {"stream": {"replicas": SERVERS}}
# Streams reserve their greatest size: no test depends on how much disk is free.
STORE_BYTES = 1 << 40
READY_WITHIN_S = 60.0
# As long as kubelet's own grace.
STOPS_WITHIN_S = 30.0


class ServerCluster:
    """The servers, each with a folder below *folder*; clients of `url` begin at the first. It is
    a context manager that ends them all.

    *binaries* gives a server another program than the usual one, from its next start on.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.binaries: dict[int, Path] = {}
        self._ports = [free_port() for _ in range(SERVERS)]
        self._routes = [free_port() for _ in range(SERVERS)]
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        """The address of the first server."""
        return self.url_of(0)

    def url_of(self, number: int) -> str:
        """Return the address of one server."""
        return f"nats://127.0.0.1:{self._ports[number]}"

    async def start(self) -> None:
        """Start all, and return when a stream with replicas can be written to."""
        for number in range(SERVERS):
            self.start_one(number)
        connection = Connection(NatsOptions(servers=(self.url,), name="test"))
        await connection.start()
        try:
            await eventually(
                lambda: _stores(connection), within_s=READY_WITHIN_S, what="the servers store"
            )
        finally:
            await connection.close()

    def store_of(self, number: int) -> Path:
        """Return the folder in which one server keeps its streams."""
        return self.folder / f"server-{number}" / "store"

    def keepers_of(self, stream: str) -> set[str]:
        """Return the names of the servers that have a copy of *stream* on their disk."""
        below = Path("jetstream", "$G", "streams", stream)
        servers = range(SERVERS)
        return {f"server-{each}" for each in servers if (self.store_of(each) / below).exists()}

    def log_of(self, number: int) -> Path:
        """Return the file that one server logs to."""
        return self.folder / f"server-{number}" / "server.log"

    def start_one(self, number: int) -> None:
        """Start one server, with its former store."""
        folder = self.folder / f"server-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        config = {
            "server_name": f"server-{number}",
            "server_tags": [f"server-{number}"],
            "listen": f"127.0.0.1:{self._ports[number]}",
            "jetstream": {
                "store_dir": str(self.store_of(number)),
                "max_file_store": STORE_BYTES,
            },
            "cluster": {
                "name": "faults",
                "listen": f"127.0.0.1:{self._routes[number]}",
                "routes": [f"nats-route://127.0.0.1:{port}" for port in self._routes],
            },
        }
        path = folder / "server.conf"
        path.write_text(json.dumps(config))
        with self.log_of(number).open("ab") as log:
            binary = self.binaries.get(number) or find_binary()
            self._running[number] = subprocess.Popen([binary, "-c", path], stdout=log, stderr=log)

    def kill_one(self, number: int) -> None:
        """End one server at once."""
        process = self._running.pop(number)
        process.kill()
        process.wait()

    async def stop_one(self, number: int) -> None:
        """End one server in good order, as a rolling restart does. One that has not ended after
        `STOPS_WITHIN_S` is killed, as kubelet kills it.
        """
        process = self._running[number]
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(process.wait, STOPS_WITHIN_S)
        self.kill_one(number)

    def freeze_one(self, number: int) -> None:
        """Stop one server from running; its connections stay."""
        os.kill(self._running[number].pid, signal.SIGSTOP)

    def thaw_one(self, number: int) -> None:
        """Let it go on."""
        os.kill(self._running[number].pid, signal.SIGCONT)

    def kill(self) -> None:
        """End all."""
        for number in list(self._running):
            self.kill_one(number)

    def log_tail(self) -> str:
        """Return the end of each server's log."""
        logs = [self.log_of(number) for number in range(SERVERS)]
        return "\n".join(log.read_text(errors="replace")[-3000:] for log in logs)


def replicated(folder: Path, seed: int, servers: ServerCluster) -> PipelineUnderTest:
    """Return a pipeline whose streams have a replica on each of *servers*."""
    return _on(servers, PipelineUnderTest(folder, Shape(seed=seed, spec=REPLICATED)))


def spread(folder: Path, seed: int, servers: ServerCluster) -> PipelineUnderTest:
    """Return a pipeline each of whose streams is on one of *servers* alone."""
    return _on(servers, PipelineUnderTest(folder, Shape(seed=seed)))


def _on(servers: ServerCluster, pipeline: PipelineUnderTest) -> PipelineUnderTest:
    pipeline.server = servers  # type: ignore[assignment]  # it has what the pipeline uses of one
    pipeline.urls.update({name: servers.url_of(number) for number, name in enumerate(PARTS)})
    return pipeline


async def run(pipeline: PipelineUnderTest) -> None:
    """Start all parts of *pipeline*, once its streams, which were just made, have leaders."""
    await eventually(
        lambda: _is_writable(pipeline), within_s=READY_WITHIN_S, what="the streams have leaders"
    )
    await pipeline.run()


async def _is_writable(pipeline: PipelineUnderTest) -> bool:
    names = pipeline.pipeline.names
    streams = [names.stream(number) for number in range(pipeline.shape.partitions)]
    for stream in (*streams, pipeline.state.bucket.stream):
        try:
            info = await pipeline.js.stream_info(stream)
        except (ApiError, NotSent, OutcomeUnknown):
            return False
        if info is None or not info["cluster"].get("leader"):
            return False
    return True


async def _stores(connection: Connection) -> bool:
    """Return whether a stream with replicas can be made and written to."""
    js = JetStream(connection)
    config = {"name": "READY", "subjects": ["ready"], "num_replicas": SERVERS}
    try:
        await js.call(f"STREAM.CREATE.{config['name']}", config)
        await js.publish("ready", b"")
        await js.call(f"STREAM.DELETE.{config['name']}")
    except (ApiError, NotSent, OutcomeUnknown):
        return False
    return True
