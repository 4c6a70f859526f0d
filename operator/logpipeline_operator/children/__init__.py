"""The children of a pipeline in Kubernetes, as values. The same resource and settings always give
the same manifests, whatever the clock, the cluster's state and the operator's version are.

`KINDS` does not contain volume claims and Secrets: an object that holds data, or without which data
cannot be reached, is not deleted because a resource changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from logpipeline_operator.children.model import (
    ChildSettings,
    Component,
    Desired,
    Manifest,
    NoImage,
    NoSparkApi,
    Undecided,
)
from logpipeline_operator.children.names import binding_name
from logpipeline_operator.cluster.kinds import SPARK_APPLICATION, Kind, kind, kind_in

__all__ = [
    "KINDS",
    "ChildSettings",
    "Component",
    "Desired",
    "Manifest",
    "NoImage",
    "NoSparkApi",
    "Undecided",
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
_BUILDERS: tuple[
    tuple[tuple[Component, ...], Callable[[LogPipeline, ChildSettings], list[Manifest]]], ...
] = (
    ((Component.NATS,), nats_server.build),
    ((Component.COLLECTOR,), collectors.build),
    ((Component.SHIPPER,), shippers.build),
    ((Component.TABLE, Component.EXECUTOR), table.build),
)
_ORDER = ("RoleBinding", *(each.name for each in KINDS), "PodMonitor", SPARK_APPLICATION)


def build(pipeline: LogPipeline, settings: ChildSettings) -> Desired:
    """Return the children of *pipeline*, except the Secrets of the managed server's users
    (`server_users`): their passwords are made once. A component that cannot be decided does not
    keep the others back.
    """
    children = policies.build(pipeline, settings)
    if settings.features.has_pod_monitors:
        children.append(services.pod_monitor(pipeline, settings.install.scraping))
    undecided: dict[Component, Undecided] = {}
    for components, builder in _BUILDERS:
        try:
            children += builder(pipeline, settings)
        except Undecided as why:
            undecided |= dict.fromkeys(components, why)
    return Desired(manifests=tuple(sorted(children, key=order)), undecided=undecided)


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
