"""The status says when it was last true, and that a pipeline ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from api_server.states import NAME
from api_server.world import FORMER, World
from logpipeline.spec.crd import CHECKED_EVERY_S
from logpipeline_operator.cluster.kinds import kind
from waiting import eventually

pytest_plugins = ["api_server.world_fixture"]

PATIENCE_S = 30.0
HOLD = "example.com/hold"
STAMP = "%Y-%m-%dT%H:%M:%SZ"


async def checked(here: World) -> str:
    """When the pipeline's status says that it was looked at."""
    there = await here.resource()
    return str(((there or {}).get("status") or {}).get("lastChecked", ""))


async def backdate(here: World, seconds: float) -> str:
    """Have the last look be so long ago."""
    stamp = (datetime.now(UTC) - timedelta(seconds=seconds)).strftime(STAMP)
    change = {"status": {"lastChecked": stamp}}
    await here.kube.merge(kind("LogPipeline"), here.namespace, NAME, change, subresource="status")
    return stamp


async def test_status_is_confirmed_now_and_then_where_nothing_changes(here: World) -> None:
    """Two minutes after the last time, and not with each look."""
    here.operator("--no-lease").start()
    await here.apply(FORMER)
    await here.settles()
    recent = await backdate(here, CHECKED_EVERY_S / 2)
    await here.settles()
    assert await checked(here) == recent

    old = await backdate(here, CHECKED_EVERY_S + 1)

    async def is_confirmed() -> bool:
        return await checked(here) > old

    await eventually(is_confirmed, within_s=PATIENCE_S, what="it is confirmed")


async def test_pipeline_that_is_being_deleted_is_not_ready(here: World) -> None:
    """It says that it ends, and whose finalizer it waits for, for as long as it is there."""
    here.operator("--no-lease").start()
    await here.apply(FORMER, finalizers=[HOLD])
    await here.settles()

    await here.delete()

    async def ends() -> bool:
        ready = await here.condition("Ready")
        assert (ready["status"], ready["reason"]) == ("False", "Ending"), ready
        assert HOLD in ready["message"]
        return True

    await eventually(ends, within_s=PATIENCE_S, what="it says that it ends")
    await here.kube.merge(
        kind("LogPipeline"), here.namespace, NAME, {"metadata": {"finalizers": None}}
    )
