"""Two groups of collectors on the same streams: each has every line once, whatever becomes of the
other.
"""

from __future__ import annotations

import random
from pathlib import Path

import yaml

from components.component import Component
from faults.pipeline_state import PipelineState
from faults.pipeline_under_test import PipelineUnderTest
from faults.shape import Shape
from logpipeline.group.assignment import ensure_assigned
from logpipeline.spec import load
from logpipeline_demo.expected import Expected
from logpipeline_demo.oracle import check

GROUP = "audit"
MEMBERS = [f"{GROUP}-0", f"{GROUP}-1"]
KILLS = 6
STREAMS = {"stream": {"name": "LOGS"}}


class SecondGroup:
    """A group of two collectors on the streams of *pipeline*, with a resource of its own."""

    def __init__(self, pipeline: PipelineUnderTest) -> None:
        self._of = pipeline
        resource = yaml.safe_load(pipeline.resource.read_text())
        resource["metadata"]["name"] = GROUP
        resource["spec"]["stream"]["external"] = True
        resource["spec"]["collectors"] |= {"group": GROUP}
        self.file = pipeline.folder / f"{GROUP}.yaml"
        self.file.write_text(yaml.safe_dump(resource))
        self.state = PipelineState(pipeline.js, load(self.file))
        self.components = [self._component(name) for name in MEMBERS]

    @property
    def folders(self) -> list[Path]:
        """Where they write."""
        return [self._of.data_of(name) for name in MEMBERS]

    async def run(self) -> None:
        """Start the collectors, and share the partitions among them."""
        for component in self.components:
            component.start()
        await ensure_assigned(self.state.bucket, load(self.file), MEMBERS)
        await self.state.owned(MEMBERS)

    def _component(self, name: str) -> Component:
        words = ["collect", "--member", name, "-f", str(self.file), "--nats", self._of.server.url]
        log = self._of.folder / "logs" / f"{name}.log"
        made = Component(name, [*words, "--data", str(self._of.data_of(name))], log)
        # So that it ends with the others.
        self._of.components[name] = made
        return made


async def epochs(state: PipelineState) -> dict[int, int]:
    """Return the epoch of each partition."""
    return {number: record.epoch for number, record in (await state.records()).items()}


async def test_kills_in_one_group_do_not_disturb_the_other(tmp_path: Path, seed: int) -> None:
    """Each has its own positions, epochs, assignment and files; both have every line once."""
    dice = random.Random(seed)
    async with PipelineUnderTest(tmp_path, Shape(seed=seed, spec=STREAMS)) as pipeline:
        await pipeline.run()
        await pipeline.write(500)
        group = SecondGroup(pipeline)
        await group.run()
        before = await epochs(pipeline.state)
        for _ in range(KILLS):
            victim = dice.choice(group.components)
            victim.kill()
            await pipeline.write(dice.randrange(100, 400))
            victim.start()
        await pipeline.quiet()
        after = await epochs(pipeline.state)
        await group.state.committed()
        expected = Expected.read(pipeline.writers.ledger_path)
        verdict = await pipeline.settle()
        of_group = check(expected, group.folders)

    assert before == after
    assert verdict.is_clean, verdict.explain()
    assert of_group.is_clean, of_group.explain()
