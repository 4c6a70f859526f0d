"""The processes of a container, seen from this machine: a test kills them as a machine without
memory does, and Kubernetes learns of it afterwards.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.pipelines import Pipeline
from descendants import kill_if_there
from tables.victims import is_computing


@dataclass(frozen=True, slots=True)
class Container:
    """The one container of a pod that runs."""

    id: str
    pod: str
    node: str

    def kill(self) -> None:
        """Kill all that runs in it."""
        # With the first process of a container the kernel ends the others before their turn comes.
        killed = [kill_if_there(pid) for pid in _processes() if self.id in _groups(pid)]
        assert any(killed), f"no process runs in {self.pod}"


def computing(among: Collection[Container]) -> set[Container]:
    """Return those in which a Python of Spark's computes at this moment."""
    groups = [_groups(pid) for pid in _processes() if is_computing(pid)]
    return {each for each in among if any(each.id in group for group in groups)}


def containers(pipeline: Pipeline, component: str) -> list[Container]:
    """Return the containers of *component* that run now."""
    pods = pipeline.cluster.get(
        "pods", pipeline.here, f"--selector=app.kubernetes.io/component={component},"
        f"app.kubernetes.io/instance={pipeline.name}",
    )["items"]  # fmt: skip
    return [
        Container(_id(status), pod["metadata"]["name"], pod["spec"]["nodeName"])
        for pod in pods
        for status in pod.get("status", {}).get("containerStatuses", [])
        if "running" in status.get("state", {})
    ]


def _id(status: dict[str, Any]) -> str:
    return str(status["containerID"]).rpartition("/")[2]


def _processes() -> list[int]:
    # The nodes are processes of this machine, and so are their pods.
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdecimal()]


def _groups(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        # It has ended meanwhile.
        return ""
