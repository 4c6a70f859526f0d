"""Releases of the operator that watch the same pipelines: one looks after each, the others wait."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from api_server.operator_process import OperatorProcess
from api_server.recording_proxy import ClusterProxy
from api_server.states import NAME
from api_server.world import FORMER, LATTER, PERIODS, World, world
from api_server.writes import Writes
from cluster.handle import Cluster
from cluster.installed_operator import define
from logpipeline.embedded import EmbeddedServer
from logpipeline.spec.crd import CHECKED_EVERY_S, UNCHECKED_AFTER_S
from logpipeline_operator import ownership
from logpipeline_operator.cluster.kinds import kind
from logpipeline_operator.metrics import OperatorMetrics
from logpipeline_operator.ownership import Ownership
from logpipeline_operator.queue import Key
from waiting import eventually

pytest_plugins = ["api_server.world_fixture"]

LONG_AGO = "2026-01-01T00:00:00Z"
# Of another version: two that do not know of each other apply their own for ever.
OTHER_IMAGES = {"LOGPIPELINE_IMAGE_SHIPPER": "images.invalid/shipper:2"}


def release(here: World, name: str, proxy: ClusterProxy, *scope: str) -> OperatorProcess:
    """The operator of the release *name*, which has a Lease of its own."""
    images = OTHER_IMAGES if name == "second" else {}
    made = OperatorProcess(
        (f"--kubeconfig={proxy.kubeconfig_for(here.folder)}", *scope),
        here.folder / f"{name}.log",
        {
            **PERIODS,
            **images,
            "LOGPIPELINE_LEASE_NAMESPACE": here.namespace,
            "LOGPIPELINE_LEASE_NAME": name,
        },
    )
    here.operators.append(made)
    return made


async def status_of(here: World) -> dict[str, Any]:
    """What the pipeline's status says; empty where it says nothing."""
    return dict((await here.resource() or {}).get("status") or {})


async def checked_by(here: World, name: str) -> None:
    """Wait until the release *name* looks after the pipeline."""

    async def is_owner() -> bool:
        assert (await status_of(here)).get("checkedBy") == f"{here.namespace}/{name}"
        return True

    await eventually(is_owner, what=f"{name} looks after the pipeline")


async def waits(second: OperatorProcess, other: str) -> None:
    """Wait until *second* has logged that it waits for *other*."""

    async def has_told() -> bool:
        told = [line for line in second.log_tail().splitlines() if "waiting" in line]
        return any(other in line for line in told)

    await eventually(has_told, what="the second one says for whom it waits")


async def stays_with_the_first(here: World, cluster: Cluster, scope: tuple[str, ...]) -> None:
    """Start a second release that watches *scope* beside the first, and see that it waits and
    takes over once the first has been gone for long.
    """
    with ClusterProxy(cluster.kubeconfig, Writes()) as own:
        first = release(here, "first", here.proxy, f"--namespace={here.namespace}")
        first.start()
        await here.apply(FORMER)
        await checked_by(here, "first")
        second = release(here, "second", own, *scope)
        second.start()
        await waits(second, f"{here.namespace}/first")
        await here.apply(LATTER)
        await here.settles()

        assert own.writes.names() == []

        first.kill()
        stale: dict[str, Any] = {"status": {"lastChecked": LONG_AGO, "claimedAt": LONG_AGO}}
        await here.kube.merge(
            kind("LogPipeline"), here.namespace, NAME, stale, subresource="status"
        )
        await checked_by(here, "second")
        await eventually(own.writes.names, what="the second one works")


async def test_release_that_watches_the_same_namespace_waits_for_the_first(
    here: World, cluster: Cluster
) -> None:
    """The second writes nothing, says for whom it waits, and follows when the first is gone."""
    await stays_with_the_first(here, cluster, (f"--namespace={here.namespace}",))


async def test_release_that_watches_all_namespaces_waits_for_one_that_watches_some(
    own_cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Scopes that overlap need not be equal: the claim is the pipeline's, not the namespace's."""
    define(own_cluster)
    async with (
        world(own_cluster, nats_server, tmp_path, "default") as here,
        here.another_namespace(),
    ):
        await stays_with_the_first(here, own_cluster, ())


class Clocks:
    """A clock of this process, and one of the wall."""

    def __init__(self) -> None:
        self.own = 1000.0
        self.wall = datetime(2026, 5, 4, tzinfo=UTC).timestamp()

    def pass_s(self, seconds: float) -> None:
        """Let time pass on both."""
        self.own += seconds
        self.wall += seconds


def ownership_of(here: World, name: str, clocks: Clocks) -> Ownership:
    """What the operator *name* decides by."""
    return Ownership(
        here.kube, name, OperatorMetrics(), clock=lambda: clocks.own, now=lambda: clocks.wall
    )


async def has_turn(here: World, owner: Ownership, name: str = NAME) -> bool:
    """Whether *owner* takes the pipeline *name*, as it is now."""
    there = await here.kube.get(kind("LogPipeline"), here.namespace, name)
    assert there is not None
    return (await owner.take(Key(here.namespace, name), there)).is_ours


async def test_pipeline_is_taken_by_one_of_two_that_look_at_once(here: World) -> None:
    """Both saw that nobody has it; the API server refuses the slower write."""
    clocks = Clocks()
    await here.apply(FORMER)
    seen = await here.resource()
    assert seen is not None
    key = Key(here.namespace, NAME)

    turns = [await ownership_of(here, name, clocks).take(key, seen) for name in ("a/one", "b/two")]

    assert [turn.is_ours for turn in turns] == [True, False]
    assert (await status_of(here))["checkedBy"] == "a/one"


async def test_pipeline_changes_hands_only_when_no_look_can_be_under_way(here: World) -> None:
    """The second takes it after the limit, and the first one's last look has ended before."""
    clocks = Clocks()
    await here.apply(FORMER)
    first, second = ownership_of(here, "a/one", clocks), ownership_of(here, "b/two", clocks)
    assert await has_turn(here, first)
    clocks.pass_s(ownership.RENEW_AFTER_S - 1)
    there = await here.resource()
    assert there is not None
    turn = await first.take(Key(here.namespace, NAME), there)
    ends_s = ownership.RENEW_AFTER_S - 1 + turn.within_s

    assert not await has_turn(here, second)
    clocks.pass_s(UNCHECKED_AFTER_S - ownership.RENEW_AFTER_S)
    assert not await has_turn(here, second)
    assert turn.within_s >= CHECKED_EVERY_S / 2
    assert ends_s <= UNCHECKED_AFTER_S - ownership.MARGIN_S
    clocks.pass_s(2)
    assert await has_turn(here, second)
    assert not await has_turn(here, first)


async def test_clock_that_is_wrong_does_not_keep_a_pipeline_for_ever(here: World) -> None:
    """Where the other's clock was ahead, ours counts from when we saw its last word."""
    ahead, ours = Clocks(), Clocks()
    ahead.wall += 86_400
    await here.apply(FORMER)
    second = ownership_of(here, "b/two", ours)
    assert await has_turn(here, ownership_of(here, "a/one", ahead))

    assert not await has_turn(here, second)
    ours.pass_s(UNCHECKED_AFTER_S - 1)
    assert not await has_turn(here, second)
    ours.pass_s(2)
    assert await has_turn(here, second)


async def test_new_pipeline_is_left_to_the_operator_that_has_the_others(here: World) -> None:
    """One release looks after all of them; where it is gone, new ones wait a minute only."""
    clocks = Clocks()
    await here.apply(FORMER)
    first, second = ownership_of(here, "a/one", clocks), ownership_of(here, "b/two", clocks)
    assert await has_turn(here, first)
    assert not await has_turn(here, second)
    new = {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": "new", "namespace": here.namespace},
    }
    await here.kube.create(new)

    assert not await has_turn(here, second, "new")
    clocks.pass_s(ownership.HEAD_START_S + 1)
    assert await has_turn(here, second, "new")
    uid = (await here.kube.get(kind("LogPipeline"), here.namespace, "new") or {})["metadata"]["uid"]
    await here.kube.delete(kind("LogPipeline"), here.namespace, "new", uid=uid)


async def test_operator_that_only_reports_gives_way_to_one_that_acts(here: World) -> None:
    """A status has one writer, and it is the one that can do something."""
    clocks = Clocks()
    await here.apply(FORMER)
    reads, acts = (
        ownership_of(here, "a/one (read-only)", clocks),
        ownership_of(here, "b/two", clocks),
    )

    assert await has_turn(here, reads)
    assert await has_turn(here, acts)
    assert not await has_turn(here, reads)
