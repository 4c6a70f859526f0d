"""The NetworkPolicies: each component may connect only to what it needs."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from logpipeline.spec import LogPipeline
from logpipeline.spec.api import COMPONENT_LABEL
from logpipeline_operator.children import model, names, table
from logpipeline_operator.children.model import (
    CALLOUT_PORT,
    COLLECTOR_PORT,
    DNS_PORT,
    NATS_CLUSTER_PORT,
    NATS_MONITOR_PORT,
    NATS_PORT,
    SHIPPER_PORT,
    SPARK_BLOCKS_PORT,
    SPARK_DRIVER_PORT,
    TABLE_PORT,
    ChildSettings,
    Component,
    Manifest,
)
from logpipeline_operator.children.shippers import asks_kubernetes

# The ports of the API server, behind its Service and without.
API_PORTS = (443, 6443)
_SCHEME_PORTS = {"ws": 80, "wss": 443}
_WEB_PORTS = {"http": 80, "https": 443}
# The metadata service of a cloud, from which a pod gets its keys.
_IDENTITY_PORT = 80


def build(pipeline: LogPipeline, settings: ChildSettings) -> list[Manifest]:
    """Return the NetworkPolicies, if they are enabled."""
    if not pipeline.spec.network_policy.enabled:
        return []
    shippers, collector = pipeline.spec.shippers, Component.COLLECTOR
    found = [
        _policy(
            pipeline,
            collector,
            names.collector(pipeline),
            ingress=[_from_anywhere(COLLECTOR_PORT)],
            egress=_to_nats(pipeline),
        )
    ]
    if shippers.enabled and shippers.mode == "daemonset":
        api = [{"ports": _ports(*API_PORTS)}] if asks_kubernetes(pipeline, settings) else []
        found.append(
            _policy(
                pipeline,
                Component.SHIPPER,
                names.shipper(pipeline),
                ingress=[_from_anywhere(SHIPPER_PORT)],
                egress=[*_to_nats(pipeline), *api],
            )
        )
    if pipeline.spec.table.enabled:
        found += _table(pipeline)
    if not pipeline.spec.nats.servers:
        found.append(_nats(pipeline, settings))
    return found


def _table(pipeline: LogPipeline) -> list[Manifest]:
    """Return the policies of the table's job and of its executors."""
    outside = [*_to_nats(pipeline), *_to_tables(pipeline)]
    ingress, egress = [_from_anywhere(TABLE_PORT)], list(outside)
    if not table.has_executors(pipeline):
        name = names.table(pipeline)
        return [_policy(pipeline, Component.TABLE, name, ingress=ingress, egress=egress)]
    driver, workers = (
        {"podSelector": {"matchLabels": model.selector(pipeline, component)}}
        for component in (Component.TABLE, Component.EXECUTOR)
    )
    to_driver = _ports(SPARK_DRIVER_PORT, SPARK_BLOCKS_PORT)
    blocks = _ports(SPARK_BLOCKS_PORT)
    return [
        _policy(
            pipeline,
            Component.TABLE,
            names.table(pipeline),
            ingress=[*ingress, {"from": [workers], "ports": to_driver}],
            egress=[*egress, {"to": [workers], "ports": blocks}, {"ports": _ports(*API_PORTS)}],
        ),
        _policy(
            pipeline,
            Component.EXECUTOR,
            names.executor(pipeline),
            ingress=[{"from": [driver, workers], "ports": blocks}],
            egress=[
                *outside,
                {"to": [driver], "ports": to_driver},
                {"to": [workers], "ports": blocks},
            ],
        ),
    ]


def _to_tables(pipeline: LogPipeline) -> list[Manifest]:
    """Return the rule for the ports of the bucket and of the catalog."""
    asked = pipeline.spec.table
    found: set[int] = set()
    if table.is_in_bucket(pipeline):
        found.add(_web_port(asked.s3.endpoint or "https://"))
        if asked.s3.secret is None:
            found.add(_IDENTITY_PORT)
    if uri := asked.catalog.get("uri"):
        found.add(_web_port(uri))
    return [{"ports": _ports(*sorted(found))}] if found else []


def _nats(pipeline: LogPipeline, settings: ChildSettings) -> Manifest:
    own = {"podSelector": {"matchLabels": model.selector(pipeline, Component.NATS)}}
    metrics = [_from_anywhere(CALLOUT_PORT)] if settings.has_callout else []
    # Collectors, shippers, and any pod with a sidecar; the server checks credentials.
    clients: Manifest = {"podSelector": {}}
    operator = {
        "namespaceSelector": {},
        "podSelector": {
            "matchLabels": {
                model.NAME_LABEL: model.NAME,
                COMPONENT_LABEL: model.OPERATOR_COMPONENT,
            }
        },
    }
    return _policy(
        pipeline,
        Component.NATS,
        names.nats(pipeline),
        ingress=[
            {"from": [clients, operator], "ports": _ports(NATS_PORT)},
            {"from": [operator], "ports": _ports(NATS_MONITOR_PORT)},
            {"from": [own], "ports": _ports(NATS_CLUSTER_PORT)},
            *metrics,
        ],
        egress=[{"to": [own], "ports": _ports(NATS_CLUSTER_PORT)}, _TO_DNS],
    )


def _to_nats(pipeline: LogPipeline) -> list[Manifest]:
    servers = pipeline.spec.nats.servers
    if not servers:
        own = {"podSelector": {"matchLabels": model.selector(pipeline, Component.NATS)}}
        return [{"to": [own], "ports": _ports(NATS_PORT)}, _TO_DNS]
    # A policy cannot name hosts, only ports.
    return [{"ports": _ports(*sorted({_port(url) for url in servers}))}, _TO_DNS]


def _port(url: str) -> int:
    return _chosen_port(url) or _SCHEME_PORTS.get(urlsplit(url).scheme, NATS_PORT)


def _web_port(url: str) -> int:
    return _chosen_port(url) or _WEB_PORTS.get(urlsplit(url).scheme, _WEB_PORTS["https"])


def _chosen_port(url: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError:
        # The client refuses such a URL with a message.
        return None


def _from_anywhere(port: int) -> Manifest:
    """Return the rule for scraping metrics, from any namespace of the cluster."""
    return {"from": [{"namespaceSelector": {}}], "ports": _ports(port)}


def _ports(*ports: int) -> list[Manifest]:
    return [{"protocol": "TCP", "port": port} for port in ports]


_TO_DNS: Manifest = {
    "ports": [{"protocol": protocol, "port": DNS_PORT} for protocol in ("UDP", "TCP")]
}


def _policy(
    pipeline: LogPipeline,
    component: Component,
    name: str,
    *,
    ingress: Sequence[Manifest],
    egress: Sequence[Manifest],
) -> Manifest:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": model.metadata(pipeline, name, component),
        "spec": {
            "podSelector": {"matchLabels": model.selector(pipeline, component)},
            "policyTypes": ["Egress", "Ingress"],
            "ingress": list(ingress),
            "egress": list(egress),
        },
    }
