"""logpipeline on the same file: nats-server, shipper and collector, each a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from logpipeline.assigning import ensure_assigned
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.spec import LogPipeline, load
from logpipeline_cli.local.ports import free_port
from processes import stop
from trial import Trial, measure, size_below

START_DEADLINE_S = 30
MEMBER = "collector-0"
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


def run(folder: Path, source: Path, lines: int, *, partitions: int, compression: str) -> Trial:
    """Move *source* with one shipper and one collector, below the empty *folder*."""
    return asyncio.run(_run(folder, source, lines, partitions=partitions, compression=compression))


async def _run(
    folder: Path, source: Path, lines: int, *, partitions: int, compression: str
) -> Trial:
    (folder / "in").mkdir(parents=True)
    resource = folder / "bench.yaml"
    resource.write_text(
        RESOURCE.format(folder=folder, partitions=partitions, compression=compression)
    )
    async with EmbeddedServer(folder / "nats") as server:
        words = ["-f", str(resource), "--nats", server.url]
        _command("apply", *words)
        await _assign(server.url, load(resource))
        parts: list[Part] = []
        try:
            parts.append(Part.start(folder / "collect", "collect", *words, "--member", MEMBER))
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


async def _assign(url: str, pipeline: LogPipeline) -> None:
    connection = Connection(NatsOptions(servers=(url,)))
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
        """Return when the component says that it is ready.

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
