"""Two operators and one Lease: exactly one of them writes, whatever becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest

from api_server.operator_process import LONG_LEASE_S, OperatorProcess
from api_server.recording_proxy import ClusterProxy
from api_server.world import FORMER, LATTER, World
from api_server.writes import Writes
from cluster.handle import Cluster
from logpipeline_operator.access import FencedJetStream
from logpipeline_operator.cluster.client import Cluster as OperatorsCluster
from logpipeline_operator.cluster.client import ClusterAway, Fence
from logpipeline_operator.cluster.kinds import kind
from logpipeline_operator.cluster.lease import Holder, Lease, lead
from logpipeline_operator.main import CODE_LOST_LEASE
from logpipeline_operator.settings import LEASE_S
from waiting import eventually

pytest_plugins = ["api_server.world_fixture"]

LEASE = "logpipeline-operator"
# Where one has to run out.
SHORT_LEASE_S = 9
# A look at the Lease, and the work of a start.
SLACK_S = 60.0
WATCH_S = 0.1
# In the middle of the children.
FROZEN_AFTER = 6


def operator(here: World, name: str, proxy: ClusterProxy, lease_s: float) -> OperatorProcess:
    """The operator *name*, whose requests go through a proxy of its own."""
    return here.operator(
        proxy=proxy,
        LOGPIPELINE_POD_NAME=name,
        LOGPIPELINE_LEASE_NAMESPACE=here.namespace,
        LOGPIPELINE_LEASE_SECONDS=str(lease_s),
    )


async def spec_of(here: World) -> dict[str, Any]:
    """What the Lease says; empty where there is none."""
    lease = await here.kube.get(kind("Lease"), here.namespace, LEASE)
    return dict(lease["spec"]) if lease else {}


async def run_out_in(here: World, lease_s: float) -> None:
    """Let the Lease say what a leader with a shorter one would have written."""
    spec = {"spec": {"leaseDurationSeconds": lease_s}}
    await here.kube.merge(kind("Lease"), here.namespace, LEASE, spec)


async def holder(here: World) -> str:
    """Who has the Lease."""
    return str((await spec_of(here)).get("holderIdentity") or "")


def seconds(time_of_lease: str) -> float:
    """A time that stands in a Lease, as a number."""
    return datetime.fromisoformat(time_of_lease).timestamp()


async def led_by(here: World, name: str, *, within_s: float) -> None:
    """Wait until *name* has the Lease."""

    async def is_leader() -> bool:
        assert await holder(here) == name, await holder(here)
        return True

    await eventually(is_leader, within_s=within_s, what=f"{name} leads")


@asynccontextmanager
async def started_again(*operators: OperatorProcess) -> AsyncIterator[None]:
    """Start *operators* again when they end, as the kubelet does: where the machine is too busy for
    a short Lease, its leader ends without any fault.
    """

    async def watch() -> None:
        while True:
            for each in operators:
                if not each.is_running:
                    each.start()
            await asyncio.sleep(WATCH_S)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


@asynccontextmanager
async def one_that_waits(
    here: World, cluster: Cluster
) -> AsyncIterator[tuple[OperatorProcess, ClusterProxy]]:
    """The operator `first`, which leads and has made a pipeline, while `second` waits; given are
    the first one, and the proxy of the second.
    """
    with ClusterProxy(cluster.kubeconfig, Writes()) as own:
        first = operator(here, "first", here.proxy, LONG_LEASE_S)
        second = operator(here, "second", own, SHORT_LEASE_S)
        first.start()
        await led_by(here, "first", within_s=SLACK_S)
        async with started_again(second):
            await here.apply(FORMER)
            await here.settles()
            yield first, own


async def test_operator_that_waits_writes_nothing_and_follows_a_leader_that_was_killed(
    here: World, cluster: Cluster
) -> None:
    """The second one takes over when the Lease has run out, and not before."""
    async with one_that_waits(here, cluster) as (first, own):
        before = own.writes.names()
        first.kill()
        renewed = (await spec_of(here))["renewTime"]
        await run_out_in(here, SHORT_LEASE_S)
        here.writes.forget()
        await here.apply(LATTER)
        await led_by(here, "second", within_s=SHORT_LEASE_S + SLACK_S)
        acquired = (await spec_of(here))["acquireTime"]
        await eventually(own.writes.names, within_s=SLACK_S, what="the second writes")

        assert before == []
        assert seconds(acquired) - seconds(renewed) >= SHORT_LEASE_S


async def test_operator_that_is_asked_to_stop_hands_over_at_once(
    here: World, cluster: Cluster
) -> None:
    """It gives the Lease back, and ends well."""
    async with one_that_waits(here, cluster) as (first, _):
        assert first.stop() == 0
        # Long before the Lease of the first one would have run out.
        await led_by(here, "second", within_s=SLACK_S)


async def test_operator_that_wakes_up_after_its_lease_writes_nothing_more(
    here: World, cluster: Cluster
) -> None:
    """Frozen between two writes until another leads, it ends without the second of them."""
    with ClusterProxy(cluster.kubeconfig, Writes()) as own:
        first = operator(here, "first", own, SHORT_LEASE_S)
        second = operator(here, "second", here.proxy, SHORT_LEASE_S)

        def freeze(number: int) -> None:
            if number == FROZEN_AFTER:
                first.freeze()

        own.writes.on_write = freeze
        async with started_again(first):
            await led_by(here, "first", within_s=SLACK_S)
            await here.apply(FORMER)
            await eventually(
                lambda: len(own.writes.names()) >= FROZEN_AFTER, within_s=SLACK_S, what="it freezes"
            )
        async with started_again(second):
            await led_by(here, "second", within_s=SHORT_LEASE_S + SLACK_S)
            await here.settles()
            first.thaw()
            code = first.ended()
            assert own.writes.names()[FROZEN_AFTER:] == []
            assert code == CODE_LOST_LEASE
            await led_by(here, "second", within_s=SLACK_S)


@pytest.mark.smoke
async def test_operator_may_not_write_once_its_lease_was_not_renewed_in_time(here: World) -> None:
    """Neither to Kubernetes nor to NATS, even before it has noticed: others may lead by then."""
    now = 1000.0
    fence = Fence(clock=lambda: now)
    fenced = OperatorsCluster(here.api, fence)
    js = FencedJetStream(here.js.connection, fence)
    lease = Lease(here.kube, here.namespace, LEASE, "first", fence.clock)
    maps = kind("ConfigMap")
    outcomes: list[str] = []

    async def write(name: str) -> None:
        metadata = {"name": name, "namespace": here.namespace}
        stream = {"name": f"{name}-{here.namespace}", "subjects": [f"{name}.{here.namespace}"]}
        for writing in (
            fenced.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}),
            js.call(f"STREAM.CREATE.{stream['name']}", stream),
            js.publish(f"{name}.{here.namespace}", b""),
        ):
            try:
                await writing
            except ClusterAway as error:
                outcomes.append(str(error))

    async def work() -> None:
        nonlocal now
        await write("before")
        assert outcomes == []
        # As after a time in which the process was not given a processor.
        now += lease.renew_within_s
        await write("after")

    await lead(lease, fence, work)

    assert len(outcomes) == 3
    assert await here.kube.get(maps, here.namespace, "before") is not None
    assert await here.kube.get(maps, here.namespace, "after") is None
    assert await here.js.stream_info(f"after-{here.namespace}") is None
    assert await holder(here) == ""


async def test_operator_waits_as_long_as_the_one_that_leads_has_said(here: World) -> None:
    """One that was started with a shorter Lease does not take a longer one before its end."""
    now = 1000.0
    leader = Lease(here.kube, here.namespace, LEASE, "first", lambda: now, LEASE_S)
    waiting = Lease(here.kube, here.namespace, LEASE, "second", lambda: now, SHORT_LEASE_S)
    held = [await leader.hold(), await waiting.hold()]
    now += LEASE_S
    held.append(await waiting.hold())
    now += 1.0
    held.append(await waiting.hold())

    assert held == [Holder.WE, Holder.OTHERS, Holder.OTHERS, Holder.WE]
    assert await holder(here) == "second"
