"""The children of a pipeline in Kubernetes, as values: the same resource always gives the same
manifests, whatever the clock, the cluster and the operator's version say.
"""

from __future__ import annotations

from logpipeline.spec import LogPipeline
from logpipeline_operator.children import (
    collectors,
    driver,
    managed_nats,
    policies,
    services,
    shippers,
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
    of the managed server's users (`nats_auth.secret`), which is made once.

    Raises:
        NoImage: neither the resource nor the operator names the image of a component.
    """
    children = [
        *managed_nats.build(pipeline, settings),
        *collectors.build(pipeline, settings),
        *shippers.build(pipeline, settings),
        *driver.build(pipeline, settings),
        *policies.build(pipeline, settings),
    ]
    if settings.has_pod_monitors:
        children.append(services.pod_monitor(pipeline))
    return sorted(children, key=order)
