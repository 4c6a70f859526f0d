"""Applying as commands do it."""

from __future__ import annotations

from logpipeline.nats.jetstream import JetStream
from logpipeline.plan.apply import Report, apply
from logpipeline.plan.planner import plan_pipeline
from logpipeline.spec import LogPipeline


async def apply_for(
    js: JetStream, pipeline: LogPipeline, *, allow_data_loss: bool, storage_bytes: int | None = None
) -> Report:
    """Plan and apply; return what became of each step.

    *storage_bytes* is what an embedded server's streams may take of the disk together.
    """
    plan = await plan_pipeline(js, pipeline, storage_bytes=storage_bytes)
    return await apply(js, plan, allow_data_loss=allow_data_loss)
