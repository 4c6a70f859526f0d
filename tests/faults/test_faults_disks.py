"""Full disks: under a collector's files and state, and under a shipper's positions."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.component import Component
from faults.pipeline_under_test import PipelineUnderTest
from faults.shape import Shape
from faults.small_disk import small_disk
from waiting import WITHIN_S, eventually

COLLECTOR, SHIPPER = "collector-0", "shipper-0"
COLLECTOR_DISK_BYTES = 96 * 1024 * 1024
POSITIONS_DISK_BYTES = 4 * 1024 * 1024


@pytest.mark.smoke
async def test_a_collector_whose_disk_is_full_waits_and_goes_on_alone(
    tmp_path: Path, seed: int
) -> None:
    """It says so, counts nothing as written that is not, and recovers when there is room."""
    pipeline = PipelineUnderTest(tmp_path, Shape(seed=seed))
    with small_disk(pipeline.data_of(COLLECTOR), size_bytes=COLLECTOR_DISK_BYTES) as disk:
        async with pipeline:
            await pipeline.run()
            await pipeline.write(1500)
            collector = pipeline.components[COLLECTOR]
            disk.fill()
            await eventually(lambda: _is_unready(collector), what="it says so")
            await pipeline.write(1500)
            disk.free()
            await collector.ready(WITHIN_S)
            starts = collector.starts
            verdict = await pipeline.settle()

    assert starts == 1
    assert verdict.is_clean, verdict.explain()


async def test_a_collector_killed_on_a_full_disk_recovers(tmp_path: Path, seed: int) -> None:
    """Its state could not be written either: when there is room it starts from what it had
    committed.
    """
    pipeline = PipelineUnderTest(tmp_path, Shape(seed=seed))
    with small_disk(pipeline.data_of(COLLECTOR), size_bytes=COLLECTOR_DISK_BYTES) as disk:
        async with pipeline:
            await pipeline.run()
            await pipeline.write(1500)
            collector = pipeline.components[COLLECTOR]
            disk.fill()
            await eventually(lambda: _is_unready(collector), what="it says so")
            collector.kill()
            await pipeline.write(500)
            disk.free()
            collector.start()
            verdict = await pipeline.settle()

    assert verdict.is_clean, verdict.explain()


async def test_a_shipper_that_cannot_save_positions_ships_on(tmp_path: Path, seed: int) -> None:
    """Lines arrive, its health says what is wrong, and a kill then repeats nothing in the files."""
    pipeline = PipelineUnderTest(tmp_path, Shape(seed=seed))
    with small_disk(pipeline.data_of(SHIPPER), size_bytes=POSITIONS_DISK_BYTES) as disk:
        async with pipeline:
            await pipeline.run()
            await pipeline.write(1500)
            shipper = pipeline.components[SHIPPER]
            disk.fill()
            await eventually(lambda: _is_unready(shipper), what="it says so")
            before = await pipeline.state.stored()
            await pipeline.write(1500)
            after = await pipeline.state.stored()
            shipper.kill()
            disk.free()
            shipper.start()
            await shipper.ready(WITHIN_S)
            verdict = await pipeline.settle()

    assert sum(after.values()) > sum(before.values()), "it stopped shipping"
    assert verdict.is_clean, verdict.explain()


async def _is_unready(component: Component) -> bool:
    if not component.is_running:
        raise RuntimeError(f"it ended\n{component.log_tail()}")
    return not await component.is_ready()
