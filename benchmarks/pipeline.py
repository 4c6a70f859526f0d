"""logpipeline on the same file: nats-server, shipper and collector, each in its own process.

The server is one without logins, or a managed one with the operator's configuration: each role is a
user with few rights, and uses TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from components.managed_server import managed
from logpipeline.embedded import EmbeddedServer
from logpipeline.group.assignment import ensure_assigned
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.ports import LOOPBACK, free_port
from logpipeline.spec import LogPipeline, parse
from logpipeline_operator.children import config, credentials, nats_tls
from processes import stop
from trial import Trial, measure, size_below

START_DEADLINE_S = 30
MEMBER = "collector-0"
# What a certificate can name of this machine.
HERE = "localhost"
RESOURCE = """
apiVersion: logpipeline.dev/v1alpha1
kind: LogPipeline
metadata: {{name: bench}}
spec:
  subject: logs
  partitions: {partitions}
  batch: {{compression: {compression}}}
  collectors: {{rotation: {{maxBytes: 100Gi, maxAge: 1d}}}}
  local:
    shippers:
    - name: bench
      host: bench
      files: [{{include: ["{folder}/in/*.log"]}}]
"""


@dataclass(frozen=True, slots=True)
class Server:
    """A running nats-server: its process, the options by which commands of each role find it, and
    how to log in as the operator.
    """

    pid: int
    words: Mapping[str, list[str]]
    operator: NatsOptions


def run(
    folder: Path,
    source: Path,
    lines: int,
    *,
    partitions: int,
    compression: str,
    is_managed: bool = False,
) -> Trial:
    """Move *source* with one shipper and one collector, below the empty *folder*."""
    (folder / "in").mkdir(parents=True)
    text = RESOURCE.format(folder=folder, partitions=partitions, compression=compression)
    pipeline = parse(yaml.safe_load(text))
    serving = _managed(folder, pipeline) if is_managed else _open(folder, pipeline)
    return asyncio.run(_run(folder, source, lines, pipeline, serving))


async def _run(
    folder: Path,
    source: Path,
    lines: int,
    pipeline: LogPipeline,
    serving: AbstractAsyncContextManager[Server],
) -> Trial:
    async with serving as server:
        _command("apply", *server.words[credentials.OPERATOR])
        await _assign(server.operator, pipeline)
        parts: list[Part] = []
        try:
            words = [*server.words[credentials.COLLECTOR], "--member", MEMBER]
            parts.append(Part.start(folder / "collect", "collect", *words))
            words = server.words[credentials.SHIPPER]
            parts.append(Part.start(folder / "ship", "ship", *words))
            for part in parts:
                part.await_ready()
            pids = {part.name: part.process.pid for part in parts}
            pids["nats-server"] = server.pid
            return measure(
                source=source,
                lines=lines,
                place=folder / "in" / "bench.log",
                arrived=lambda: size_below(folder / "collect" / "logs"),
                pids=pids,
            )
        finally:
            for part in parts:
                stop(part.process)


@asynccontextmanager
async def _open(folder: Path, pipeline: LogPipeline) -> AsyncIterator[Server]:
    """Run a server without access control."""
    resource = _written(folder / "bench.yaml", pipeline)
    async with EmbeddedServer(folder / "nats") as server:
        words = ["-f", str(resource), "--nats", server.url]
        roles = (credentials.OPERATOR, credentials.COLLECTOR, credentials.SHIPPER)
        options = NatsOptions(servers=(server.url,))
        yield Server(server.pid, dict.fromkeys(roles, words), options)


@asynccontextmanager
async def _managed(folder: Path, pipeline: LogPipeline) -> AsyncIterator[Server]:
    """Run a server with the operator's configuration, accounts and certificates."""
    wanted = nats_tls.decided(pipeline, began_with_tls=True)
    async with managed(wanted, folder / "nats", has_accounts=True, names=(HERE,)) as server:
        url = server.url.replace(LOOPBACK, HERE)
        words = {}
        for role in (credentials.OPERATOR, credentials.COLLECTOR, credentials.SHIPPER):
            local = replace(
                pipeline.spec.local, nats=credentials.local_nats(wanted, role, server.at(role))
            )
            spec = replace(pipeline.spec, local=local)
            resource = _written(folder / f"{role}.yaml", replace(pipeline, spec=spec))
            words[role] = ["-f", str(resource), "--nats", url]
        yield Server(server.pid, words, server.operator())


def _written(path: Path, pipeline: LogPipeline) -> Path:
    path.write_text(config.render(pipeline))
    return path


async def _assign(options: NatsOptions, pipeline: LogPipeline) -> None:
    connection = Connection(options)
    await connection.start(patience_s=START_DEADLINE_S)
    bucket = Bucket(JetStream(connection), pipeline.names.state_bucket)
    await ensure_assigned(bucket, pipeline, [MEMBER])
    await connection.close()


def _command(*words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "logpipeline_cli", *words],
        check=True,
        timeout=60,
        stdout=subprocess.DEVNULL,
    )


@dataclass(frozen=True, slots=True)
class Part:
    """A running component."""

    name: str
    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @staticmethod
    def start(data: Path, command: str, *words: str) -> Part:
        """Start *command* with the folder *data*."""
        data.mkdir()
        port, log = free_port(), data / "component.log"
        options = ["--data", str(data), "--http", f"127.0.0.1:{port}"]
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "logpipeline_cli", command, *words, *options],
                stdout=file,
                stderr=file,
            )
        return Part({"collect": "collector", "ship": "shipper"}[command], process, port, log)

    def await_ready(self) -> None:
        """Wait until the component reports that it is ready.

        Raises:
            RuntimeError: it ended, or is not ready in time.
        """
        deadline = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < deadline and self.process.poll() is None:
            url = f"http://127.0.0.1:{self.port}/readyz"
            with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2):
                return
            time.sleep(0.05)
        raise RuntimeError(f"the {self.name} is not ready:\n{self.log.read_text()[-2000:]}")
