"""Start and end a node: its namespaces, and all that runs in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster.bare import machine_init, network
from cluster.bare.network import Addresses
from cluster.bare.places import ClusterPlaces
from cluster.bare.running import wait_until
from cluster.bare.state import Process
from cluster.bare.supervisor import GARBAGE
from descendants import kill_if_there

NAMESPACES = ("--net", "--mount", "--pid", "--uts", "--ipc")
# A process in an uninterruptible wait for the disk holds its namespace up.
END_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Program:
    """A program that a node keeps running, once the path *after* exists."""

    name: str
    command: tuple[str, ...]
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """The node number *index* of a cluster of *nodes*."""

    places: ClusterPlaces
    addresses: Addresses
    nodes: tuple[str, ...]
    index: int

    @property
    def name(self) -> str:
        return self.nodes[self.index]

    @property
    def folder(self) -> Path:
        return self.places.node(self.name)

    @property
    def _plan(self) -> Path:
        return self.folder / "plan.json"

    @property
    def _processes(self) -> Path:
        return self.folder / "processes.json"

    def start(self, programs: list[Program]) -> None:
        """Start the node; *programs* come up by themselves."""
        mounts = {
            str(self.places.node_logs(self.name)): "/var/log",
            str(self.places.node_data(self.name)): "/var/lib",
        }
        for folder in (*map(Path, mounts), self.places.process_logs(self.name)):
            folder.mkdir(parents=True, exist_ok=True)
        plan = {
            "mounts": mounts,
            "network": network.commands_inside(self.addresses, self.index, len(self.nodes)),
            "programs": [asdict(program) for program in programs],
            "logs": str(self.places.process_logs(self.name)),
        }
        self._plan.write_text(json.dumps(plan, indent=2))
        outer = self._unshare()
        self._connect(outer)

    def _unshare(self) -> int:
        init = [sys.executable, "-I", machine_init.__file__, str(self._plan)]
        # The child's end is also the end of everything in its process namespace.
        unshare = ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc"]
        with (self.places.process_logs(self.name) / "node.log").open("ab") as log:
            process = subprocess.Popen(
                [*unshare, *init],
                env={**os.environ, **GARBAGE},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C at the keyboard is not for the node
                cwd="/",
            )
        self._write_processes([process.pid])
        return process.pid

    def _connect(self, outer: int) -> None:
        own = Path("/proc/self/ns/net").readlink()

        def is_apart() -> bool:
            return Path(f"/proc/{outer}/ns/net").readlink() != own and bool(_children(outer))

        wait_until(is_apart, what=f"namespaces of {self.name}")
        self._write_processes([*_children(outer), outer])
        network.connect(self.places.name, self.addresses, self.index, outer)

    def _write_processes(self, ids: list[int]) -> None:
        unfinished = self._processes.with_suffix(".unfinished")
        unfinished.write_text(json.dumps([asdict(Process.of(one)) for one in ids]))
        unfinished.rename(self._processes)

    def processes(self) -> list[Process]:
        """The node's first process, and the one outside that waits for it."""
        try:
            return [Process(**found) for found in json.loads(self._processes.read_text())]
        except FileNotFoundError:
            return []

    @property
    def is_alive(self) -> bool:
        found = self.processes()
        return bool(found) and all(process.is_alive for process in found)

    def kill(self) -> None:
        """Kill all that runs on the node, at once; `wait_for_end` waits until it is gone."""
        for process in self.processes():
            # The first process is killed first: the outer one then ends when all others have.
            if process.is_alive and kill_if_there(process.id):
                return

    def wait_for_end(self) -> None:
        """Return once nothing of the node runs any more."""

        def is_gone() -> bool:
            return not any(process.is_alive for process in self.processes())

        wait_until(is_gone, what=f"the end of {self.name}", within_s=END_DEADLINE_S)


def _children(process_id: int) -> list[int]:
    try:
        text = Path(f"/proc/{process_id}/task/{process_id}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split()]
