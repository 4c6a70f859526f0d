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
# All containers of all nodes are one group, which by itself would get no more of the processors
# than a single process outside: so much more it gets where others want them.
WEIGHT = 16


def await_containerd(at: ClusterPlaces, node: str) -> None:
    """Return once the node's containerd answers."""
    wait_until(
        lambda: succeeds(*_ctr(at, node), "version"),
        what=f"containerd of {node}",
        within_s=START_DEADLINE_S,
    )


def weigh() -> None:
    """Let containers have their part of the processors beside the other processes of the machine,
    in the way of either version of control groups.
    """
    for name, one_process in (
        (f"cpu/{NAMESPACE}/cpu.shares", 1024),
        (f"{NAMESPACE}/cpu.weight", 100),
    ):
        file = GROUPS / name
        if (file.parent.parent / "cgroup.procs").exists():
            # Containers are slower without it, and run all the same.
            with contextlib.suppress(OSError):
                file.parent.mkdir(exist_ok=True)
                file.write_text(str(WEIGHT * one_process))


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
