"""What there is of a pipeline, in Kubernetes and in JetStream, as values that two runs can be
compared by: without what differs between any two objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from logpipeline.nats.bucket import Bucket
from logpipeline.nats.jetstream import JetStream
from logpipeline.plan.observe import consumers_of
from logpipeline.spec.api import PIPELINE_LABEL
from logpipeline_operator.cluster.client import FIELD_MANAGER, Cluster
from logpipeline_operator.cluster.kinds import kind

NAME = "p"
CHILDREN = (
    "ConfigMap",
    "Service",
    "ServiceAccount",
    "DaemonSet",
    "StatefulSet",
    "PodDisruptionBudget",
    "NetworkPolicy",
)
# Of any two objects different, or hashes of what is compared anyway.
LEFT_OUT = frozenset(
    {
        "uid",
        "resourceVersion",
        "generation",
        "deprecated.daemonset.template.generation",
        "observedGeneration",
        "creationTimestamp",
        "deletionTimestamp",
        "lastTransitionTime",
        "lastChecked",
        "claimedAt",
        "time",
        "created",
        "clusterIP",
        "clusterIPs",
        "logpipeline.dev/applied",
        "logpipeline.dev/config-hash",
    }
)

UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SHOWN_CHARS_MAX = 3000

State = dict[str, Any]


async def state_of(kube: Cluster, js: JetStream, namespace: str) -> State:
    """Return the pipeline of *namespace*, its children and what JetStream holds for it."""
    resource = await kube.get(kind("LogPipeline"), namespace, NAME)
    children: State = {}
    for name in CHILDREN:
        found, _ = await kube.list(kind(name), namespace, f"{PIPELINE_LABEL}={NAME}")
        for each in found:
            children[f"{name} {each['metadata']['name']}"] = _child(each)
    binding = await kube.get(kind("ClusterRoleBinding"), None, binding_of(namespace))
    state = {
        "resource": _resource(resource) if resource else None,
        "children": children,
        "binding": _child(binding) if binding else None,
        "allowed": await _allowed(kube, namespace),
        "jetstream": await jetstream_of(js, namespace),
    }
    text = json.dumps(_cleaned(state), sort_keys=True).replace(namespace, "NAMESPACE")
    # Managed fields name owners by their uid.
    cleaned: State = json.loads(UID.sub("UID", text))
    return cleaned


async def _allowed(kube: Cluster, namespace: str) -> list[State]:
    """Return what the operator keeps of versions that the class allowed: one, once it is done. A
    StatefulSet has revisions of its own.
    """
    found, _ = await kube.list(kind("ControllerRevision"), namespace, f"{PIPELINE_LABEL}={NAME}")
    return [each["data"] for each in found if f"{NAME}-allowed-" in each["metadata"]["name"]]


async def unfinished(kube: Cluster, namespace: str) -> list[str]:
    """Return the children of which Kubernetes' own controllers have not made yet what they say: the
    pipeline's status will change once more when they have.
    """
    found = []
    for name in ("StatefulSet", "DaemonSet"):
        for each in (await kube.list(kind(name), namespace, f"{PIPELINE_LABEL}={NAME}"))[0]:
            spec, status = each["spec"], each.get("status") or {}
            is_seen = status.get("observedGeneration") == each["metadata"]["generation"]
            if not is_seen or status.get("replicas", 0) != spec.get("replicas", 0):
                found.append(f"{name} {each['metadata']['name']}")
    return found


def binding_of(namespace: str) -> str:
    """Return the name of the one child that has no namespace."""
    return f"logpipeline-shipper:{namespace}:{NAME}"


async def jetstream_of(js: JetStream, namespace: str) -> State:
    """Return configurations and keys of all streams that belong to pipelines of *namespace*.

    Raises:
        ApiError: a stream went away meanwhile.
    """
    names = (await js.call("STREAM.NAMES"))["streams"] or []
    found: State = {}
    for name in sorted(name for name in names if namespace in name):
        config = (await js.call(f"STREAM.INFO.{name}"))["config"]
        consumers = await consumers_of(js, name)
        found[name] = {
            "config": config,
            "consumers": {each["name"]: each["config"] for each in consumers},
        }
        if name.startswith("KV_"):
            found[name]["keys"] = await _keys(js, name)
    return found


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Return where two states differ, for messages."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        keys = sorted({*one, *other})
        found = [differences(one.get(key), other.get(key), f"{path}/{key}") for key in keys]
        return [line for lines in found for line in lines]
    if one == other:
        return []
    return [f"{path}: {str(one)[:SHOWN_CHARS_MAX]} or {str(other)[:SHOWN_CHARS_MAX]}"]


async def _keys(js: JetStream, stream: str) -> State:
    info = await js.call(f"STREAM.INFO.{stream}", {"subjects_filter": ">"})
    bucket = Bucket(js, stream.removeprefix("KV_"))
    keys: State = {}
    for subject in info["state"].get("subjects") or {}:
        key = subject.split(".", 2)[2]
        entry = await bucket.get(key)
        keys[key] = _cleaned(json.loads(entry.value)) if entry else None
    return keys


def _resource(resource: State) -> State:
    metadata = resource["metadata"]
    return {
        "spec": resource["spec"],
        "status": resource.get("status"),
        "finalizers": metadata.get("finalizers"),
        "is deleted": "deletionTimestamp" in metadata,
    }


def _child(child: State) -> State:
    metadata = {**child["metadata"]}
    # Others' fields come when they come.
    metadata["managedFields"] = [
        entry for entry in metadata.get("managedFields", []) if entry["manager"] == FIELD_MANAGER
    ]
    return {key: value for key, value in child.items() if key != "status"} | {"metadata": metadata}


def _cleaned(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _cleaned(each) for key, each in value.items() if key not in LEFT_OUT}
    if isinstance(value, list):
        return [_cleaned(each) for each in value]
    return value
