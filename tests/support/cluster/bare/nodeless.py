"""A cluster without nodes: etcd, the API server and the controllers, as plain processes.

It needs neither root nor namespaces: etcd listens at a socket in the cluster's folder, and the API
server at a port of loopback. Pods are made in it and run nowhere.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster.bare import binaries, certificates, control_plane, places, supervisor
from cluster.bare.machine import Program
from cluster.bare.places import ClusterPlaces
from cluster.bare.running import wait_until
from cluster.bare.state import Process, Record
from descendants import kill_if_there
from ports import free_port

NAME = places.MACHINE
ADDRESS = "127.0.0.1"
API_DEADLINE_S = 120.0
END_DEADLINE_S = 60.0
ASK_DEADLINE_S = 10.0
ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


@dataclass(frozen=True, slots=True)
class Host:
    """The processes of a cluster without nodes, which a supervisor keeps up."""

    places: ClusterPlaces

    @property
    def name(self) -> str:
        return NAME

    @property
    def _record(self) -> Path:
        return self.places.node(NAME) / "processes.json"

    def start(self, programs: list[Program], owner: Process | None) -> None:
        """Start the supervisor, which writes down its id before it starts the *programs*."""
        logs = self.places.process_logs(NAME)
        logs.mkdir(parents=True, exist_ok=True)
        plan = {
            "record": str(self._record),
            "owner": owner and asdict(owner),
            "programs": [asdict(program) for program in programs],
            "logs": str(logs),
        }
        file = self.places.node(NAME) / "plan.json"
        file.write_text(json.dumps(plan, indent=2))
        log = str(logs / "supervisor.log")
        # Not by subprocess, which complains of a process that outlives its object.
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", supervisor.__name__, str(file)],
            {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,  # Ctrl-C at the keyboard is not for the cluster
        )
        wait_until(self._record.exists, what="the supervisor")

    def processes(self) -> list[Process]:
        """The supervisor; all else ends with it."""
        try:
            return [Process(**found) for found in json.loads(self._record.read_text())]
        except FileNotFoundError:
            return []

    @property
    def is_alive(self) -> bool:
        return any(process.is_alive for process in self.processes())

    def kill(self) -> None:
        """Kill all that runs, at once; `wait_for_end` waits until it is gone."""
        for process in self.processes():
            if process.is_alive:
                kill_if_there(process.id)

    def wait_for_end(self) -> None:
        """Return once the supervisor is gone; the kernel ends the programs in the same moment."""
        wait_until(
            lambda: not self.is_alive, what="the end of its programs", within_s=END_DEADLINE_S
        )


def take_port() -> int:
    """Return a port for an API server that nobody else is given until it listens."""
    return free_port(ADDRESS)


def start(record: Record) -> ClusterPlaces:
    """Start a cluster without nodes and return where it stands, once its API answers."""
    at = ClusterPlaces(record.name)
    certificates.make(at.certificates, certificates.of_an_api((ADDRESS,)))
    server = f"https://{ADDRESS}:{record.port}"
    content = certificates.kubeconfig(at.certificates, server, "controller-manager")
    control_plane.client_file(at, "controller-manager").write_text(content)
    at.kubeconfig.touch(0o600)
    at.kubeconfig.write_text(certificates.kubeconfig(at.certificates, server, "admin"))
    programs = control_plane.programs_of_an_api(at, record.port, binaries.folder())
    Host(at).start(programs, record.owner)
    _await(at, server)
    at.ready.touch()
    return at


def _await(at: ClusterPlaces, server: str) -> None:
    context = ssl.create_default_context(cafile=str(at.certificates / "ca.crt"))
    context.load_cert_chain(at.certificates / "admin.crt", at.certificates / "admin.key")

    def answers(path: str) -> bool:
        try:
            with urllib.request.urlopen(
                server + path, timeout=ASK_DEADLINE_S, context=context
            ) as page:
                return bool(page.status == 200)
        except OSError:
            return False

    for path, what in (("/readyz", "the API server"), (ACCOUNT, "the default ServiceAccount")):
        wait_until(lambda: answers(path), what=what, within_s=API_DEADLINE_S)  # noqa: B023
