"""The children of a pipeline in Kubernetes, as values. The same resource and settings always give
the same manifests, whatever the clock, the cluster's state and the operator's version are.

`KINDS` does not contain volume claims and Secrets: an object that holds data, or without which data
cannot be reached, is not deleted because a resource changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from logpipeline.spec import LogPipeline
from logpipeline_operator.children import (
    collectors,
    nats_server,
    policies,
    services,
    shippers,
    table,
)
from logpipeline_operator.children.model import ChildSettings, Component, Manifest, NoImage
from logpipeline_operator.children.names import binding_name
from logpipeline_operator.cluster.kinds import SPARK_APPLICATION, Kind, kind, kind_in

__all__ = [
    "KINDS",
    "ChildSettings",
    "Component",
    "Manifest",
    "NoImage",
    "binding_name",
    "build",
    "kinds",
    "order",
]

# Children are made in this order: objects that pods need come before the pods.
KINDS = tuple(
    kind(name)
    for name in (
        "ServiceAccount",
        "ClusterRoleBinding",
        "ConfigMap",
        "Service",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "StatefulSet",
        "DaemonSet",
    )
)
_ORDER = ("RoleBinding", *(each.name for each in KINDS), "PodMonitor", SPARK_APPLICATION)


def build(pipeline: LogPipeline, settings: ChildSettings) -> list[Manifest]:
    """Return the children of *pipeline* in the order in which they are made, except the Secrets of
    the managed server's users (`server_users`): their passwords are made once.

    Raises:
        NoImage: neither the resource nor the operator names the image of a component.
    """
    children = [
        *nats_server.build(pipeline, settings),
        *collectors.build(pipeline, settings),
        *shippers.build(pipeline, settings),
        *table.build(pipeline, settings),
        *policies.build(pipeline, settings),
    ]
    if settings.features.has_pod_monitors:
        children.append(services.pod_monitor(pipeline))
    return sorted(children, key=order)


def kinds(settings: ChildSettings) -> tuple[Kind, ...]:
    """Return the kinds that children in this cluster may have, wanted or no longer wanted."""
    found = [*KINDS]
    if settings.install.spark_role or settings.install.shipper_role:
        found.append(kind("RoleBinding"))
    if settings.features.spark_api:
        found.append(kind_in(settings.features.spark_api, SPARK_APPLICATION))
    if settings.features.has_pod_monitors:
        found.append(kind("PodMonitor"))
    return tuple(found)


def order(manifest: Mapping[str, Any]) -> tuple[int, str]:
    """Return the sort key of *manifest* for the order in which children are made."""
    return _ORDER.index(manifest["kind"]), str(manifest["metadata"]["name"])
