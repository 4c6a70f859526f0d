"""The objects around pods: Services, accounts and their bindings, claims, disruption budgets and
monitors.
"""

from __future__ import annotations

from collections.abc import Mapping

from logpipeline.spec import LogPipeline
from logpipeline.spec.api import COMPONENT_LABEL, PIPELINE_LABEL
from logpipeline.spec.components import Persistence
from logpipeline.spec.table import TableVolume
from logpipeline_operator.children import model
from logpipeline_operator.children.model import Component, Manifest, Scraping, quantity

# Other components serve no metrics that this monitor can scrape.
MONITORED = (Component.TABLE, Component.COLLECTOR, Component.SHIPPER, Component.NATS)


def service(
    pipeline: LogPipeline,
    component: Component,
    name: str,
    ports: Mapping[str, int],
    *,
    is_headless: bool,
) -> Manifest:
    """Return the Service *name* of *component*'s pods. A headless one gives each pod a name, ready
    or not; another one leads to ready pods.
    """
    spec: Manifest = {
        "type": "ClusterIP",
        "selector": model.selector(pipeline, component),
        "ports": [
            {"name": port, "port": number, "targetPort": port, "protocol": "TCP"}
            for port, number in ports.items()
        ],
    }
    if is_headless:
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": model.metadata(pipeline, name, component),
        "spec": spec,
    }


def service_account(pipeline: LogPipeline, component: Component, name: str) -> Manifest:
    """Return the ServiceAccount *name*. Pods that need its token mount it by their own setting."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": model.metadata(pipeline, name, component),
        "automountServiceAccountToken": False,
    }


def role_binding(
    pipeline: LogPipeline, kind: str, role: str, account: str, metadata: Manifest
) -> Manifest:
    """Return the binding of *account* in the pipeline's namespace to *role*, which is a Kind/name,
    or the name of a ClusterRole; *kind* is that of the binding.
    """
    role_kind, _, role_name = role.rpartition("/")
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": role_kind or "ClusterRole",
            "name": role_name,
        },
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": pipeline.namespace}],
    }


def disruption_budget(
    pipeline: LogPipeline,
    component: Component,
    name: str,
    *,
    max_unavailable: int | str | None = None,
    unhealthy_policy: str = "AlwaysAllow",
) -> Manifest:
    """Return the budget *name*: how many pods may be evicted at once, one by default."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": model.metadata(pipeline, name, component),
        "spec": {
            "maxUnavailable": 1 if max_unavailable is None else max_unavailable,
            "selector": {"matchLabels": model.selector(pipeline, component)},
            # A broken pod must not keep a node from being drained.
            "unhealthyPodEvictionPolicy": unhealthy_policy,
        },
    }


def pod_monitor(pipeline: LogPipeline, scraping: Scraping) -> Manifest:
    """Return the PodMonitor, by which Prometheus' operator scrapes the components."""
    found = model.selector(pipeline, Component.COLLECTOR)
    del found[COMPONENT_LABEL]
    metadata = model.metadata(pipeline, pipeline.name)
    metadata["labels"] = {**scraping.labels, **metadata["labels"]}
    if scraping.annotations:
        metadata["annotations"] = dict(scraping.annotations)
    often = model.given({"interval": scraping.interval, "scrapeTimeout": scraping.timeout})
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": metadata,
        "spec": {
            "selector": {
                "matchLabels": found,
                "matchExpressions": [
                    {
                        "key": COMPONENT_LABEL,
                        "operator": "In",
                        "values": [each.value for each in MONITORED],
                    }
                ],
            },
            "podMetricsEndpoints": [{"port": "http", "path": "/metrics", **often}],
            "podTargetLabels": [COMPONENT_LABEL, PIPELINE_LABEL],
        },
    }


def own_claims(
    pipeline: LogPipeline,
    component: Component,
    name: str,
    volume: Persistence | TableVolume,
) -> Manifest:
    """Return the fields of a StatefulSet that give each pod a claim of its own."""
    template = claim_template(
        pipeline,
        component,
        name,
        size_bytes=volume.size,
        storage_class=volume.storage_class_name,
    )
    return {
        "volumeClaimTemplates": [template],
        "persistentVolumeClaimRetentionPolicy": {
            "whenDeleted": volume.retention_policy.when_deleted,
            "whenScaled": volume.retention_policy.when_scaled,
        },
    }


def claim_template(
    pipeline: LogPipeline,
    component: Component,
    name: str,
    *,
    size_bytes: int,
    storage_class: str | None,
) -> Manifest:
    """Return the template of the claim that each pod of a StatefulSet gets."""
    spec: Manifest = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": quantity(size_bytes)}},
    }
    # An empty class is a choice, too: a volume that was made by hand.
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": model.labels(pipeline, component)},
        "spec": spec,
    }
