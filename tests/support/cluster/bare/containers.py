"""Talk to a node's containerd from outside, and clear away what its containers leave behind."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cluster.bare.places import ClusterPlaces
from cluster.bare.running import run, succeeds, wait_until

# Kubelet's containers are in this namespace of containerd.
NAMESPACE = "k8s.io"
GROUPS = Path("/sys/fs/cgroup")
# The group of all containers, in either version of control groups, with the file for its weight and
# the usual weight of a process outside.
PARENTS = {
    GROUPS / "cpu" / NAMESPACE: ("cpu.shares", 1024),
    GROUPS / NAMESPACE: ("cpu.weight", 100),
}
# The words before a command that is to run in a group beside those of containers, and so to share
# their weight. containerd got a twentieth of a processor on a busy machine without it: the import
# of an image took minutes instead of seconds.
BESIDE = f"""
for parent in {" ".join(map(str, PARENTS))}; do
    [ ! -d "$parent/containerd" ] || echo $$ > "$parent/containerd/cgroup.procs"
done
exec "$@"
"""
BESIDE_CONTAINERS = ("sh", "-c", BESIDE, "sh")
# All containers of all nodes are one group, which by itself would get no more of the processors
# than a single process outside: so much more it gets where others want them.
WEIGHT = 16


def await_containerd(at: ClusterPlaces, node: str) -> None:
    """Return once the node's containerd answers."""
    wait_until(
        lambda: succeeds(*_ctr(at, node), "version"),
        what=f"containerd of {node}",
    )


def weigh() -> None:
    """Give the group of containers, and of programs that begin with `BESIDE_CONTAINERS`, its weight
    among the other processes of the machine.
    """
    for parent, (name, one_process) in PARENTS.items():
        if (parent.parent / "cgroup.procs").exists():
            # Containers are slower without it, and run all the same.
            with contextlib.suppress(OSError):
                (parent / "containerd").mkdir(parents=True, exist_ok=True)
                (parent / name).write_text(str(WEIGHT * one_process))


def load(at: ClusterPlaces, node: str, archive: Path) -> None:
    """Bring all images of *archive* to the node."""
    run(*BESIDE_CONTAINERS, *_ctr(at, node), "images", "import", archive)


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
