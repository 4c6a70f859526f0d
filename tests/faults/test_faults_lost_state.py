"""Snapshots, messages and the state bucket vanish while a collector is dead."""

from __future__ import annotations

from pathlib import Path

from faults.pipeline_under_test import PipelineUnderTest
from faults.shape import Shape

FORMER = ("collector-0", "collector-1")
SUCCESSOR = "collector-2"


async def test_lost_snapshots_and_messages_make_no_shipper_send_again(
    tmp_path: Path, seed: int
) -> None:
    """The successor does not know the sources, and the shippers do not mistake that for a loss."""
    shape = Shape(seed=seed, partitions=2)
    async with PipelineUnderTest(tmp_path, shape) as pipeline:
        await pipeline.run()
        await pipeline.write(900)
        await pipeline.state.committed(dict.fromkeys(range(shape.partitions), 2))
        for name in FORMER:
            pipeline.components[name].kill()
        names = pipeline.pipeline.names
        await pipeline.js.call(f"STREAM.PURGE.{names.snapshot_stream}")
        for partition, record in (await pipeline.state.records()).items():
            # Behind the position nothing may go: that nobody has collected.
            assert record.position.sequence > 1
            body = {"seq": record.position.sequence}
            await pipeline.js.call(f"STREAM.PURGE.{names.stream(partition)}", body)
        pipeline.start_collector(SUCCESSOR)
        await pipeline.assign([SUCCESSOR])
        await pipeline.state.owned([SUCCESSOR])
        await pipeline.write(900)
        for name in FORMER:
            pipeline.components[name].start()
        verdict = await pipeline.settle()

    assert verdict.is_clean, verdict.explain()
