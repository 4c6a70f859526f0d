"""What every new cluster holds: the way to its DNS, and volumes without a provisioner."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cluster.bare.network import Addresses

DNS_PORT = 53
# A volume is a folder of a node. Claims ask for a size; nothing holds a pod to it.
VOLUME_CAPACITY = "100Gi"
# Scaling, rolling and second pipelines at once need some dozens; an object costs nothing.
VOLUMES_PER_NODE = 40
VOLUME_FOLDER = "volumes"
STORAGE_CLASS = "local"

Manifest = dict[str, Any]


def manifests(addresses: Addresses, nodes: Iterable[str]) -> Manifest:
    """Everything that is applied once the API server answers, as one List."""
    volumes = (volume(n, i) for n in nodes for i in range(VOLUMES_PER_NODE))
    items = [*_dns(addresses), *_dns_rights(), _storage_class(), *volumes]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def volume_name(node: str, index: int) -> str:
    """The name of the object, and of the folder of the node that it stands for."""
    return f"{node}-volume-{index}"


def volume(node: str, index: int) -> Manifest:
    """A folder of *node* as a volume. Kubelet gives a local volume's files to a pod's fsGroup."""
    name = volume_name(node, index)
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": VOLUME_CAPACITY},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": STORAGE_CLASS,
            "local": {"path": f"/var/lib/{VOLUME_FOLDER}/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


def _storage_class() -> Manifest:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def _dns(addresses: Addresses) -> list[Manifest]:
    """The usual Service, before a CoreDNS that is a program of the first node."""
    names = [("dns", "UDP"), ("dns-tcp", "TCP")]
    ports = [{"name": name, "port": DNS_PORT, "protocol": protocol} for name, protocol in names]
    where = {"namespace": "kube-system"}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", **where},
        "spec": {"clusterIP": str(addresses.dns_service), "ports": ports},
    }
    slice_ = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kube-dns-program",
            "labels": {"kubernetes.io/service-name": "kube-dns"},
            **where,
        },
        "addressType": "IPv4",
        "ports": ports,
        "endpoints": [{"addresses": [str(addresses.node(0))]}],
    }
    return [service, slice_]


def _dns_rights() -> list[Manifest]:
    group = "rbac.authorization.k8s.io"
    name = "system:coredns"
    reads = ["list", "watch"]
    rules = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": reads},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": reads},
    ]
    kinds = {"apiVersion": f"{group}/v1", "metadata": {"name": name}}
    role = {**kinds, "kind": "ClusterRole", "rules": rules}
    binding = {
        **kinds,
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
    }
    return [role, binding]
