"""Workers of one collector that die, their collector that dies, and another number of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import yaml

import fault_settings
from fault_shape import Shape
from pipeline_under_test import PipelineUnderTest
from waiting import eventually
from worker_processes import is_gone, kill, workers_of

COLLECTOR = "collector-0"
PARTITIONS = 6
WORKERS = 3
KILLS = max(6, fault_settings.rounds() // 8)
STARTED_WITHIN_S = 30.0


def shape_of(seed: int, *, collectors: int = 1, workers: int = WORKERS) -> Shape:
    """Return a pipeline whose collectors have so many *workers*."""
    spec = {"collectors": {"workers": workers}}
    return Shape(seed=seed, collectors=collectors, partitions=PARTITIONS, spec=spec)


async def until_started(pipeline: PipelineUnderTest, name: str, count: int) -> dict[int, int]:
    """Return the processes of the workers of *name* once there are *count* of them."""
    pid = pipeline.components[name].pid
    await eventually(
        lambda: len(workers_of(pid)) == count, within_s=STARTED_WITHIN_S, what=f"{count} workers"
    )
    return workers_of(pid)


async def until_gone(pids: Iterable[int]) -> None:
    """Return when none of *pids* runs any more."""
    await eventually(lambda: all(map(is_gone, pids)), what="the workers are gone")


@pytest.mark.timeout(120 + 10 * KILLS)
async def test_workers_that_are_killed_lose_and_repeat_no_line(
    tmp_path: Path, say: Callable[[str], None], seed: int
) -> None:
    """Each kill ends one process; the collector and its other workers go on, and in the end each
    line is archived once, in order.
    """
    dice = random.Random(seed)
    async with PipelineUnderTest(tmp_path, shape_of(seed)) as pipeline:
        await pipeline.run()
        collector = pipeline.components[COLLECTOR]
        for _ in range(KILLS):
            before = await until_started(pipeline, COLLECTOR, WORKERS)
            victim = dice.choice(sorted(before))
            kill(before[victim])
            await pipeline.write(dice.randrange(50, 400))
            after = await until_started(pipeline, COLLECTOR, WORKERS)
            assert {n for n in before if before[n] != after[n]} == {victim}
            await collector.ready()
        starts = collector.starts
        verdict = await pipeline.settle()

    say(f"{KILLS} workers killed; {verdict.summary()}")
    assert starts == 1
    assert verdict.is_clean, verdict.explain()


@pytest.mark.timeout(150)
async def test_workers_end_with_their_collector(tmp_path: Path, seed: int) -> None:
    """Killed, it leaves nobody behind who would fight with its successor for the partitions."""
    async with PipelineUnderTest(tmp_path, shape_of(seed)) as pipeline:
        await pipeline.run()
        collector = pipeline.components[COLLECTOR]
        for _ in range(3):
            orphans = await until_started(pipeline, COLLECTOR, WORKERS)
            await pipeline.write(300)
            collector.kill()
            await until_gone(orphans.values())
            collector.start()
            await pipeline.write(300)
            await collector.ready()
        verdict = await pipeline.settle()

    assert verdict.is_clean, verdict.explain()


@pytest.mark.timeout(180)
async def test_another_number_of_workers_moves_partitions_between_processes(
    tmp_path: Path, seed: int
) -> None:
    """One worker, three, two, and none killed in order: what moves in one folder is lost and
    doubled as little as between collectors.
    """
    async with PipelineUnderTest(tmp_path, shape_of(seed, workers=1)) as pipeline:
        await pipeline.run()
        collector = pipeline.components[COLLECTOR]
        await pipeline.write(800)
        for count, is_killed in [(3, False), (2, True), (3, True), (1, False)]:
            resource = yaml.safe_load(pipeline.resource.read_text())
            resource["spec"]["collectors"]["workers"] = count
            pipeline.resource.write_text(yaml.safe_dump(resource))
            if is_killed:
                collector.kill()
            else:
                assert await collector.stop() == 0
            collector.start()
            await collector.ready()
            assert len(workers_of(collector.pid)) == (count if count > 1 else 0)
            await pipeline.write(800)
        verdict = await pipeline.settle()

    assert verdict.is_clean, verdict.explain()


@pytest.mark.timeout(180)
async def test_partitions_move_between_collectors_of_several_workers(
    tmp_path: Path, seed: int
) -> None:
    """Also while a worker that is to give some up is killed: its collector's heartbeat goes on,
    and the successor must not wait for it for ever.
    """
    names = ["collector-0", "collector-1"]
    async with PipelineUnderTest(tmp_path, shape_of(seed, collectors=2, workers=2)) as pipeline:
        await pipeline.run()
        for members in (names[:1], names, names[1:], names):
            await pipeline.write(500)
            victims = workers_of(pipeline.components[COLLECTOR].pid)
            await pipeline.assign(members)
            for pid in victims.values():
                kill(pid)
            await pipeline.state.owned(members)
        await pipeline.write(500)
        verdict = await pipeline.settle()

    assert verdict.is_clean, verdict.explain()
