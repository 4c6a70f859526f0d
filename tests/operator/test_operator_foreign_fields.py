"""What others add to the children: removed where it changes what a child means, and left else."""

from __future__ import annotations

import time
from typing import Any

from api_server.recording_proxy import Asked, Fault, Lose
from api_server.world import FORMER, World
from logpipeline_operator.children.model import Manifest
from logpipeline_operator.cluster.kinds import Kind, kind
from logpipeline_operator.differences import CORRECTIONS_MAX
from waiting import eventually

pytest_plugins = ["api_server.world_fixture"]

HAND = "kubectl-edit"


async def by_hand(
    here: World, of: Kind, name: str, change: Manifest | list[Manifest], manager: str = HAND
) -> None:
    """Change an object as somebody else does, with a merge patch or a JSON patch."""
    form = "json" if isinstance(change, list) else "merge"
    await here.kube._request(
        "PATCH",
        of.path(here.namespace, name),
        {"fieldManager": manager},
        body=change,
        content_type=f"application/{form}-patch+json",
    )


async def child(here: World, of: Kind, name: str) -> Manifest:
    """A child as it is."""
    found = await here.kube.get(of, here.namespace, name)
    assert found is not None
    return found


async def told(here: World) -> list[str]:
    """What events of corrections say."""
    events, _ = await here.kube.list(kind("Event"), here.namespace, fields="reason=DriftCorrected")
    return [str(event["message"]) for event in events]


async def is_undone(here: World, of: Kind, name: str, before: Manifest, field: str) -> None:
    """Wait until the child's specification is as it was, and an event has named all of it."""

    async def is_as_before() -> bool:
        assert (await child(here, of, name))["spec"] == before["spec"]
        messages = await told(here)
        assert any(field in text and HAND in text and name in text for text in messages), messages
        return True

    await eventually(is_as_before, what=f"{field} is put right")


POD = "/spec/template/spec"
INTRUSIONS: dict[str, tuple[str, str, Any, str]] = {
    "node-selector": (
        "StatefulSet", "p-collector",
        {"spec": {"template": {"spec": {"nodeSelector": {"disk": "fast"}}}}},
        "spec.template.spec.nodeSelector",
    ),
    "node-name": (
        "DaemonSet", "p-shipper",
        {"spec": {"template": {"spec": {"nodeName": "node-1"}}}},
        "spec.template.spec.nodeName",
    ),
    "affinity": (
        "DaemonSet", "p-shipper",
        {"spec": {"template": {"spec": {"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
            ]},
        }}}}}},
        "spec.template.spec.affinity",
    ),
    "toleration": (
        "StatefulSet", "p-collector",
        [{"op": "add", "path": f"{POD}/tolerations", "value": [{"operator": "Exists"}]}],
        "spec.template.spec.tolerations",
    ),
    "host-network": (
        "DaemonSet", "p-shipper",
        {"spec": {"template": {"spec": {"hostNetwork": True}}}},
        "spec.template.spec.hostNetwork",
    ),
    "volume": (
        "DaemonSet", "p-shipper",
        [
            {"op": "add", "path": f"{POD}/volumes/0",
             "value": {"name": "root", "hostPath": {"path": "/root"}}},
            {"op": "add", "path": f"{POD}/containers/0/volumeMounts/0",
             "value": {"name": "root", "mountPath": "/root"}},
        ],
        "spec.template.spec.volumes[root]",
    ),
    "container": (
        "StatefulSet", "p-collector",
        [{"op": "add", "path": f"{POD}/containers/-",
          "value": {"name": "miner", "image": "images.invalid/miner:1"}}],
        "spec.template.spec.containers[miner]",
    ),
    "environment": (
        "DaemonSet", "p-shipper",
        [{"op": "add", "path": f"{POD}/containers/0/env/-",
          "value": {"name": "LD_PRELOAD", "value": "/x.so"}}],
        "env[LD_PRELOAD]",
    ),
    "privileges": (
        "DaemonSet", "p-shipper",
        [{"op": "add", "path": f"{POD}/containers/0/securityContext/procMount",
          "value": "Default"},
         {"op": "add", "path": f"{POD}/securityContext/supplementalGroups", "value": [0]}],
        "securityContext.supplementalGroups",
    ),
    "rollout": (
        "StatefulSet", "p-collector",
        {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 2}}}},
        "spec.updateStrategy.rollingUpdate.partition",
    ),
    "service": (
        "Service", "p-collector",
        {"spec": {"selector": {"track": "canary"}}},
        "spec.selector.track",
    ),
    "disruption": (
        "NetworkPolicy", "p-collector",
        [{"op": "add", "path": "/spec/ingress/-", "value": {}}],
        "spec.ingress",
    ),
}  # fmt: skip


async def test_what_changes_the_meaning_of_a_child_is_removed_and_named(here: World) -> None:
    """Scheduling, isolation, content, traffic and rollout are ours; an event says who had set what.

    Before, all of it stayed: a node without a shipper, a Service without endpoints, and Ready.
    """
    here.operator("--no-lease").start()
    await here.apply(FORMER)
    await here.settles()
    for of, name, change, field in INTRUSIONS.values():
        before = await child(here, kind(of), name)
        await by_hand(here, kind(of), name, change)
        await is_undone(here, kind(of), name, before, field)


async def test_what_is_harmless_stays_as_others_set_it(here: World) -> None:
    """Labels, annotations, and a restart that was asked for by `kubectl rollout restart`."""
    here.operator("--no-lease").start()
    await here.apply(FORMER)
    await here.settles()
    stamp = {"kubectl.kubernetes.io/restartedAt": "2026-05-04T12:00:00Z"}
    change: Manifest = {
        "metadata": {"labels": {"cost-centre": "7"}, "annotations": {"note": "x"}},
        "spec": {"template": {"metadata": {"annotations": stamp, "labels": {"team": "logs"}}}},
    }
    pull: Manifest = {"spec": {"template": {"spec": {"imagePullSecrets": [{"name": "registry"}]}}}}
    here.writes.forget()

    await by_hand(here, kind("DaemonSet"), "p-shipper", change)
    await by_hand(here, kind("DaemonSet"), "p-shipper", pull)
    since = time.monotonic()
    await eventually(lambda: here.looks(since) > 1, what="two looks")

    # The status may follow the rollout that was asked for.
    assert [name for name in here.writes.names() if "daemonsets" in name] == []
    found = await child(here, kind("DaemonSet"), "p-shipper")
    assert found["spec"]["template"]["metadata"]["annotations"].items() >= stamp.items()
    assert found["metadata"]["labels"]["cost-centre"] == "7"
    assert found["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "registry"}]


async def test_children_that_were_made_without_server_side_apply_are_ours_all_the_same(
    here: World,
) -> None:
    """Restored from a copy, all their fields have another manager, the API server's defaults too:
    what is as wanted is not rolled.
    """
    operator = here.operator("--no-lease")
    operator.start()
    await here.apply(FORMER)
    await here.settles()
    operator.kill()
    kept = ("name", "namespace", "labels", "annotations", "ownerReferences")
    for of, name in (("DaemonSet", "p-shipper"), ("Service", "p-collector")):
        there = await child(here, kind(of), name)
        metadata = {key: there["metadata"][key] for key in kept if key in there["metadata"]}
        await here.kube.delete(kind(of), here.namespace, name, uid=there["metadata"]["uid"])

        async def is_gone(of: str = of, name: str = name) -> bool:
            return await here.kube.get(kind(of), here.namespace, name) is None

        await eventually(is_gone, what="it is gone")
        copy = {key: value for key, value in there.items() if key != "status"}
        await here.kube._request(
            "POST",
            kind(of).path(here.namespace),
            {"fieldManager": "restore"},
            body={**copy, "metadata": metadata},
        )

    await here.has_nothing_to_do()


async def test_field_that_another_controller_sets_again_is_left_after_some_tries(
    here: World,
) -> None:
    """Ready says then which manager sets which field of which child, and nothing rolls any more."""
    here.operator("--no-lease").start()
    await here.apply(FORMER)
    await here.settles()
    selector: Manifest = {"spec": {"template": {"spec": {"nodeSelector": {"disk": "fast"}}}}}

    async def is_conflict() -> bool:
        found = await child(here, kind("StatefulSet"), "p-collector")
        if "disk" not in found["spec"]["template"]["spec"]["nodeSelector"]:
            await by_hand(here, kind("StatefulSet"), "p-collector", selector, "autoscaler")
        ready = await here.condition("Ready")
        assert ready["reason"] == "FieldConflict", ready
        assert "autoscaler" in ready["message"]
        assert "nodeSelector" in ready["message"]
        return True

    await eventually(is_conflict, what="it is said to be a conflict")
    await here.settles()
    written = [name for name in here.writes.names() if "p-collector" in name]
    assert len(await told(here)) == CORRECTIONS_MAX
    found = await child(here, kind("StatefulSet"), "p-collector")
    assert found["spec"]["template"]["spec"]["nodeSelector"]["disk"] == "fast", written


async def test_what_was_put_right_is_told_though_the_answer_was_lost(here: World) -> None:
    """A busy API server does what it is asked for, and the operator hears nothing of it: the next
    look finds nothing wrong any more.
    """
    operator = here.operator("--no-lease")
    await here.apply(FORMER)
    operator.start()
    await here.settles()
    is_lost: list[Asked] = []

    def judge(asked: Asked) -> Fault | None:
        if is_lost or not asked.write or "/services/" not in asked.path:
            return None
        is_lost.append(asked)
        return Lose()

    service = kind("Service")
    before = await child(here, service, "p-collector")
    here.proxy.judge = judge
    await by_hand(here, service, "p-collector", {"spec": {"selector": {"track": "canary"}}})

    await is_undone(here, service, "p-collector", before, "spec.selector")
    await eventually(lambda: bool(is_lost), what="an answer was lost")
    await here.settles()
    operator.kill()
