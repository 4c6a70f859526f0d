"""Where the tool keeps things: what is built once, and one folder for each cluster."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

# Two nodes show everything that one cannot: spreading, draining, logs of the own node only.
NODES = ("node-1", "node-2")
# Where the processes of a cluster without nodes have their folder, in the place of a node's.
MACHINE = "machine"

SOURCES = Path(__file__).resolve().parents[3] / "cluster"
PROJECT = SOURCES.parents[1]


def cache() -> Path:
    """The folder of everything that outlives a cluster, and of the clusters themselves."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "logpipeline-cluster"


@dataclass(frozen=True, slots=True)
class ClusterPlaces:
    """Everything of the cluster named *name* that stands on disk."""

    name: str

    @property
    def folder(self) -> Path:
        return cache() / "clusters" / self.name

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def certificates(self) -> Path:
        return self.folder / "certificates"

    @property
    def record(self) -> Path:
        """What is needed to end the cluster, written before anything is started."""
        return self.folder / "cluster.json"

    @property
    def ready(self) -> Path:
        """Exists once the cluster is up: without it, its creator was killed on the way."""
        return self.folder / "ready"

    @property
    def audit_log(self) -> Path:
        return self.folder / "audit.log"

    def node(self, node: str) -> Path:
        return self.folder / node

    def node_logs(self, node: str) -> Path:
        """The node's own /var/log, seen from the machine."""
        return self.node(node) / "log"

    def node_data(self, node: str) -> Path:
        """The node's own /var/lib, seen from the machine."""
        return self.node(node) / "lib"

    def process_logs(self, node: str) -> Path:
        """What the node's own processes print: kubelet, containerd, on the first kube-apiserver."""
        return self.node(node) / "processes"

    def containerd_socket(self, node: str) -> Path:
        # A socket's path may have 107 bytes only: so it stands high and is named shortly.
        return self.folder / f"{node}.sock"
