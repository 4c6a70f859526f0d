"""The status says when it was last true, and that a pipeline ends."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from api_server.recording_proxy import Asked, Refuse
from api_server.states import NAME
from api_server.world import FORMER, World
from logpipeline.spec.crd import CHECKED_EVERY_S
from logpipeline_operator import ownership, pod_namespaces, settings
from logpipeline_operator.cluster.client import Fence
from logpipeline_operator.cluster.kinds import kind
from logpipeline_operator.metrics import OperatorMetrics
from logpipeline_operator.queue import Key
from logpipeline_operator.reconcile import Reconciler
from waiting import eventually

pytest_plugins = ["api_server.world_fixture"]

HOLD = "example.com/hold"
STAMP = "%Y-%m-%dT%H:%M:%SZ"


async def checked(here: World) -> str:
    """When the pipeline's status says that it was looked at."""
    there = await here.resource()
    return str(((there or {}).get("status") or {}).get("lastChecked", ""))


async def backdate(here: World, seconds: float) -> str:
    """Have the last look, and the claim before it, be so long ago."""
    stamp = (datetime.now(UTC) - timedelta(seconds=seconds)).strftime(STAMP)
    change = {"status": {"lastChecked": stamp, "claimedAt": stamp}}
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

    await eventually(is_confirmed, what="it is confirmed")


async def test_status_is_not_confirmed_by_looks_that_cannot_report(here: World) -> None:
    """Their operator claims the pipeline anew all the same, so that no other one takes it."""
    here.operator("--no-lease").start()
    await here.apply(FORMER)
    await here.settles()

    def judge(asked: Asked) -> Refuse | None:
        # A claim merges into the status; only a report applies it.
        is_report = asked.path.endswith("/status") and asked.query.get("force") == "true"
        return Refuse(403, "Forbidden") if is_report else None

    here.proxy.judge = judge
    old = await backdate(here, ownership.RENEW_AFTER_S + 1)

    async def is_claimed() -> bool:
        there = await here.resource() or {}
        return str(there["status"].get("claimedAt", "")) > old

    await eventually(is_claimed, what="it is claimed anew")
    began = here.writes.last_at or math.inf
    await eventually(lambda: here.looks(began) > 1, what="two more looks")

    assert await checked(here) == old


@pytest.mark.parametrize(
    ("error", "words"),
    [(TimeoutError(), "took too long"), (OSError(28, "No space left on device"), "No space left")],
)
async def test_status_says_that_the_last_look_failed(
    here: World, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    """Whatever ended it: what the look before had found is no longer known to be true."""
    await here.apply(FORMER)

    async def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(pod_namespaces, "observe", fail)
    made = Reconciler(
        settings.read(["--no-lease"]), here.kube, Fence(clock=lambda: 0.0), OperatorMetrics()
    )

    with pytest.raises(type(error)):
        await made.reconcile(Key(here.namespace, NAME))
    await made.close()

    ready = await here.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "LookFailed")
    assert words in ready["message"]


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

    await eventually(ends, what="it says that it ends")
    await here.kube.merge(
        kind("LogPipeline"), here.namespace, NAME, {"metadata": {"finalizers": None}}
    )
