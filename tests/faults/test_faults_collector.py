"""Collectors started twice, and collectors whose own state is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

import fault_settings
from component import Component
from fault_shape import Shape
from pipeline_under_test import PipelineUnderTest

COLLECTOR = "collector-0"
ENDS_WITHIN_S = 20.0
EXIT_BUSY = 3


@pytest.mark.timeout(120)
@pytest.mark.parametrize("folder", ["same", "another"])
async def test_a_second_collector_of_the_same_name_is_refused(tmp_path: Path, folder: str) -> None:
    """It ends at once and says what to do; the first one keeps its partitions, and each line is
    archived once.
    """
    async with PipelineUnderTest(tmp_path, Shape(seed=fault_settings.seed())) as pipeline:
        await pipeline.run()
        await pipeline.write(500)
        first = pipeline.components[COLLECTOR]
        data = str(pipeline.data_of(COLLECTOR))
        other = data if folder == "same" else str(tmp_path / "other")
        words = [word.replace(data, other) for word in first.words]
        second = Component("second", words, tmp_path / "logs" / "second.log")
        second.start()
        code = await second.wait(ENDS_WITHIN_S)
        said = second.log.read_text()
        await pipeline.write(1000)
        await pipeline.state.owned(pipeline.members)
        verdict = await pipeline.settle()

    assert code == EXIT_BUSY
    assert "another process runs as collector-0" in said
    assert "Traceback" not in said
    assert first.starts == 1
    assert verdict.is_clean, verdict.explain()
