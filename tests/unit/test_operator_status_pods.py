"""Why pods do not run is read from their manifests, once for all that have the same trouble."""

from __future__ import annotations

from typing import Any

import pytest

from logpipeline_operator.children.model import Component
from logpipeline_operator.status import Part, Reason, Workload
from logpipeline_operator.status import pods as pods_of


def pod(name: str = "prod-collector-0", component: str = "collector", **status: Any) -> Any:
    """A pod with *status*."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{name}"}}]
    labels = {"app.kubernetes.io/component": component}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"volumes": volumes},
        "status": status,
    }


def container(**fields: Any) -> dict[str, Any]:
    """The status of a pod with one container."""
    return {"containerStatuses": [{"name": "main", "image": "example.net/x:1", **fields}]}


def waiting(reason: str, **more: Any) -> dict[str, Any]:
    """A container that waits for *reason*."""
    return container(state={"waiting": {"reason": reason, "message": "why"}}, **more)


def unscheduled(message: str) -> dict[str, Any]:
    """A pod that no node takes."""
    entry = {"type": "PodScheduled", "status": "False", "message": message}
    return {"conditions": [entry]}


ENDED = {"terminated": {"reason": "Error", "exitCode": 3}}
KILLED = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
CASES = {
    "no image": (waiting("ImagePullBackOff"), Reason.IMAGE_NOT_PULLED, "example.net/x:1"),
    "crash": (
        waiting("CrashLoopBackOff", lastState=ENDED), Reason.CRASH_LOOPING, "exit code 3",
    ),
    "memory": (waiting("CrashLoopBackOff", lastState=KILLED), Reason.OUT_OF_MEMORY, "more memory"),
    "memory now": (container(state=KILLED), Reason.OUT_OF_MEMORY, "more memory"),
    "no secret": (waiting("CreateContainerConfigError"), Reason.POD_MISCONFIGURED, "main: why"),
    "no room": (unscheduled("0/2 nodes: 2 Insufficient cpu"), Reason.UNSCHEDULABLE, "cpu"),
    "no volume": (
        unscheduled("pod has unbound immediate PersistentVolumeClaims"), Reason.CLAIM_UNBOUND, "",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("status", "reason", "words"), CASES.values(), ids=CASES)
def test_why_a_pod_does_not_run(status: dict[str, Any], reason: Reason, words: str) -> None:
    """Each trouble that users meet has its own reason, and names the pod."""
    (found,) = pods_of.problems([pod(**status)])

    assert (found.reason, found.part) == (reason, Part.COLLECTORS)
    assert found.what.startswith("prod-collector-0: ")
    assert words in found.what


def test_why_a_job_ended_is_told_in_its_own_words() -> None:
    """Its sentence, and no line of its log: those have times, and would be news with each try."""
    log = '{"time": "2026-05-04T12:00:00Z", "message": "it starts"}\n'
    told = "s3://logs cannot be written: create the bucket."
    ended = {"terminated": {"exitCode": 1, "message": f"{log}logpipeline: {told}\nbye\n"}}
    mute = {"terminated": {"exitCode": 1, "message": log}}
    status = waiting("CrashLoopBackOff", lastState=ended)

    (found,) = pods_of.problems([pod("prod-table-0", "table", **status)])
    (silent,) = pods_of.problems([pod(**waiting("CrashLoopBackOff", lastState=mute))])

    assert (found.reason, found.part) == (Reason.CRASH_LOOPING, Part.TABLE)
    assert found.what.endswith(f"exit code 1: {told}")
    assert silent.what.endswith("exit code 1")


def test_executors_that_do_not_run_are_the_table_s_trouble() -> None:
    """They are found by their own label, and have no condition of their own."""
    (found,) = pods_of.problems([pod("prod-exec-1", "executor", **waiting("ErrImagePull"))])

    assert found.part is Part.TABLE


@pytest.mark.parametrize(
    "status",
    [
        {},
        container(state={"running": {}}, ready=True),
        # It was killed once, and runs again.
        container(state={"running": {}}, ready=True, lastState=KILLED),
        waiting("ContainerCreating"),
    ],
)
def test_a_pod_that_starts_or_runs_is_no_trouble(status: dict[str, Any]) -> None:
    """What passes by itself is told by counts alone."""
    assert pods_of.problems([pod(**status)]) == ()


def test_a_claim_names_its_storage_class() -> None:
    """Which class is wanted is what a user needs to know to make it work."""
    stuck = pod(**unscheduled("0/2 nodes are available"))
    claim = {
        "metadata": {"name": "data-prod-collector-0"},
        "spec": {"storageClassName": "fast"},
        "status": {"phase": "Pending"},
    }

    (found,) = pods_of.problems([stuck], [claim])
    assert found.reason is Reason.CLAIM_UNBOUND
    assert "storage class fast" in found.what


def test_the_same_trouble_of_many_pods_is_told_once() -> None:
    """Three hundred shippers without their image are one sentence."""
    many = [pod(f"prod-shipper-{n:03}", "shipper", **waiting("ErrImagePull")) for n in range(300)]

    (found,) = pods_of.problems(reversed(many))
    assert found.part is Part.SHIPPERS
    assert found.what.startswith(
        "prod-shipper-000, prod-shipper-001, prod-shipper-002 and 297 more: the image "
    )


def test_pods_that_go_and_pods_of_others_are_left_out() -> None:
    """A pod that is being deleted has no future to worry about."""
    going = pod(**waiting("ErrImagePull"))
    going["metadata"]["deletionTimestamp"] = "2026-05-04T12:00:00Z"

    assert pods_of.problems([going, pod("x", "other", **waiting("ErrImagePull"))]) == ()


def test_a_controller_that_may_make_no_pod_is_told() -> None:
    """Its pods do not exist, so that only its event can tell."""
    refusals = {"DaemonSet prod-shipper": 'violates PodSecurity "restricted:latest"'}

    (found,) = pods_of.problems([], refusals=refusals)
    assert (found.reason, found.part) == (Reason.POD_SECURITY, Part.SHIPPERS)


def test_a_stateful_set_is_counted() -> None:
    """Pods of the former revision are counted apart, while there are two revisions."""
    status = {
        "observedGeneration": 2, "replicas": 3, "readyReplicas": 2, "updatedReplicas": 1,
        "currentRevision": "a", "updateRevision": "b",
    }  # fmt: skip
    manifest = {"metadata": {"generation": 2}, "status": status}

    assert pods_of.stateful_set(manifest, wanted=3) == Workload(
        wanted=3, present=3, ready=2, updated=1
    )
    settled = {**manifest, "status": {**status, "currentRevision": "b"}}
    assert pods_of.stateful_set(settled, wanted=3) == Workload(
        wanted=3, present=3, ready=2, updated=3
    )
    assert pods_of.stateful_set(None, wanted=3) is None


def test_a_change_that_the_controller_has_not_seen_is_told() -> None:
    """Counts from before the change say nothing of it."""
    changed = {"metadata": {"generation": 3}, "status": {"observedGeneration": 2}}
    fresh = {"metadata": {"generation": 1}}

    for found in (pods_of.stateful_set(changed, wanted=1), pods_of.daemon_set(fresh)):
        assert found is not None
        assert not found.is_current


def test_a_daemon_set_is_counted() -> None:
    """As many are wanted as there are nodes for it."""
    status = {
        "observedGeneration": 1, "desiredNumberScheduled": 3, "currentNumberScheduled": 3,
        "numberReady": 2, "updatedNumberScheduled": 1,
    }  # fmt: skip

    assert pods_of.daemon_set({"metadata": {"generation": 1}, "status": status}) == Workload(
        wanted=3, present=3, ready=2, updated=1
    )
    assert pods_of.daemon_set(None) is None


def test_pods_that_end_do_not_count_as_ready() -> None:
    """Kubernetes counts them until they are gone: whose only server ends is not ready."""
    workload = Workload(wanted=2, present=2, ready=2, updated=2)
    ready: list[Any] = [
        {"metadata": {"labels": {"app.kubernetes.io/component": component}, **more},
         "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        for component, more in (
            ("nats", {}), ("nats", {"deletionTimestamp": "2026-05-04T12:00:00Z"}), ("shipper", {}),
        )
    ]  # fmt: skip

    found = pods_of.without_ending(workload, ready, Component.NATS)

    assert found == Workload(wanted=2, present=2, ready=1, updated=2)
    assert pods_of.without_ending(None, ready, Component.NATS) is None


def shipper(node: str, *, is_ready: bool, is_placed: bool = True) -> dict[str, Any]:
    """A shipper for *node*, which its DaemonSet says by affinity until it is placed."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return {
        "metadata": {"name": f"s-{node}", "labels": {"app.kubernetes.io/component": "shipper"}},
        "spec": {"affinity": affinity, **({"nodeName": node} if is_placed else {})},
        "status": {"conditions": [{"type": "Ready", "status": "True" if is_ready else "False"}]},
    }


def test_nodes_whose_shipper_is_not_ready_are_named() -> None:
    """Also those that have none yet; a node on which one replaces another ships."""
    found = [
        shipper("node-1", is_ready=True),
        shipper("node-2", is_ready=False),
        shipper("node-3", is_ready=False, is_placed=False),
        shipper("node-4", is_ready=False),
        shipper("node-4", is_ready=True),
        pod(),
    ]

    assert pods_of.nodes_without(found) == ("node-2", "node-3")
