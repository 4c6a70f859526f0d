"""Collectors started twice, and collectors whose own state is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.component import Component
from faults.pipeline_under_test import PipelineUnderTest
from faults.shape import Shape
from waiting import WITHIN_S

COLLECTOR, OTHER = "collector-0", "collector-1"
EXIT_BUSY = 3


@pytest.mark.parametrize("folder", ["same", "another"])
async def test_a_second_collector_of_the_same_name_is_refused(
    tmp_path: Path, seed: int, folder: str
) -> None:
    """It ends at once and says what to do; the first one keeps its partitions, and each line is
    collected once.
    """
    async with PipelineUnderTest(tmp_path, Shape(seed=seed)) as pipeline:
        await pipeline.run()
        await pipeline.write(500)
        first = pipeline.components[COLLECTOR]
        data = str(pipeline.data_of(COLLECTOR))
        other = data if folder == "same" else str(tmp_path / "other")
        words = [word.replace(data, other) for word in first.words]
        second = Component("second", words, tmp_path / "logs" / "second.log")
        second.start()
        code = await second.wait(WITHIN_S)
        said = second.log.read_text()
        await pipeline.write(1000)
        await pipeline.state.owned(pipeline.members)
        verdict = await pipeline.settle()

    assert code == EXIT_BUSY
    assert "another process runs as collector-0" in said
    assert "Traceback" not in said
    assert first.starts == 1
    assert verdict.is_clean, verdict.explain()


@pytest.mark.parametrize("damage", ["overwritten", "cut"])
async def test_a_broken_state_file_is_named_and_never_trusted(
    tmp_path: Path, seed: int, damage: str
) -> None:
    """The collector ends with a clear error; another one goes on where the group was, and each
    line is collected once.
    """
    async with PipelineUnderTest(tmp_path, Shape(seed=seed)) as pipeline:
        await pipeline.run()
        await pipeline.write(1500)
        broken = pipeline.components[COLLECTOR]
        assert await broken.stop() == 0
        state = pipeline.data_of(COLLECTOR) / "state" / pipeline.state.group / "p0.sqlite"
        _damage(state, damage)
        broken.start()
        code = await broken.wait(WITHIN_S)
        said = broken.log_tail()
        await pipeline.assign([OTHER])
        await pipeline.state.owned([OTHER])
        await pipeline.write(1000)
        verdict = await pipeline.settle()

    assert code not in (0, -9)
    assert str(state) in said
    assert "Traceback" not in said
    assert verdict.is_clean, verdict.explain()


def _damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    assert data
    path.write_bytes(b"\xff" * len(data) if how == "overwritten" else data[: len(data) // 2])
