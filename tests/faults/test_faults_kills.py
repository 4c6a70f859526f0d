"""Kills at seeded random moments, each part in turn, while lines flow: the main promise."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from faults import settings
from faults.nemesis import Nemesis
from faults.pipeline_under_test import PipelineUnderTest
from faults.shape import Shape

# Two pipelines side by side, each with its share of the kills, keep two processors busy.
SHARES = 2
KILLS_PER_SHARE = -(-settings.rounds() // SHARES)
SECONDS_PER_KILL_MAX = 15


@pytest.mark.timeout(600 + SECONDS_PER_KILL_MAX * KILLS_PER_SHARE)
@pytest.mark.parametrize("share", range(SHARES))
async def test_no_kill_loses_or_repeats_a_line(
    tmp_path: Path, say: Callable[[str], None], seed: int, share: int
) -> None:
    """Shippers, collectors and the server are killed in turn; each line is collected once, in
    order. Half of the files begin with the same line, which is there as often as it was written.
    """
    own_seed = seed * SHARES + share
    shape = Shape(seed=own_seed, shippers=1 + share, collectors=2, has_banners=True)
    async with PipelineUnderTest(tmp_path, shape) as pipeline:
        nemesis = Nemesis(pipeline, random.Random(own_seed))
        await pipeline.run()
        await nemesis.run(counted=KILLS_PER_SHARE)
        verdict = await pipeline.settle()

    say(f"{nemesis.report()}; {verdict.summary()}")
    assert nemesis.counted.total() >= KILLS_PER_SHARE, nemesis.report()
    assert set(nemesis.counted) == {*pipeline.shippers, *pipeline.members, "nats-server"}
    assert verdict.is_clean, verdict.explain()
    assert verdict.banners == pipeline.writers.banners
