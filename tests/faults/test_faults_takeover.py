"""Two collectors and one partition: whoever was taken for dead, and is not, must not write."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from faults.nemesis import Nemesis
from faults.pipeline_under_test import PipelineUnderTest
from faults.proxy import Proxy
from faults.shape import Shape
from logpipeline.failpoints import VARIABLE
from waiting import WITHIN_S, eventually

OLD, NEW = "collector-0", "collector-1"


@pytest.mark.parametrize("place", ["", "collector.before-swap", "collector.after-swap"])
async def test_a_successor_with_another_folder_goes_on_where_the_dead_one_was(
    tmp_path: Path, seed: int, place: str
) -> None:
    """What the dead collector had written and not committed is taken back from its files when
    its folder is opened again: the union of both folders is exact.
    """
    async with PipelineUnderTest(tmp_path, Shape(seed=seed)) as pipeline:
        await pipeline.run()
        await pipeline.write(1500)
        await pipeline.until_stored()
        old = pipeline.components[OLD]
        if place:
            old.kill()
            old.start(**{VARIABLE: f"{place}:5"})
            await old.wait(WITHIN_S)
        else:
            await _kill_with_stake(pipeline, seed)
        await pipeline.assign([NEW])
        await pipeline.state.owned([NEW])
        await pipeline.write(1500)
        # It has no partitions any more: it only puts its folder in order.
        old.start()
        verdict = await pipeline.settle()

    assert verdict.is_clean, verdict.explain()


@pytest.mark.smoke
async def test_a_frozen_collector_that_goes_on_later_writes_nothing(
    tmp_path: Path, seed: int
) -> None:
    """Stopped past its take-over and continued, it finds itself fenced, takes its uncommitted
    lines back, and works again when it is given partitions.
    """
    async with PipelineUnderTest(tmp_path, Shape(seed=seed)) as pipeline:
        await pipeline.run()
        await pipeline.write(1500)
        old = pipeline.components[OLD]
        old.freeze()
        await pipeline.assign([NEW])
        await pipeline.state.owned([NEW])
        await pipeline.write(1500)
        old.thaw()
        await eventually(lambda: _fenced(pipeline), what="the old one is fenced")
        await pipeline.assign([OLD, NEW])
        await pipeline.state.owned([OLD, NEW])
        await pipeline.write(1000)
        starts = old.starts
        verdict = await pipeline.settle()

    assert starts == 1
    assert verdict.is_clean, verdict.explain()


async def test_a_collector_behind_a_silent_cut_is_succeeded(tmp_path: Path, seed: int) -> None:
    """Its connection is cut without a reset: the server keeps its waiting pulls, it keeps its
    partitions in mind, and still every line is collected once.
    """
    pipeline = PipelineUnderTest(tmp_path, Shape(seed=seed))
    async with pipeline:
        with Proxy(pipeline.server_port) as proxy:
            pipeline.urls[OLD] = proxy.url
            await pipeline.run()
            await pipeline.write(1500)
            proxy.cut()
            await pipeline.assign([NEW])
            await pipeline.state.owned([NEW])
            await pipeline.write(1500)
            proxy.heal()
            await eventually(
                lambda: _fenced(pipeline),
                what="the old one is fenced",
            )
            await pipeline.assign([OLD, NEW])
            await pipeline.state.owned([OLD, NEW])
            await pipeline.write(1000)
            verdict = await pipeline.settle()

    assert verdict.is_clean, verdict.explain()


async def test_collectors_come_and_go_while_lines_flow(tmp_path: Path, seed: int) -> None:
    """From one to three to two to one: partitions move, no other process is started again, and
    each line is collected once.
    """
    names = [f"collector-{number}" for number in range(3)]
    shape = Shape(seed=seed, collectors=1, partitions=6)
    async with PipelineUnderTest(tmp_path, shape) as pipeline:
        await pipeline.run()
        for count in (1, 3, 2, 1):
            for name in names[:count]:
                if name not in pipeline.components:
                    pipeline.start_collector(name)
            await pipeline.assign(names[:count])
            await pipeline.state.owned(names[:count])
            for name in names[count:]:
                if name in pipeline.components and pipeline.components[name].is_running:
                    assert await pipeline.components[name].stop() == 0
            await pipeline.write(1200)
        starts = {name: component.starts for name, component in pipeline.components.items()}
        verdict = await pipeline.settle()

    assert set(starts.values()) == {1}
    assert verdict.is_clean, verdict.explain()


async def _fenced(pipeline: PipelineUnderTest) -> bool:
    return (await pipeline.components[OLD].metrics()).get("fenced_total", 0) > 0


async def _kill_with_stake(pipeline: PipelineUnderTest, seed: int) -> None:
    """Kill the old collector while something that it was given is not committed: on a busy machine
    that may take some tries, and the test's own limit ends them.
    """
    nemesis = Nemesis(pipeline, random.Random(seed))
    while not (await nemesis.kill(OLD)).uncommitted_messages:
        pipeline.components[OLD].start()
        await pipeline.state.owned([OLD, NEW])
        await pipeline.write(500)
