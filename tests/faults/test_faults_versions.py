"""The server of another version: its program is replaced by a newer one and by an older one, and
each goes on with the store of the one before.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from faults import server_cluster, settings
from faults.pipeline_under_test import PipelineUnderTest
from faults.server_cluster import SERVERS, ServerCluster
from faults.shape import Shape
from go_programs import BUILT_WITHIN_S, built
from logpipeline.embedded import EmbeddedServer, ServerOptions
from logpipeline.server_binary import VERSION_MIN, find_binary
from logpipeline_demo.verdict import Verdict

ROUNDS, ROUNDS_SOAK = 3, 60
ANSWER_WITHIN_S = 10.0
OLDEST = ".".join(map(str, VERSION_MIN))


@pytest.mark.timeout(BUILT_WITHIN_S + 120)
@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_a_server_of_another_version_goes_on_with_the_store(
    tmp_path: Path, seed: int, how: str, say: Callable[[str], None]
) -> None:
    """The oldest that is taken and the one that comes with us, in turn, while lines are written."""
    oldest, ours = Path(built("nats-server")), find_binary()
    rounds = ROUNDS_SOAK if settings.is_soak() else ROUNDS
    shape = Shape(seed=seed, server=ServerOptions(binary=oldest))
    versions = []
    async with PipelineUnderTest(tmp_path, shape) as pipeline:
        server = pipeline.server
        await pipeline.run()
        versions.append(await _version_of(server))
        pipeline.rounds = rounds
        for number in range(rounds):
            await pipeline.write(500)
            if how == "stopped":
                await server.stop()
            else:
                server.kill()
            await pipeline.write(300)
            server.options = replace(server.options, binary=oldest if number % 2 else ours)
            await server.start()
            versions.append(await _version_of(server))
        await pipeline.write(500)
        began_s = time.monotonic()
        verdict = await pipeline.settle()

    first, second = versions[:2]
    assert first == OLDEST, "go.mod has another one"
    assert first != second
    assert versions == ([first, second] * rounds)[: rounds + 1]
    say(
        f"{how} and replaced, {first} and {second}, {rounds} times: {verdict.summary()}; "
        f"{time.monotonic() - began_s:.0f} s"
    )
    assert verdict.is_clean, verdict.explain()


@pytest.mark.timeout(BUILT_WITHIN_S + 120)
async def test_servers_of_a_cluster_get_another_version_one_by_one(
    tmp_path: Path, seed: int, say: Callable[[str], None]
) -> None:
    """As a rolling update does it: all get the newer one, and then all the older one again, so that
    streams have replicas on servers of both.
    """
    oldest, ours = Path(built("nats-server")), find_binary()
    with ServerCluster(tmp_path / "nats") as servers:
        servers.binaries = dict.fromkeys(range(SERVERS), oldest)
        pipeline = server_cluster.replicated(tmp_path, seed, servers)
        verdict = await _updated(pipeline, servers, [ours, oldest])
        log = servers.log_of(0).read_text(errors="replace")

    versions = re.findall(r"\[INF\] +Version: +(\S+)", log)
    assert versions[0::2] == [OLDEST] * 2
    assert OLDEST not in versions[1::2]
    say(f"a cluster updated and downgraded: {verdict.summary()}")
    assert verdict.is_clean, verdict.explain()


async def _updated(
    pipeline: PipelineUnderTest, servers: ServerCluster, binaries: list[Path]
) -> Verdict:
    """Run *pipeline* while all its servers get each of *binaries*, one server at a time."""
    async with pipeline:
        await server_cluster.run(pipeline)
        pipeline.rounds = len(binaries) * SERVERS
        for binary in binaries:
            for number in range(SERVERS):
                await pipeline.write(200)
                await servers.stop_one(number)
                servers.binaries[number] = binary
                await pipeline.write(200)
                servers.start_one(number)
        await pipeline.write(300)
        return await pipeline.settle()


async def _version_of(server: EmbeddedServer) -> str:
    def ask() -> str:
        with urllib.request.urlopen(f"{server.monitor_url}/varz", timeout=ANSWER_WITHIN_S) as page:
            return str(json.load(page)["version"])

    return await asyncio.to_thread(ask)
