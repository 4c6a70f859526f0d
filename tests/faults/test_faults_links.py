"""Links and limits: slow connections that are reset in the midst of messages, and processes that
may open no further file or socket.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from components.component import Component
from faults import settings
from faults.pipeline_under_test import PipelineUnderTest
from faults.proxy import Proxy
from faults.shape import Shape
from waiting import eventually

PARTS = ("shipper-0", "collector-0")
# As between continents, at each chunk.
DELAY_S = 0.05
ROUNDS, ROUNDS_SOAK = 3, 60
# So few descriptors beyond those that are open: less than one commit, or one connection, takes.
SPARE_DESCRIPTORS = 1


def rounds() -> int:
    """How many times the fault is repeated."""
    return ROUNDS_SOAK if settings.is_soak() else ROUNDS


async def test_slow_connections_that_are_reset_lose_and_repeat_nothing(
    tmp_path: Path, seed: int, say: Callable[[str], None]
) -> None:
    """Of a shipper and of a collector, in the midst of what they send and read."""
    pipeline = PipelineUnderTest(tmp_path, Shape(seed=seed))
    async with pipeline:
        with ExitStack() as stack:
            links = {name: stack.enter_context(Proxy(pipeline.server_port)) for name in PARTS}
            pipeline.urls.update({name: link.url for name, link in links.items()})
            await pipeline.run()
            for link in links.values():
                link.slow(DELAY_S)
            pipeline.rounds = rounds()
            for _ in range(rounds()):
                await pipeline.write(500)
                for link in links.values():
                    link.reset()
            await pipeline.write(500)
            began_s = time.monotonic()
            verdict = await pipeline.settle()

    say(f"{rounds()} resets of slow links: {verdict.summary()}; {time.monotonic() - began_s:.0f} s")
    assert verdict.is_clean, verdict.explain()


@pytest.mark.parametrize("name", PARTS)
async def test_a_process_without_descriptors_loses_and_repeats_nothing(
    tmp_path: Path, seed: int, name: str, say: Callable[[str], None]
) -> None:
    """It goes on by itself, or ends with the reason and goes on when it is started again."""
    async with PipelineUnderTest(tmp_path, Shape(seed=seed)) as pipeline:
        await pipeline.run()
        pipeline.rounds = rounds()
        component, starts = pipeline.components[name], [0]

        def runs() -> bool:
            """Start it again if it has ended, as kubelet and systemd do."""
            if component.is_running:
                return True
            assert "Too many open files" in component.log_tail()
            starts[0] += 1
            component.start()
            return False

        async def is_up() -> bool:
            return runs() and await component.is_ready()

        for _ in range(rounds()):
            await pipeline.write(300)
            # One that still starts has few descriptors: it would be left with less than it began.
            await eventually(is_up, what=f"{name} is up")
            most = _limit(component, _open_descriptors(component) + SPARE_DESCRIPTORS)
            await pipeline.write(500)
            if runs():
                _limit(component, most)
        await pipeline.write(300)
        began_s = time.monotonic()
        # One that ends for want of descriptors takes a moment, in which it still seems to run.
        verdict = await pipeline.settle(is_enough=lambda seen: runs() and seen.is_clean)

    say(
        f"{name}, {rounds()} times without descriptors: ended {starts[0]} times; "
        f"{verdict.summary()}; "
        f"{time.monotonic() - began_s:.0f} s"
    )
    assert verdict.is_clean, verdict.explain()


def _open_descriptors(component: Component) -> int:
    return len(list(Path(f"/proc/{component.pid}/fd").iterdir()))


def _limit(component: Component, soft: int) -> int:
    """Let *component* have descriptors below *soft*, and return its former limit."""
    former, hard = resource.prlimit(component.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(component.pid, resource.RLIMIT_NOFILE, (soft, hard))
    return former
