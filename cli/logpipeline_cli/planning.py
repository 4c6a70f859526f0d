"""Applying as commands do it."""

from __future__ import annotations

from logpipeline.nats.jetstream import JetStream
from logpipeline.plan.apply import Report, apply, plan_pipeline
from logpipeline.plan.model import Kind
from logpipeline.plan.render import render_report
from logpipeline.spec import LogPipeline


async def apply_for(
    js: JetStream, pipeline: LogPipeline, *, allow_data_loss: bool, storage_bytes: int | None = None
) -> Report:
    """Plan and apply; return what became of each step.

    *storage_bytes* is what an embedded server's streams may take of the disk together.
    """
    plan = await plan_pipeline(js, pipeline, storage_bytes=storage_bytes)
    return await apply(js, plan, allow_data_loss=allow_data_loss)


def explain_report(report: Report) -> str:
    """Return *report* as people read it, with what they can do about what was held back."""
    text = render_report(report).rstrip("\n")
    held = (change for outcome in report.outcomes for change in outcome.held)
    if any(change.kind is Kind.DELETES_DATA for change in held):
        text += "\nto make changes that delete stored messages, give --allow-data-loss"
    return text
