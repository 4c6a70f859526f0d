"""A kill at each named place in the sources: between send and acknowledgement, between every two
steps of a commit, of a hand-over, of a rotation. A new place is tested by being there.
"""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path

import pytest

from components.component import Component
from faults.pipeline_under_test import PipelineUnderTest
from faults.shape import Shape
from logpipeline.failpoints import VARIABLE
from logpipeline_demo.verdict import Verdict
from waiting import WITHIN_S

ROOT = Path(__file__).parents[2]
PACKAGES = ("core/logpipeline", "shipper/logpipeline_shipper", "collector/logpipeline_collector")
# Places that a pipeline alone never comes to: those of readers and of what readers gave up are
# reached in tests/live (`test_consume_state`, `test_use_cases`, `test_collector_given_up`).
ELSEWHERE = ("consume.", "collector.before-advisory-goes")
NAMES = sorted(
    {
        name
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for name in re.findall(r'\breach\("([a-z0-9.-]+)"\)', path.read_text())
        if path.name != "failpoints.py" and not name.startswith(ELSEWHERE)
    }
)
# It dies when it is there for the n-th time; some places are passed once in a life only.
PASSES_MAX = 3
SHAKE_EVERY_S = 1.0
SIGKILLED = -9
# So little that rotated files are retired while the test runs.
LITTLE = {
    "collectors": {
        "rotation": {"maxBytes": "8Ki"},
        "compression": "none",
        "retention": {"maxBytes": "32Ki"},
    }
}
# Of each of the two that die: where a line may get lost, and where one may come twice.
SMOKE = ("shipper.after-send", "collector.before-swap")
# These come only when partitions move.
HAND_OVER = ("collector.after-take-over", "collector.after-release")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.smoke if n in SMOKE else ()) for n in NAMES]
)
async def test_a_kill_at_each_place_loses_and_repeats_nothing(
    tmp_path: Path, seed: int, name: str
) -> None:
    """The part dies exactly there, is started again, and each line is collected once, in order."""
    passes = random.Random(f"{seed}/{name}").randint(1, PASSES_MAX)
    shape = Shape(seed=seed, lines_per_second=800, spec=LITTLE if _is_retention(name) else {})
    async with PipelineUnderTest(tmp_path, shape) as pipeline:
        await pipeline.run()
        victim = pipeline.components["shipper-0" if name.startswith("shipper.") else "collector-0"]
        await pipeline.write(500)
        victim.kill()
        victim.start(**{VARIABLE: f"{name}:{passes}"})
        await _shaken_until_dead(pipeline, victim, is_moving=name in HAND_OVER)
        await pipeline.write(500)
        victim.start()
        await pipeline.write(500)
        if _is_retention(name):
            verdict = await pipeline.settle(
                is_enough=_is_exact_but_for_the_oldest, reason="retention removes the oldest files"
            )
        else:
            verdict = await pipeline.settle()

    if _is_retention(name):
        assert verdict.lost, "nothing was retired"
        assert _is_exact_but_for_the_oldest(verdict), verdict.explain()
    else:
        assert verdict.is_clean, verdict.explain()


def test_the_places_are_found() -> None:
    """A pattern that finds nothing would test nothing."""
    assert {name.partition(".")[0] for name in NAMES} >= {"shipper", "collector"}
    assert set(SMOKE) <= set(NAMES)


def _is_retention(name: str) -> bool:
    return "retain" in name


def _is_exact_but_for_the_oldest(verdict: Verdict) -> bool:
    """Tell whether retention took what it may, whole files from the beginning, and no more."""
    others = verdict.twice or verdict.out_of_order or verdict.corrupt or verdict.invented
    # Of a source that was quiet since, nothing is left.
    left = [source for source in verdict.sources if source.arrived]
    return not (others or any(source.lost_middle + source.lost_tail for source in left))


async def _shaken_until_dead(
    pipeline: PipelineUnderTest, victim: Component, *, is_moving: bool
) -> None:
    """Wait until *victim* has come to its place and died; where the place is one of a hand-over,
    move partitions to and fro.
    """
    members = ["collector-0", "collector-1"]
    loop = asyncio.get_running_loop()
    until = loop.time() + WITHIN_S
    while loop.time() < until:
        try:
            code = await victim.wait(SHAKE_EVERY_S)
        except AssertionError:
            if is_moving:
                await pipeline.assign(members[1:] if len(pipeline.members) > 1 else members)
            continue
        assert code == SIGKILLED, f"it ended by itself, with {code}"
        if len(pipeline.members) == 1:
            await pipeline.assign(members)
        return
    raise AssertionError(f"it never came to that place\n{victim.log_tail()}")
