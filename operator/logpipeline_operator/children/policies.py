"""Who may talk to whom: each component is reached by those that need it, and reaches what it
needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from logpipeline.spec import LogPipeline
from logpipeline_operator.children import labels, names
from logpipeline_operator.children.model import (
    COLLECTOR_PORT,
    DNS_PORT,
    NATS_CLUSTER_PORT,
    NATS_MONITOR_PORT,
    NATS_PORT,
    SHIPPER_PORT,
    ChildSettings,
    Component,
    Manifest,
)
from logpipeline_operator.children.shippers import asks_kubernetes

# Where the API server listens, behind its Service and without.
API_PORTS = (443, 6443)
_SCHEME_PORTS = {"ws": 80, "wss": 443}


def build(pipeline: LogPipeline, settings: ChildSettings) -> list[Manifest]:
    """Return the NetworkPolicies, if they are wanted."""
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
    if not pipeline.spec.nats.servers:
        found.append(_nats(pipeline))
    return found


def _nats(pipeline: LogPipeline) -> Manifest:
    own = {"podSelector": {"matchLabels": labels.selector(pipeline, Component.NATS)}}
    # Collectors and shippers, and any pod with a shipper as its sidecar; passwords do the rest.
    clients: Manifest = {"podSelector": {}}
    operator = {
        "namespaceSelector": {},
        "podSelector": {
            "matchLabels": {
                labels.NAME_LABEL: labels.NAME,
                labels.COMPONENT_LABEL: labels.OPERATOR_COMPONENT,
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
        ],
        egress=[{"to": [own], "ports": _ports(NATS_CLUSTER_PORT)}, _TO_DNS],
    )


def _to_nats(pipeline: LogPipeline) -> list[Manifest]:
    servers = pipeline.spec.nats.servers
    if not servers:
        own = {"podSelector": {"matchLabels": labels.selector(pipeline, Component.NATS)}}
        return [{"to": [own], "ports": _ports(NATS_PORT)}, _TO_DNS]
    # A policy knows no names of hosts: the port is all that can be said.
    return [{"ports": _ports(*sorted({_port(url) for url in servers}))}, _TO_DNS]


def _port(url: str) -> int:
    parts = urlsplit(url)
    try:
        chosen = parts.port
    except ValueError:
        # A client will refuse it, and say so.
        chosen = None
    return chosen or _SCHEME_PORTS.get(parts.scheme, NATS_PORT)


def _from_anywhere(port: int) -> Manifest:
    """Return the rule for who scrapes metrics, wherever that runs in the cluster."""
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
        "metadata": labels.metadata(pipeline, name, component),
        "spec": {
            "podSelector": {"matchLabels": labels.selector(pipeline, component)},
            "policyTypes": ["Egress", "Ingress"],
            "ingress": list(ingress),
            "egress": list(egress),
        },
    }
