"""What the server can do to a pipeline: lose answers, be away, forget, and run out of disk."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.nemesis import SERVER, Nemesis
from faults.pipeline_under_test import PipelineUnderTest
from faults.proxy import Proxy
from faults.shape import Shape
from faults.small_disk import small_disk
from logpipeline.embedded import ServerOptions
from logpipeline_demo.lines import SourceKey
from waiting import eventually

SHIPPER = "shipper-0"
SENT_AGAIN_WITHIN_S = 60.0
# Shorter than any outage here, so that the server recognises nothing that is sent again: what
# ten minutes do to the default of two minutes.
SHORT_WINDOW = {"stream": {"duplicateWindow": "1s"}}
OUTAGE_S = 5.0
# Which hosts write on, fall silent, or wrote nothing that the server could lose.
BUSY, QUIET, UNTOUCHED = 0, 1, 2
DISK_BYTES = 64 * 1024 * 1024
# The server would take what is free for its limit, and refuse our streams; it is to hit the wall.
UNLIMITED = ServerOptions(max_file_store_bytes=1 << 40)


@pytest.mark.parametrize("spec", [{}, SHORT_WINDOW], ids=["server-dedupes", "collectors-dedupe"])
async def test_lost_answers_are_unknown_outcomes_not_losses(
    tmp_path: Path, seed: int, spec: dict[str, dict[str, str]]
) -> None:
    """Only the way back is cut: everything arrives, nothing is known, all is sent again, and each
    line is collected once.
    """
    pipeline = PipelineUnderTest(tmp_path, Shape(seed=seed, spec=spec))
    async with pipeline:
        with Proxy(pipeline.server_port) as proxy:
            pipeline.urls[SHIPPER] = proxy.url
            await pipeline.run()
            await pipeline.write(1000)
            shipper = pipeline.components[SHIPPER]
            before = (await shipper.metrics()).get("resends_total", 0)
            proxy.cut_answers()
            await pipeline.write(1000)

            async def is_sent_again() -> bool:
                return (await shipper.metrics()).get("resends_total", 0) > before

            await eventually(is_sent_again, within_s=SENT_AGAIN_WITHIN_S, what="sent again")
            proxy.heal()
            await pipeline.write(1000)
            verdict = await pipeline.settle()

    assert verdict.is_clean, verdict.explain()


@pytest.mark.smoke
async def test_a_server_gone_for_longer_than_it_remembers_ids(tmp_path: Path, seed: int) -> None:
    """What was in flight when it died is sent again after its window: collectors cut it."""
    async with PipelineUnderTest(tmp_path, Shape(seed=seed, spec=SHORT_WINDOW)) as pipeline:
        await pipeline.run()
        await pipeline.write(100)
        await pipeline.until_stored()
        nemesis = Nemesis(pipeline, random.Random(seed))
        for _ in range(2):
            await pipeline.write(1000)
            stake = await nemesis.kill(SERVER)
            assert stake.unacknowledged_bytes, "nothing was at stake"
            # The time itself is the fault: it has to pass.
            await asyncio.sleep(OUTAGE_S)
            await pipeline.server.start()
        await pipeline.write(1000)
        verdict = await pipeline.settle()

    assert verdict.is_clean, verdict.explain()


@pytest.mark.parametrize("collectors", ["killed", "frozen"])
async def test_a_store_put_back_to_an_older_copy_is_healed_from_the_files(
    tmp_path: Path, seed: int, collectors: str, say: Callable[[str], None]
) -> None:
    """The server lost acknowledged and committed messages, and used their sequences again before
    any collector looked: nothing is skipped, and what the files hold arrives again, once. Only
    sources that lost something may have lines out of order.
    """
    shape = Shape(seed=seed, shippers=3)
    async with PipelineUnderTest(tmp_path / "pipeline", shape) as pipeline:
        await pipeline.run()
        await pipeline.write(2000)
        pipeline.writers.resting = {UNTOUCHED}
        await pipeline.write(1000)
        await pipeline.state.committed()
        await pipeline.copy_store(tmp_path / "copy")
        await pipeline.write(1000)
        reached = await pipeline.state.stored()
        await pipeline.state.committed(at_least=reached)
        for name in pipeline.members:
            component = pipeline.components[name]
            component.kill() if collectors == "killed" else component.freeze()
        # Acknowledged, and lost before anybody read it: only the files still have it.
        await pipeline.write(1000)
        # Some hosts are quiet from now on: no later line tells what they have lost.
        pipeline.writers.resting = {QUIET, UNTOUCHED}
        pipeline.server.kill()
        pipeline.put_store_back(tmp_path / "copy")
        await pipeline.server.start()

        async def are_reused() -> bool:
            now = await pipeline.state.stored()
            return all(now[number] > last for number, last in reached.items())

        await eventually(are_reused, within_s=60, what="sequences are used again")
        for name in pipeline.members:
            component = pipeline.components[name]
            component.start() if collectors == "killed" else component.thaw()
        pipeline.writers.resting = {QUIET}
        await pipeline.write(1500)
        affected = [*_keys(pipeline, BUSY), *_keys(pipeline, QUIET)]
        verdict = await pipeline.settle(allow_late=affected)

    say(f"{verdict.summary()}; {verdict.late} late, sent again after the server lost them")
    assert verdict.is_clean, verdict.explain()


async def test_a_server_out_of_disk_stops_and_loses_nothing(tmp_path: Path, seed: int) -> None:
    """Publishing stops while its disk is full; with room, and after a restart, all goes on."""
    shape = Shape(seed=seed, server=UNLIMITED)
    with small_disk(tmp_path / "nats", size_bytes=DISK_BYTES) as disk:
        async with PipelineUnderTest(tmp_path, shape) as pipeline:
            await pipeline.run()
            await pipeline.write(1500)
            disk.fill()
            shipper = pipeline.components[SHIPPER]

            async def is_behind() -> bool:
                return (await shipper.metrics()).get("backlog_bytes", 0) > DISK_BYTES / 512

            await eventually(is_behind, within_s=60, what="the shipper waits")
            disk.free()
            pipeline.server.kill()
            await pipeline.server.start()
            await pipeline.write(1000)
            verdict = await pipeline.settle()

    assert verdict.is_clean, verdict.explain()


def _keys(pipeline: PipelineUnderTest, application: int) -> list[SourceKey]:
    """Return the sources of the hosts of one shipper."""
    root = pipeline.root_of(pipeline.shippers[application])
    hosts = {path.name for path in root.iterdir()}
    return [source.key for source in pipeline.writers.sources if source.key.host in hosts]
