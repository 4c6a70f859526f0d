"""The kinds that the operator reads or writes, with their paths in Kubernetes' API. A fixed table
needs no discovery, and so no right to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from logpipeline.spec.api import API_VERSION, CLASS_KIND, CLASS_PLURAL, KIND, PLURAL


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind: *group_version* as manifests write it, *plural* as paths do."""

    group_version: str
    name: str
    plural: str
    is_namespaced: bool = True

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """Return the path of one object, or of all of *namespace*, or of all namespaces (None)."""
        root = f"/{'api' if self.group_version == 'v1' else 'apis'}/{self.group_version}"
        if self.is_namespaced and namespace is not None:
            root += f"/namespaces/{quote(namespace, safe='')}"
        parts = [root, self.plural, quote(name, safe=""), subresource]
        return "/".join(part for part in parts if part)


_TABLE = (
    Kind(API_VERSION, KIND, PLURAL),
    Kind(API_VERSION, CLASS_KIND, CLASS_PLURAL, is_namespaced=False),
    Kind("v1", "ConfigMap", "configmaps"),
    Kind("v1", "Namespace", "namespaces", is_namespaced=False),
    Kind("v1", "Event", "events"),
    Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    Kind("v1", "Pod", "pods"),
    Kind("v1", "Secret", "secrets"),
    Kind("v1", "Service", "services"),
    Kind("v1", "ServiceAccount", "serviceaccounts"),
    Kind("coordination.k8s.io/v1", "Lease", "leases"),
    Kind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices"),
    Kind("apps/v1", "ControllerRevision", "controllerrevisions"),
    Kind("apps/v1", "DaemonSet", "daemonsets"),
    Kind("apps/v1", "StatefulSet", "statefulsets"),
    Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
    Kind(
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        "clusterrolebindings",
        is_namespaced=False,
    ),
    Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings"),
    Kind("monitoring.coreos.com/v1", "PodMonitor", "podmonitors"),
)
SPARK_APPLICATION = "SparkApplication"
SPARK_APACHE = "spark.apache.org/v1"
SPARK_KUBEFLOW = "sparkoperator.k8s.io/v1beta2"
# If a cluster has both, Spark's own operator is used.
SPARK_APIS = (SPARK_APACHE, SPARK_KUBEFLOW)
_APPLICATIONS = tuple(Kind(api, SPARK_APPLICATION, "sparkapplications") for api in SPARK_APIS)
_BY_NAME = {(kind.group_version, kind.name): kind for kind in (*_TABLE, *_APPLICATIONS)}
_BY_KIND = {kind.name: kind for kind in _TABLE}


def kind(name: str) -> Kind:
    """Return the kind called *name*, such as ``StatefulSet``."""
    return _BY_KIND[name]


def kind_in(api_version: str, name: str) -> Kind:
    """Return the kind called *name* of *api_version*.

    Raises:
        KeyError: the operator does not handle it.
    """
    return _BY_NAME[api_version, name]


def kind_of(manifest: Mapping[str, Any]) -> Kind:
    """Return the kind that *manifest* says it is.

    Raises:
        KeyError: the operator does not handle it.
    """
    return kind_in(manifest["apiVersion"], manifest["kind"])
