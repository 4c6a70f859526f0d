"""Shippers that were away, lost what they knew, or are there twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from components.component import Component
from faults.pipeline_under_test import PipelineUnderTest
from faults.shape import Shape
from logpipeline_demo.verdict import Verdict
from waiting import WITHIN_S, eventually

SHIPPER = "shipper-0"
ROTATIONS = 4


@pytest.mark.parametrize("positions", ["kept", "lost"])
async def test_what_was_rotated_while_the_shipper_was_down_arrives(
    tmp_path: Path, seed: int, positions: str
) -> None:
    """Several rotations, most of them compressed: drained oldest first. A shipper that lost all
    its positions sends everything again, and collectors cut what they have.
    """
    async with PipelineUnderTest(tmp_path, Shape(seed=seed)) as pipeline:
        await pipeline.run()
        await pipeline.write(1500)
        pipeline.components[SHIPPER].kill()
        if positions == "lost":
            shutil.rmtree(pipeline.data_of(SHIPPER))
        pipeline.writers.rotate(ROTATIONS)
        compressed = list(pipeline.root_of(SHIPPER).rglob("*.gz"))
        pipeline.components[SHIPPER].start()
        await pipeline.write(1000)
        verdict = await pipeline.settle()

    assert compressed
    assert verdict.is_clean, verdict.explain()


@pytest.mark.parametrize(
    "damage",
    [b"", b"\x00" * 512, b"{not what we wrote", None],
    ids=["emptied", "zeroed", "overwritten", "cut"],
)
async def test_broken_positions_cost_no_line(
    tmp_path: Path, seed: int, damage: bytes | None
) -> None:
    """Emptied, overwritten or cut short: the shipper says so, and starts from what the files and
    the collectors know.
    """
    async with PipelineUnderTest(tmp_path, Shape(seed=seed)) as pipeline:
        await pipeline.run()
        await pipeline.write(1500)
        shipper = pipeline.components[SHIPPER]
        positions = pipeline.data_of(SHIPPER) / "positions"
        await eventually(positions.exists, what="positions are saved")
        shipper.kill()
        whole = positions.read_bytes()
        positions.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
        shipper.start()
        await pipeline.write(1000)
        verdict = await pipeline.settle()

    assert verdict.is_clean, verdict.explain()
    assert "positions" in shipper.log.read_text()


async def test_a_second_shipper_on_the_same_folder_is_refused(tmp_path: Path, seed: int) -> None:
    """It ends at once and says why; the first one goes on, and each line is collected once."""
    async with PipelineUnderTest(tmp_path, Shape(seed=seed)) as pipeline:
        await pipeline.run()
        await pipeline.write(500)
        first = pipeline.components[SHIPPER]
        second = Component("second", first.words, tmp_path / "logs" / "second.log")
        second.start()
        code = await second.wait(WITHIN_S)
        said = second.log.read_text()
        await pipeline.write(1000)
        verdict = await pipeline.settle()

    assert code not in (0, -9)
    assert str(pipeline.data_of(SHIPPER)) in said
    assert "Traceback" not in said
    assert verdict.is_clean, verdict.explain()


async def test_two_shippers_of_the_same_files_lose_nothing(tmp_path: Path, seed: int) -> None:
    """With another folder nobody can refuse the second one. It may as well be another machine of
    the same name: so what both send stands there twice, rather than that one of them is believed.
    Without rotation: where it cuts a container's line in two, the other's lines stand between.
    """
    async with PipelineUnderTest(tmp_path, Shape(seed=seed, rotate_bytes=1 << 40)) as pipeline:
        await pipeline.run()
        await pipeline.write(1000)
        first = pipeline.components[SHIPPER]
        words = [
            word.replace(str(pipeline.data_of(SHIPPER)), str(tmp_path / "other"))
            for word in first.words
        ]
        second = Component("second", words, tmp_path / "logs" / "second.log")
        second.start()
        try:
            await second.ready()
            await pipeline.write(1500)
            verdict = await pipeline.settle(
                is_enough=_is_all_there, reason="what two shippers send stands there twice"
            )
        finally:
            second.kill()

    assert _is_all_there(verdict), verdict.explain()


def _is_all_there(verdict: Verdict) -> bool:
    # An empty line has no number: where lines come twice, the oracle may not know whose one is.
    return not (verdict.lost or verdict.corrupt)
