"""Planning and applying as commands do it: print, and say by the exit code what is left to do."""

from __future__ import annotations

from logpipeline.plan.desired import desired

from logpipeline.nats.jetstream import JetStream
from logpipeline.plan.apply import Report, apply
from logpipeline.plan.diff import make_plan
from logpipeline.plan.model import Plan
from logpipeline.plan.observe import observe
from logpipeline.spec import LogPipeline


async def plan_for(js: JetStream, pipeline: LogPipeline) -> Plan:
    """Return what would have to change on the server for *pipeline*."""
    wanted = desired(pipeline)
    return make_plan(wanted, await observe(js, wanted))


async def apply_for(js: JetStream, pipeline: LogPipeline, *, allow_data_loss: bool) -> Report:
    """Plan and apply; return what became of each step."""
    return await apply(js, await plan_for(js, pipeline), allow_data_loss=allow_data_loss)
