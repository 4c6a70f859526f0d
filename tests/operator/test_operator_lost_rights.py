"""Rights that end in one namespace, or for one kind: the others are looked after all the same, and
no deletion waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from kubernetes.aio.client import ApiClient

from api_server.recording_proxy import Asked, Refuse
from api_server.states import NAME, binding_of
from api_server.world import FORMER, World
from logpipeline_operator import deletion, main
from logpipeline_operator.children import model
from logpipeline_operator.cluster import client
from logpipeline_operator.cluster.client import Fence
from logpipeline_operator.cluster.kinds import kind
from logpipeline_operator.main import Operator
from logpipeline_operator.metrics import OperatorMetrics
from logpipeline_operator.queue import Key
from logpipeline_operator.reconcile import Reconciler
from logpipeline_operator.settings import Settings
from waiting import eventually

pytest_plugins = ["api_server.world_fixture"]

FORBIDDEN = Refuse(403, "Forbidden")


@asynccontextmanager
async def behind_the_proxy(here: World) -> AsyncIterator[client.Cluster]:
    """A client of this process whose requests the proxy judges."""
    kubeconfig = here.proxy.kubeconfig_for(here.folder)
    async with ApiClient(await client.configuration(str(kubeconfig))) as api:
        yield client.Cluster(api)


def fence() -> Fence:
    """One that lets everything pass."""
    return Fence(clock=lambda: 0.0)


async def test_a_namespace_that_refuses_leaves_the_others_their_rounds(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where no watch says that something changed; and what is left in the namespace that
    refuses is not taken for what is left of nothing.
    """

    async def hear_nothing(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(main, "watch", hear_nothing)
    gone = f"{here.namespace}-gone"
    here.proxy.judge = lambda asked: FORBIDDEN if f"/namespaces/{gone}/" in asked.path else None
    name = binding_of(gone)
    labels = {
        model.MANAGED_BY_LABEL: model.MANAGED_BY,
        model.NAMESPACE_LABEL: gone,
        model.INSTANCE_LABEL: NAME,
    }
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": labels},
        "roleRef": role,
    }
    await here.kube.create(binding)
    await here.apply({**FORMER, "deletionPolicy": "Retain"})
    metrics = OperatorMetrics()
    settings = Settings(namespaces=(gone, here.namespace), resync_s=0.5, look_again_s=60.0)
    async with behind_the_proxy(here) as cluster:
        operator = Operator(settings, cluster, fence(), metrics)
        running = asyncio.create_task(operator.run())
        try:
            await eventually(is_reported(here), what="it is looked at")
            began = here.writes.last_at or 0.0
            await eventually(lambda: here.looks(began) > 1, what="more rounds")
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await operator.close()

    there = await here.kube.get(kind("ClusterRoleBinding"), None, name)
    assert there is not None
    await here.kube.delete(kind("ClusterRoleBinding"), None, name, uid=there["metadata"]["uid"])
    assert metrics.value("namespaces_unlisted") == 1


def is_reported(here: World) -> Callable[[], Awaitable[bool]]:
    """Whether the pipeline has a status that says when it was looked at."""

    async def is_so() -> bool:
        there = await here.resource() or {}
        return "lastChecked" in (there.get("status") or {})

    return is_so


@pytest.mark.parametrize("lost", ["/controllerrevisions", "/logpipelineclasses/", "/status"])
async def test_no_deletion_waits_for_rights_that_are_gone(
    here: World, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """With a namespace its Roles go first, or last, and the pipeline with its finalizer between."""
    key = Key(here.namespace, NAME)
    await here.apply(FORMER)
    await finalize(here, [deletion.FINALIZER])
    await here.delete()

    def judge(asked: Asked) -> Refuse | None:
        # A claim merges into the status; only a report applies it.
        is_report = lost != "/status" or asked.query.get("force") == "true"
        return FORBIDDEN if lost in asked.path and is_report else None

    here.proxy.judge = judge
    async with behind_the_proxy(here) as cluster:
        made = Reconciler(Settings(), cluster, fence(), OperatorMetrics())
        again_s = await made.reconcile(key) if lost != "/status" else deletion.RETRY_S
        waits = await here.resource() is not None
        monkeypatch.setattr(deletion, "CLEANUP_S_MAX", 0.0)
        await made.reconcile(key)
        await made.close()

    assert (again_s, waits) == (deletion.RETRY_S, True)
    assert await here.resource() is None


async def finalize(here: World, finalizers: list[str]) -> None:
    """Have the pipeline wait for these when it is deleted."""
    change = {"metadata": {"finalizers": finalizers}}
    await here.kube.merge(kind("LogPipeline"), here.namespace, NAME, change)
