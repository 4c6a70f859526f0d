"""Nodes that only pretend, by kwok: hundreds of pods become ready and nothing runs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.bare import binaries
from cluster.handle import Cluster
from waiting import WITHIN_S

LABEL = "type"
VALUE = "kwok"
# Real pods keep away; those for the fake nodes tolerate this.
TAINT = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
TOLERATION = {"key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule"}
SELECTOR = {LABEL: VALUE}
PODS_PER_NODE = "1000"
LEASE_S = 40


@contextmanager
def fake_nodes(cluster: Cluster, count: int, log: Path) -> Iterator[tuple[str, ...]]:
    """Give the cluster *count* more nodes meanwhile; kwok writes to *log*."""
    names = tuple(f"fake-{number}" for number in range(count))
    command = [
        str(binaries.build(binaries.KWOK) / "kwok"),
        f"--kubeconfig={cluster.kubeconfig}",
        "--config=/dev/null",
        "--manage-all-nodes=false",
        # Without a Lease a node is taken for dead after a minute, and its pods with it.
        f"--node-lease-duration-seconds={LEASE_S}",
        f"--manage-nodes-with-label-selector={LABEL}={VALUE}",
    ]
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            cluster.apply(*map(_node, names))
            yield names
        finally:
            cluster.kubectl("delete", "nodes", "--wait=false", *names, check=False)
            process.terminate()
            process.wait(WITHIN_S)


def _node(name: str) -> dict[str, object]:
    capacity = {"cpu": "64", "memory": "256Gi", "pods": PODS_PER_NODE}
    labels = {LABEL: VALUE, "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": [TAINT]},
        "status": {"capacity": capacity, "allocatable": capacity, "phase": "Running"},
    }
