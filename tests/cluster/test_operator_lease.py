"""Two operators and one Lease: exactly one of them writes, whatever becomes of it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cluster_handle import Cluster
from cluster_operator_process import OperatorProcess
from cluster_proxy import ClusterProxy
from cluster_world import FORMER, LATTER, SETTLED_S, World
from cluster_writes import Writes
from logpipeline_operator.cluster.client import Cluster as OperatorsCluster
from logpipeline_operator.cluster.errors import ClusterAway
from logpipeline_operator.cluster.fence import Fence
from logpipeline_operator.cluster.kinds import kind
from logpipeline_operator.cluster.lease import LEASE_S, RENEW_WITHIN_S, Lease, lead
from logpipeline_operator.jetstream.fenced import FencedJetStream
from logpipeline_operator.main import CODE_LOST_LEASE
from waiting import eventually

pytest_plugins = ["cluster_world_fixture"]

LEASE = "logpipeline-operator"
# A look at the Lease, and the work of a start.
SLACK_S = 8.0
AT_ONCE_S = 6.0
# In the middle of the children.
FROZEN_AFTER = 6


def operator(here: World, name: str, proxy: ClusterProxy) -> OperatorProcess:
    """The operator *name*, whose requests go through a proxy of its own."""
    return here.operator(
        proxy=proxy, LOGPIPELINE_POD_NAME=name, LOGPIPELINE_LEASE_NAMESPACE=here.namespace
    )


async def holder(here: World) -> str:
    """Who has the Lease."""
    lease = await here.kube.get(kind("Lease"), here.namespace, LEASE)
    return str(lease["spec"].get("holderIdentity") or "") if lease else ""


async def led_by(here: World, name: str, *, within_s: float) -> float:
    """Wait until *name* has the Lease, and return for how long."""
    since = time.monotonic()

    async def is_leader() -> bool:
        assert await holder(here) == name, await holder(here)
        return True

    await eventually(is_leader, within_s=within_s, what=f"{name} leads")
    return time.monotonic() - since


@asynccontextmanager
async def one_that_waits(
    here: World, cluster: Cluster
) -> AsyncIterator[tuple[OperatorProcess, ClusterProxy]]:
    """The operator `first`, which leads and has made a pipeline, while `second` waits; given are
    the first one, and the proxy of the second.
    """
    with ClusterProxy(cluster.kubeconfig, Writes()) as own:
        first, second = operator(here, "first", here.proxy), operator(here, "second", own)
        first.start()
        await led_by(here, "first", within_s=SLACK_S)
        second.start()
        await here.apply(FORMER)
        await here.settles(SETTLED_S)
        yield first, own


@pytest.mark.timeout(120)
async def test_operator_that_waits_writes_nothing_and_follows_a_leader_that_was_killed(
    here: World, cluster: Cluster
) -> None:
    """The second one takes over when the Lease has run out, and not before."""
    async with one_that_waits(here, cluster) as (first, own):
        before = own.writes.names()
        first.kill()
        here.writes.forget()
        await here.apply(LATTER)
        waited_s = await led_by(here, "second", within_s=LEASE_S + SLACK_S)
        await eventually(own.writes.names, within_s=SLACK_S, what="the second writes")

        assert before == []
        assert waited_s > LEASE_S - SLACK_S


@pytest.mark.timeout(60)
async def test_operator_that_is_asked_to_stop_hands_over_at_once(
    here: World, cluster: Cluster
) -> None:
    """It gives the Lease back, and ends well."""
    async with one_that_waits(here, cluster) as (first, _):
        code = first.stop()
        waited_s = await led_by(here, "second", within_s=LEASE_S)

        assert code == 0
        assert waited_s < AT_ONCE_S


@pytest.mark.timeout(120)
async def test_operator_that_wakes_up_after_its_lease_writes_nothing_more(
    here: World, cluster: Cluster
) -> None:
    """Frozen between two writes until another leads, it ends without the second of them."""
    with ClusterProxy(cluster.kubeconfig, Writes()) as own:
        first, second = operator(here, "first", own), operator(here, "second", here.proxy)

        def freeze(number: int) -> None:
            if number == FROZEN_AFTER:
                first.freeze()

        own.writes.on_write = freeze
        first.start()
        await led_by(here, "first", within_s=SLACK_S)
        await here.apply(FORMER)
        await eventually(
            lambda: len(own.writes.names()) >= FROZEN_AFTER, within_s=SLACK_S, what="it freezes"
        )
        second.start()
        await led_by(here, "second", within_s=LEASE_S + SLACK_S)
        await here.settles(SETTLED_S)
        first.thaw()
        code = first.ended()

        assert own.writes.names()[FROZEN_AFTER:] == []
        assert code == CODE_LOST_LEASE
        assert await holder(here) == "second"


@pytest.mark.timeout(60)
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
        now += RENEW_WITHIN_S
        await write("after")

    await lead(lease, fence, work)

    assert len(outcomes) == 3
    assert await here.kube.get(maps, here.namespace, "before") is not None
    assert await here.kube.get(maps, here.namespace, "after") is None
    assert await here.js.stream_info(f"after-{here.namespace}") is None
    assert await holder(here) == ""
