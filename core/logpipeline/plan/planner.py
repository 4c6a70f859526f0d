"""The whole way from a resource to its plan, as the command and the operator take it."""

from __future__ import annotations

from logpipeline.nats.jetstream import JetStream
from logpipeline.plan.desired import desired
from logpipeline.plan.diff import make_plan
from logpipeline.plan.model import Plan
from logpipeline.plan.observe import account_of, observe
from logpipeline.spec import LogPipeline


async def plan_pipeline(
    js: JetStream,
    pipeline: LogPipeline,
    *,
    storage_bytes: int | None = None,
    installation: str = "",
) -> Plan:
    """Return what must change on the server for *pipeline*; see `desired` for the arguments.

    Raises:
        JetStreamOff: there is no JetStream.
        OutcomeUnknown, NotSent: the server did not answer.
        ApiError: it refused to tell.
    """
    wanted = desired(
        pipeline,
        account=await account_of(js),
        storage_bytes=storage_bytes,
        installation=installation,
    )
    return make_plan(wanted, await observe(js, wanted))
