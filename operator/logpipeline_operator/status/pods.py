"""Workloads and problems, read from the manifests of controllers, pods and claims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from logpipeline.spec.api import COMPONENT_LABEL
from logpipeline_operator.children.model import Component
from logpipeline_operator.cluster.objects import condition, is_ending, is_ready, labels_of
from logpipeline_operator.status.errors import of_pod_refusal
from logpipeline_operator.status.facts import Finding, Part, Workload, grouped
from logpipeline_operator.status.reasons import Reason
from logpipeline_operator.status.text import bounded, listed

Manifest = Mapping[str, Any]

PARTS = {
    component.value: Part.TABLE if component is Component.EXECUTOR else Part(component.value)
    for component in Component
}
# The program's commands begin their last error message with this.
OUR_WORDS = "logpipeline: "
# The limit of that message: it may contain the text of another program.
LAST_WORDS_BYTES_MAX = 400
# States of Apache's operator and of Kubeflow's in which the driver works.
_SPARK_RUNS = {
    "DriverReady", "InitializedBelowThresholdExecutors", "RunningHealthy",
    "RunningWithBelowThresholdExecutors", "RunningWithPartialCapacity", "RUNNING",
}  # fmt: skip
_WAITING = {
    "ImagePullBackOff": Reason.IMAGE_NOT_PULLED,
    "ErrImagePull": Reason.IMAGE_NOT_PULLED,
    "ErrImageNeverPull": Reason.IMAGE_NOT_PULLED,
    "InvalidImageName": Reason.IMAGE_NOT_PULLED,
    "ImageInspectError": Reason.IMAGE_NOT_PULLED,
    "RegistryUnavailable": Reason.IMAGE_NOT_PULLED,
    "CreateContainerConfigError": Reason.POD_MISCONFIGURED,
    "CreateContainerError": Reason.POD_MISCONFIGURED,
    "RunContainerError": Reason.POD_MISCONFIGURED,
    "CrashLoopBackOff": Reason.CRASH_LOOPING,
}

# Names the Service of an EndpointSlice.
SERVICE_LABEL = "kubernetes.io/service-name"


def stateful_set(manifest: Manifest | None, *, wanted: int) -> Workload | None:
    """Return the workload of a StatefulSet with *wanted* pods to be; None if there is none."""
    if manifest is None:
        return None
    status = manifest.get("status") or {}
    # The controller leaves zeros out, and counts no updated pods unless an update is going on.
    is_settled = status.get("updateRevision") == status.get("currentRevision")
    present = int(status.get("replicas", 0))
    return Workload(
        wanted=wanted,
        present=present,
        ready=int(status.get("readyReplicas", 0)),
        updated=present if is_settled else int(status.get("updatedReplicas", 0)),
        is_current=_is_current(manifest),
    )


def nodes_without(found: Iterable[Manifest]) -> tuple[str, ...]:
    """Return the nodes whose shipper exists and is not ready."""
    nodes: dict[str, bool] = {}
    for pod in found:
        node = _node_of(pod)
        if labels_of(pod).get(COMPONENT_LABEL) == Component.SHIPPER.value and node:
            # During an update a node may have two.
            nodes[node] = nodes.get(node, False) or _stays(pod)
    return tuple(sorted(node for node, is_ready in nodes.items() if not is_ready))


def without_ending(
    workload: Workload | None, found: Iterable[Manifest], component: Component
) -> Workload | None:
    """Return *workload* without pods that are being deleted among the ready ones. Kubernetes counts
    them until they have ended, which may take minutes.
    """
    if workload is None:
        return None
    ours = [pod for pod in found if labels_of(pod).get(COMPONENT_LABEL) == component.value]
    return replace(workload, ready=min(workload.ready, sum(_stays(pod) for pod in ours)))


def _stays(pod: Manifest) -> bool:
    return is_ready(pod) and not is_ending(pod)


def _node_of(pod: Manifest) -> str:
    """Return the node that *pod* runs on, or is made for: its DaemonSet sets the affinity."""
    spec = pod.get("spec") or {}
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or []:
        for each in term.get("matchFields") or []:
            if each.get("key") == "metadata.name" and each.get("values"):
                return str(each["values"][0])
    return ""


def daemon_set(manifest: Manifest | None, nodes: tuple[str, ...] = ()) -> Workload | None:
    """Return the workload of a DaemonSet, None if there is none; *nodes* have no ready pod."""
    if manifest is None:
        return None
    status = manifest.get("status") or {}
    return Workload(
        wanted=int(status.get("desiredNumberScheduled", 0)),
        present=int(status.get("currentNumberScheduled", 0)),
        ready=int(status.get("numberReady", 0)),
        updated=int(status.get("updatedNumberScheduled", 0)),
        is_current=_is_current(manifest),
        nodes=nodes,
    )


def spark_application(manifests: Iterable[Manifest]) -> Workload | None:
    """Return the workload of the table's SparkApplication, whichever operator runs it; None if
    there is none.
    """
    found = list(manifests)
    if not found:
        return None
    states = {_spark_state(manifest) for manifest in found}
    return Workload(wanted=1, present=len(found), ready=int(bool(states & _SPARK_RUNS)), updated=1)


def spark_problems(manifests: Iterable[Manifest]) -> list[Finding]:
    """Return the problems that operators for Spark report of applications that do not run."""
    return [
        Finding(
            reason=Reason.TABLE_NOT_READY,
            part=Part.TABLE,
            what=f"{manifest['metadata']['name']}: the SparkApplication is in state "
            f"{_spark_state(manifest)}: {message}",
        )
        for manifest in manifests
        if _spark_state(manifest) not in _SPARK_RUNS and (message := _spark_message(manifest))
    ]


def _spark_state(manifest: Manifest) -> str:
    status = manifest.get("status") or {}
    apache, kubeflow = status.get("currentState") or {}, status.get("applicationState") or {}
    return str(apache.get("currentStateSummary") or kubeflow.get("state") or "")


def _spark_message(manifest: Manifest) -> str:
    status = manifest.get("status") or {}
    apache, kubeflow = status.get("currentState") or {}, status.get("applicationState") or {}
    return str(apache.get("message") or kubeflow.get("errorMessage") or "")


def problems(
    pods: Iterable[Manifest],
    claims: Iterable[Manifest] = (),
    refusals: Mapping[str, str] | None = None,
) -> tuple[Finding, ...]:
    """Return the problems of *pods* that do not run. *claims* are their PersistentVolumeClaims;
    *refusals* has the messages of events FailedCreate, by controller
    (``StatefulSet prod-collector``).
    """
    unbound = {
        str(claim["metadata"]["name"]): _claim_text(claim)
        for claim in claims
        if (claim.get("status") or {}).get("phase") in ("Pending", "Lost")
    }
    found = [finding for pod in pods for finding in _of_pod(pod, unbound)]
    found += [of_pod_refusal(*refusal) for refusal in sorted((refusals or {}).items())]
    return tuple(grouped(found))


def _is_current(manifest: Manifest) -> bool:
    seen = int((manifest.get("status") or {}).get("observedGeneration", 0))
    return seen >= int(manifest["metadata"].get("generation", 0))


def _claim_text(claim: Manifest) -> str:
    spec = claim.get("spec") or {}
    wanted = spec.get("storageClassName")
    kind = f"storage class {wanted}" if wanted else "none, and the cluster has no default class"
    return f"its volume does not exist yet; the claim asks for {kind}"


def _of_pod(pod: Manifest, unbound: Mapping[str, str]) -> list[Finding]:
    metadata = pod["metadata"]
    part = PARTS.get(labels_of(pod).get(COMPONENT_LABEL, ""))
    if part is None or is_ending(pod):
        return []
    found = _of_scheduling(pod, unbound)
    if found is None:
        found = _of_containers(pod)
    if found is None:
        return []
    reason, text = found
    return [Finding(reason=reason, part=part, what=f"{metadata['name']}: {text}")]


def _of_scheduling(pod: Manifest, unbound: Mapping[str, str]) -> tuple[Reason, str] | None:
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") != "False":
        return None
    for volume in (pod.get("spec") or {}).get("volumes") or []:
        text = unbound.get((volume.get("persistentVolumeClaim") or {}).get("claimName", ""))
        if text is not None:
            return Reason.CLAIM_UNBOUND, text
    text = str(scheduled.get("message") or "no node can run it")
    lower = text.lower()
    if "persistentvolumeclaim" in lower or "persistent volumes" in lower:
        return Reason.CLAIM_UNBOUND, text
    return Reason.UNSCHEDULABLE, text


def _of_containers(pod: Manifest) -> tuple[Reason, str] | None:
    status = pod.get("status") or {}
    containers = [
        *(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or []),
    ]  # fmt: skip
    for container in containers:
        name = container.get("name", "")
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = _WAITING.get(str(waiting.get("reason", "")))
        ended = _ended(container)
        if ended.get("reason") == "OOMKilled" and not container.get("ready"):
            return Reason.OUT_OF_MEMORY, f"container {name} used more memory than its limit"
        if reason is Reason.CRASH_LOOPING:
            code = ended.get("exitCode")
            text = f", last with exit code {code}" if code is not None else ""
            return reason, f"container {name} ends after each start{text}{_last_words(ended)}"
        if reason is Reason.IMAGE_NOT_PULLED:
            image = container.get("image", "")
            return reason, f"the image {image} of container {name} cannot be pulled"
        if reason is not None:
            return reason, f"container {name}: {waiting.get('message') or waiting.get('reason')}"
    return None


def _last_words(ended: Mapping[str, Any]) -> str:
    """Return the last error message of one of the program's commands. Other lines of its log have
    times, and would cause a write of the status each time.
    """
    lines = str(ended.get("message") or "").splitlines()
    said = [line.removeprefix(OUR_WORDS) for line in lines if line.startswith(OUR_WORDS)]
    return f": {bounded(said[-1], bytes_max=LAST_WORDS_BYTES_MAX)}" if said else ""


def _ended(container: Mapping[str, Any]) -> Mapping[str, Any]:
    for where in ("state", "lastState"):
        ended = (container.get(where) or {}).get("terminated")
        if ended:
            return dict(ended)
    return {}


def endpoint_problems(
    desired: Iterable[Manifest], slices: Sequence[Manifest], pods: Sequence[Manifest]
) -> list[Finding]:
    """Return the Services of *desired* that have no endpoint for their ready *pods*. Pods that are
    not ready have findings of their own.
    """
    services = [manifest for manifest in desired if manifest["kind"] == "Service"]
    return [finding for service in services for finding in _of_service(service, slices, pods)]


def _of_service(
    service: Manifest, slices: Sequence[Manifest], pods: Sequence[Manifest]
) -> Iterator[Finding]:
    name, selector = str(service["metadata"]["name"]), dict(service["spec"]["selector"])
    ready = {
        str(pod["metadata"]["uid"]): pod
        for pod in pods
        if is_ready(pod) and selector.items() <= labels_of(pod).items()
    }
    reached = ready.keys() & set(_reached(name, slices))
    # A pod that is being deleted counts only if it is the last one.
    missed = sorted(
        str(pod["metadata"]["name"])
        for uid, pod in ready.items()
        if uid not in reached and not is_ending(pod)
    )
    if ready and not reached:
        what = f"Service {name} has no endpoint"
    elif missed:
        what = f"Service {name} has no endpoint for {listed(missed)}"
    else:
        return
    part = PARTS[selector[COMPONENT_LABEL]]
    yield Finding(reason=Reason.NO_ENDPOINTS, part=part, what=what)


def _reached(service: str, slices: Iterable[Manifest]) -> Iterator[str]:
    """Yield the uids of the pods that *service* has endpoints for."""
    for each in slices:
        if labels_of(each).get(SERVICE_LABEL) != service:
            continue
        for endpoint in each.get("endpoints") or []:
            # An endpoint without this condition counts as ready.
            if (endpoint.get("conditions") or {}).get("ready") is not False:
                yield str((endpoint.get("targetRef") or {}).get("uid", ""))
