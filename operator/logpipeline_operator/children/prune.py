"""Which kinds of children a pipeline may have, so that those which are no longer wanted are found.

Claims and the Secret of the managed server's users are not among them: nothing that holds data, or
without which data cannot be reached, goes because a resource changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from logpipeline.spec import LogPipeline
from logpipeline_operator.children import labels
from logpipeline_operator.children.model import ChildSettings, Manifest

Place = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class ChildKind:
    """A kind of children as manifests name it."""

    api_version: str
    kind: str
    is_namespaced: bool = True


# In the order in which they are made: what pods need comes before them.
KINDS = (
    ChildKind("v1", "ServiceAccount"),
    ChildKind("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", is_namespaced=False),
    ChildKind("v1", "ConfigMap"),
    ChildKind("v1", "Service"),
    ChildKind("networking.k8s.io/v1", "NetworkPolicy"),
    ChildKind("policy/v1", "PodDisruptionBudget"),
    ChildKind("apps/v1", "StatefulSet"),
    ChildKind("apps/v1", "DaemonSet"),
)
POD_MONITOR = ChildKind("monitoring.coreos.com/v1", "PodMonitor")


def kinds(settings: ChildSettings) -> tuple[ChildKind, ...]:
    """Return the kinds of which there may be children in this cluster."""
    return (*KINDS, POD_MONITOR) if settings.has_pod_monitors else KINDS


def order(manifest: Mapping[str, Any]) -> tuple[int, str]:
    """Return the place of *manifest* in the order in which children are made."""
    known = [(kind.api_version, kind.kind) for kind in (*KINDS, POD_MONITOR)]
    place = known.index((manifest["apiVersion"], manifest["kind"]))
    return place, str(manifest["metadata"]["name"])


def prune(
    pipeline: LogPipeline, wanted: Iterable[Manifest], found: Iterable[Manifest]
) -> list[Manifest]:
    """Return those of *found* that are this pipeline's children, and not *wanted* any more."""
    kept = {_place(manifest) for manifest in wanted}
    known = {kind.kind for kind in (*KINDS, POD_MONITOR)}
    return [
        manifest
        for manifest in found
        if _place(manifest) not in kept
        and manifest["kind"] in known
        and _is_child(pipeline, manifest)
    ]


def _is_child(pipeline: LogPipeline, manifest: Manifest) -> bool:
    metadata = manifest["metadata"]
    owners = metadata.get("ownerReferences") or []
    if "namespace" in metadata:
        return any(owner.get("uid") == pipeline.uid for owner in owners)
    # No owner in a namespace can have it; it tells by its labels whose it is.
    given = metadata.get("labels") or {}
    return (
        given.get(labels.MANAGED_BY_LABEL) == labels.MANAGED_BY
        and given.get(labels.PIPELINE_LABEL) == pipeline.name
        and given.get(labels.NAMESPACE_LABEL) == pipeline.namespace
    )


def _place(manifest: Mapping[str, Any]) -> Place:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]
