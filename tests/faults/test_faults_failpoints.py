"""A kill at each named place in the sources: between send and acknowledgement, between every two
steps of a commit, of a hand-over, of a rotation. A new place is tested by being there.
"""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path

import pytest

import fault_settings
from component import Component
from fault_shape import Shape
from logpipeline.failpoints import VARIABLE
from pipeline_under_test import PipelineUnderTest

ROOT = Path(__file__).parents[2]
PACKAGES = ("core/logpipeline", "shipper/logpipeline_shipper", "collector/logpipeline_collector")
NAMES = sorted(
    {
        name
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for name in re.findall(r'\breach\("([a-z0-9.-]+)"\)', path.read_text())
        if path.name != "failpoints.py"
    }
)
# It dies when it is there for the n-th time; some places are passed once in a life only.
PASSES_MAX = 3
DIES_WITHIN_S = 40.0
SHAKE_EVERY_S = 2.0
SIGKILLED = -9


@pytest.mark.timeout(150)
@pytest.mark.parametrize("name", NAMES)
async def test_a_kill_at_each_place_loses_and_repeats_nothing(tmp_path: Path, name: str) -> None:
    """The part dies exactly there, is started again, and each line is archived once, in order."""
    seed = fault_settings.seed()
    passes = random.Random(f"{seed}/{name}").randint(1, PASSES_MAX)
    async with PipelineUnderTest(tmp_path, Shape(seed=seed, lines_per_second=800)) as pipeline:
        await pipeline.run()
        victim = pipeline.components["shipper-0" if name.startswith("shipper.") else "collector-0"]
        await pipeline.write(500)
        victim.kill()
        victim.start(**{VARIABLE: f"{name}:{passes}"})
        await _shaken_until_dead(pipeline, victim)
        await pipeline.write(500)
        victim.start()
        await pipeline.write(500)
        verdict = await pipeline.settle()

    assert verdict.is_clean, verdict.explain()


def test_the_places_are_found() -> None:
    """A pattern that finds nothing would test nothing."""
    assert {name.partition(".")[0] for name in NAMES} >= {"shipper", "collector"}


async def _shaken_until_dead(pipeline: PipelineUnderTest, victim: Component) -> None:
    """Move partitions to and fro, and rotate, until *victim* has come to its place and died."""
    members = ["collector-0", "collector-1"]
    loop = asyncio.get_running_loop()
    until = loop.time() + DIES_WITHIN_S
    while loop.time() < until:
        try:
            code = await victim.wait(SHAKE_EVERY_S)
        except AssertionError:
            members = members[::-1] if len(members) == 1 else members
            pipeline.writers.rotate()
            # One partition more or less for the victim, then everything, then its own again.
            await pipeline.assign(["collector-1"] if len(pipeline.members) > 1 else members)
            continue
        assert code == SIGKILLED, f"it ended by itself, with {code}"
        if len(pipeline.members) == 1:
            await pipeline.assign(members)
        return
    raise AssertionError(f"it never came to that place\n{victim.log_tail()}")
