"""The children of a pipeline in Kubernetes, as values: the same resource always gives the same
manifests, whatever the clock, the cluster and the operator's version say.
"""

from __future__ import annotations

from logpipeline.spec import LogPipeline
from logpipeline_operator.children import (
    collectors,
    nats_server,
    policies,
    services,
    shippers,
    table,
)
from logpipeline_operator.children.kinds import KINDS, ChildKind, kinds, order
from logpipeline_operator.children.model import ChildSettings, Component, Manifest, NoImage
from logpipeline_operator.children.names import binding_name

__all__ = [
    "KINDS",
    "ChildKind",
    "ChildSettings",
    "Component",
    "Manifest",
    "NoImage",
    "binding_name",
    "build",
    "kinds",
    "order",
]


def build(pipeline: LogPipeline, settings: ChildSettings) -> list[Manifest]:
    """Return the children of *pipeline*, in the order in which they are made, but for the Secret
    of the managed server's users (`credentials.secret`), which is made once.

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
    if settings.has_pod_monitors:
        children.append(services.pod_monitor(pipeline))
    return sorted(children, key=order)
