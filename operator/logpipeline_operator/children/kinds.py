"""Which kinds of children a pipeline may have, so that those which are no longer wanted are found.

Claims and the Secret of the managed server's users are not among them: nothing that holds data, or
without which data cannot be reached, goes because a resource changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from logpipeline_operator.children.model import ChildSettings


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
ROLE_BINDING = ChildKind("rbac.authorization.k8s.io/v1", "RoleBinding")
# Of the one or the other operator for Spark.
SPARK_APPLICATION = "SparkApplication"
POD_MONITOR = ChildKind("monitoring.coreos.com/v1", "PodMonitor")


def kinds(settings: ChildSettings) -> tuple[ChildKind, ...]:
    """Return the kinds of which there may be children in this cluster."""
    found = [*KINDS]
    if settings.spark_role or settings.shipper_role:
        found.append(ROLE_BINDING)
    if settings.spark_api:
        found.append(ChildKind(settings.spark_api, SPARK_APPLICATION))
    if settings.has_pod_monitors:
        found.append(POD_MONITOR)
    return tuple(found)


def order(manifest: Mapping[str, Any]) -> tuple[int, str]:
    """Return the place of *manifest* in the order in which children are made."""
    known = [kind.kind for kind in (ROLE_BINDING, *KINDS, POD_MONITOR)] + [SPARK_APPLICATION]
    place = known.index(manifest["kind"])
    return place, str(manifest["metadata"]["name"])
