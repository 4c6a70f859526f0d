"""A collector of several workers looks like one: one page, one exit code, one member."""

from __future__ import annotations

import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from component import Component
from logpipeline.assignment import ensure_assigned
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.spec import load
from pipeline_state import PipelineState
from pipeline_up import run_command
from waiting import eventually
from worker_processes import workers_of

MEMBER = "collector-0"
ENDS_WITHIN_S = 60.0
PAGE_WITHIN_S = 8.0
RESOURCE = {
    "apiVersion": "logpipeline.dev/v1alpha1",
    "kind": "LogPipeline",
    "metadata": {"name": "workers"},
    "spec": {
        "subject": "logs",
        "partitions": 4,
        "collectors": {"workers": 2, "takeoverAfter": "1s"},
    },
}


@dataclass
class Made:
    """A collector that is not started yet, in a pipeline that is there."""

    collector: Component
    state: PipelineState
    data: Path


@asynccontextmanager
async def made(server: EmbeddedServer, folder: Path, *words: str) -> AsyncIterator[Made]:
    """Make the pipeline, share its partitions out, and kill the collector at the end."""
    file, data = folder / "workers.yaml", folder / "data"
    file.write_text(yaml.safe_dump(RESOURCE))
    common = ["-f", str(file), "--nats", server.url]
    assert (await run_command("apply", *common)).returncode == 0
    connection = Connection(NatsOptions(servers=(server.url,), name="test"))
    await connection.start(patience_s=10)
    state = PipelineState(JetStream(connection), load(file))
    await ensure_assigned(state.bucket, load(file), [MEMBER])
    options = ["collect", *common, "--member", MEMBER, "--data", str(data), *words]
    collector = Component(MEMBER, options, folder / "collector.log")
    try:
        yield Made(collector, state, data)
    finally:
        collector.kill()
        await connection.close()


def page(collector: Component, path: str) -> tuple[int, str]:
    """Return status and text of a page of *collector*."""
    url = f"http://127.0.0.1:{collector.port}{path}"
    try:
        with urllib.request.urlopen(url, timeout=PAGE_WITHIN_S) as answer:
            return int(answer.status), str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def test_one_page_speaks_for_all_workers(nats_server: EmbeddedServer, tmp_path: Path) -> None:
    """Ready when all are, with the numbers of each; one that stands still is named."""
    async with made(nats_server, tmp_path) as here:
        collector = here.collector
        collector.start()
        await collector.ready()
        await here.state.owned([MEMBER])
        numbers = page(collector, "/metrics")[1]
        frozen = workers_of(collector.pid)[1]
        os.kill(frozen, signal.SIGSTOP)
        stuck = page(collector, "/readyz"), page(collector, "/healthz")
        os.kill(frozen, signal.SIGCONT)
        await collector.ready()

    owned = set(re.findall(r'_collector_epoch\{worker="(\d)",partition="(\d)"\}', numbers))
    assert owned == {("0", "0"), ("0", "1"), ("1", "2"), ("1", "3")}
    assert "logpipeline_collector_workers 2.0" in numbers
    assert stuck == ((503, "worker 1: does not answer\n"),) * 2


async def test_a_collector_that_is_asked_to_stop_releases_what_its_workers_have(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """With the exit code of an orderly end."""
    async with made(nats_server, tmp_path) as here:
        here.collector.start()
        await here.state.owned([MEMBER])
        code = await here.collector.stop()
        owners = await here.state.owners()

    assert (code, owners) == (0, {})


async def test_a_worker_that_cannot_work_ends_its_collector(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """After some tries, with the exit code that one process would have had, and its last words."""
    async with made(nats_server, tmp_path) as here:
        state = here.data / "state" / "main"
        state.mkdir(parents=True)
        (state / "p3.sqlite").write_bytes(b"this is no database" * 100)
        here.collector.start()
        code = await here.collector.wait(ENDS_WITHIN_S)

    assert code == 1
    assert "p3.sqlite cannot be used" in here.collector.log_tail()
    assert "ended again and again" in here.collector.log_tail()


async def test_there_are_never_more_workers_than_partitions(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Whatever the command says; too many are refused."""
    async with made(nats_server, tmp_path, "--workers", "9") as here:
        here.collector.start()
        await here.state.owned([MEMBER])
        await eventually(lambda: len(workers_of(here.collector.pid)) == 4)
    refused = await run_command(
        "collect", "-f", str(tmp_path / "workers.yaml"), "--nats", "nats://127.0.0.1:1",
        "--member", MEMBER, "--workers", "65",
    )  # fmt: skip

    assert refused.returncode == 1
    assert "--workers 65: give at most 64" in refused.stderr
