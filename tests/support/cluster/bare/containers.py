"""Talk to a node's containerd from outside, and clear away what its containers leave behind."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cluster.bare.places import ClusterPlaces
from cluster.bare.running import run, succeeds, wait_until

START_DEADLINE_S = 30.0
# Kubelet's containers are in this namespace of containerd.
NAMESPACE = "k8s.io"
GROUPS = Path("/sys/fs/cgroup")


def await_containerd(at: ClusterPlaces, node: str) -> None:
    """Return once the node's containerd answers."""
    wait_until(
        lambda: succeeds(*_ctr(at, node), "version"),
        what=f"containerd of {node}",
        within_s=START_DEADLINE_S,
    )


def load(at: ClusterPlaces, node: str, archive: Path) -> None:
    """Bring all images of *archive* to the node."""
    run(*_ctr(at, node), "images", "import", archive)


def load_everywhere(at: ClusterPlaces, nodes: tuple[str, ...], archive: Path) -> None:
    """Bring all images of *archive* to all *nodes*, at the same time."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: load(at, node, archive), nodes))


def remove_groups(at: ClusterPlaces, node: str) -> None:
    """Remove the control groups of the node's containers, which were killed with it."""
    data = at.node_data(node) / "containerd" / "io.containerd.grpc.v1.cri"
    ids = [folder.name for kind in ("containers", "sandboxes") for folder in data.glob(f"{kind}/*")]
    for name in ids:
        for pattern in (f"{NAMESPACE}/{name}", f"*/{NAMESPACE}/{name}"):
            for group in GROUPS.glob(pattern):
                with contextlib.suppress(OSError):  # gone by itself, or a program still leaves it
                    group.rmdir()


def _ctr(at: ClusterPlaces, node: str) -> tuple[str, ...]:
    return ("ctr", "--address", str(at.containerd_socket(node)), "--namespace", NAMESPACE)
