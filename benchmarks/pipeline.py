"""logpipeline on the same file: nats-server, shipper and collector, each a process of its own, as in production."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from logpipeline.embedded import EmbeddedServer
from processes import stop
from trial import Trial, measure, size_below

START_DEADLINE_S = 30
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
        started: dict[str, subprocess.Popen[bytes]] = {}
        try:
            started["collector"] = _start(folder, "collect", *words, "--member", "collector-0")
            started["shipper"] = _start(folder, "ship", *words)
            for name in started:
                _await_ready(folder, {"collector": "collect", "shipper": "ship"}[name])
            pids = {name: process.pid for name, process in started.items()}
            pids["nats-server"] = server.pid
            return measure(
                source=source,
                lines=lines,
                place=folder / "in" / "bench.log",
                arrived=lambda: size_below(folder / "collect" / "logs"),
                pids=pids,
            )
        finally:
            for process in started.values():
                stop(process)


def _command(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "logpipeline_cli", *words], check=True, timeout=60)


def _start(folder: Path, command: str, *words: str) -> subprocess.Popen[bytes]:
    data = folder / command
    data.mkdir()
    http = f"unix-port:{data / 'port'}"
    log = (data / "log").open("wb")
    return subprocess.Popen(
        [sys.executable, "-m", "logpipeline_cli", command, *words, "--data", str(data), "--http", http],
        stdout=log,
        stderr=log,
    )
