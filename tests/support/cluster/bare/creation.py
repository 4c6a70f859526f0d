"""Make a cluster and end one, in an order in which nothing is ever lost track of."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

from cluster.bare import (
    binaries,
    certificates,
    containers,
    control_plane,
    images,
    network,
    node,
    nodeless,
    objects,
    places,
    requirements,
    state,
)
from cluster.bare.locking import locked
from cluster.bare.machine import Machine
from cluster.bare.network import Addresses
from cluster.bare.places import ClusterPlaces
from cluster.bare.running import ToolError, run, say, succeeds, wait_until
from cluster.bare.state import Process, Record

API_DEADLINE_S = 60.0
NODES_DEADLINE_S = 60.0


def create(
    name: str, nodes: tuple[str, ...] = places.NODES, owner: Process | None = None
) -> ClusterPlaces:
    """Make a cluster and return where it stands, once all its nodes are ready: without any, once
    its API answers. It is swept away when its *owner* has ended.

    Raises:
        ToolError: there is one of this name, or this machine cannot run it.
    """
    requirements.check(has_nodes=bool(nodes))
    sweep()
    programs = binaries.build() if nodes else binaries.build(binaries.API)
    pause = images.pause() if nodes else None
    with _one_at_a_time(name):
        found = state.read(name)
        if found is not None and is_usable(found):
            raise ToolError(f"there is a cluster named {name}: delete it, or take another name")
        _delete(name)
        record = _register(name, nodes, owner or state.owner_from_environment())
        try:
            return _start(record, programs, pause) if pause else nodeless.start(record)
        except BaseException:
            say(f"{name} did not come up: the logs of its programs stay in {_keep_logs(record)}")
            _delete(name)
            raise


def delete(name: str) -> None:
    """End all that runs in the cluster and remove what it left; also of a half made one."""
    with _one_at_a_time(name):
        _delete(name)


def _one_at_a_time(name: str) -> AbstractContextManager[None]:
    file = places.cache() / "locks" / state.check_name(name)
    return locked(file, what=f"making or deleting {name}")


def _delete(name: str) -> None:
    at = ClusterPlaces(name)
    at.ready.unlink(missing_ok=True)
    record = state.read(name)
    if record is not None:
        found = machines(record)
        host = nodeless.Host(at)
        host.kill()
        for machine in found:
            machine.kill()
        host.wait_for_end()
        for machine in found:
            machine.wait_for_end()
            containers.remove_groups(at, machine.name)
    network.remove(name)
    # The record goes last: until then, another delete could go on from here.
    for path in at.folder.glob("*"):
        if path.is_dir():
            shutil.rmtree(path)
        elif path != at.record:
            path.unlink()
    shutil.rmtree(at.folder, ignore_errors=True)


def sweep() -> None:
    """Delete the clusters whose owners have ended without doing so."""
    for record in state.records():
        if state.is_abandoned(record):
            say(f"deleting {record.name}, which was left behind")
            delete(record.name)


def usable() -> list[Record]:
    """The clusters that are up."""
    return [record for record in state.records() if is_usable(record)]


def is_usable(record: Record) -> bool:
    """Whether the cluster came up, still runs, and was not left behind by its owner."""
    is_ready = ClusterPlaces(record.name).ready.exists() and not state.is_abandoned(record)
    if not is_ready:
        return False
    if not record.nodes:
        return nodeless.Host(ClusterPlaces(record.name)).is_alive
    return all(machine.is_alive for machine in machines(record))


def machines(record: Record) -> list[Machine]:
    """The nodes of a cluster."""
    at, addresses = ClusterPlaces(record.name), Addresses(record.number)
    return [Machine(at, addresses, record.nodes, index) for index in range(len(record.nodes))]


def _register(name: str, nodes: tuple[str, ...], owner: Process | None) -> Record:
    with locked(places.cache() / "clusters.lock", what="making a cluster"):
        taken = {record.number for record in state.records()}
        number, port = (network.free_number(taken), 0) if nodes else (0, nodeless.take_port())
        record = Record(name, number, nodes, owner, port)
        state.write(record)
    return record


def _start(record: Record, programs: Path, pause: Path) -> ClusterPlaces:
    at, addresses = ClusterPlaces(record.name), Addresses(record.number)
    certificates.make(at.certificates, certificates.identities(addresses, record.nodes))
    _write_kubeconfigs(record)
    network.add_bridge(record.name, addresses)
    containers.weigh()
    for machine in machines(record):
        own = node.programs(at, addresses, machine.name, machine.index, programs)
        is_first = machine.index == 0
        more = control_plane.programs(at, addresses, programs) if is_first else []
        machine.start([*more, *own])
    with ThreadPoolExecutor() as pool:
        loading = [pool.submit(_load_first, at, name, pause) for name in record.nodes]
        _await_api(at)
        kubectl(
            at, "apply", "-f", "-", stdin=json.dumps(objects.manifests(addresses, record.nodes))
        )
        for future in loading:
            future.result()
    _make_volume_folders(at, record.nodes)
    _await_nodes(at, len(record.nodes))
    at.ready.touch()
    return at


def _write_kubeconfigs(record: Record) -> None:
    at = ClusterPlaces(record.name)
    server = control_plane.api_url(Addresses(record.number))
    for identity in ("controller-manager", "scheduler", "proxy", "coredns", *record.nodes):
        content = certificates.kubeconfig(at.certificates, server, identity)
        control_plane.client_file(at, identity).write_text(content)
    at.kubeconfig.touch(0o600)
    at.kubeconfig.write_text(certificates.kubeconfig(at.certificates, server, "admin"))


def _load_first(at: ClusterPlaces, name: str, archive: Path) -> None:
    containers.await_containerd(at, name)
    containers.load(at, name, archive)


def _make_volume_folders(at: ClusterPlaces, nodes: tuple[str, ...]) -> None:
    for name in nodes:
        for index in range(objects.VOLUMES_PER_NODE):
            folder = at.node_data(name) / objects.VOLUME_FOLDER / objects.volume_name(name, index)
            folder.mkdir(parents=True)


def kubectl(at: ClusterPlaces, *arguments: str, stdin: str = "") -> str:
    """Run kubectl against the cluster as its administrator."""
    program = binaries.folder() / "kubectl"
    return run(program, f"--kubeconfig={at.kubeconfig}", *arguments, stdin=stdin)


def _await_api(at: ClusterPlaces) -> None:
    program = binaries.folder() / "kubectl"

    def answers() -> bool:
        return succeeds(program, f"--kubeconfig={at.kubeconfig}", "get", "--raw", "/readyz")

    wait_until(answers, what="the API server", within_s=API_DEADLINE_S)


def _await_nodes(at: ClusterPlaces, count: int) -> None:
    status = "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}"

    def are_ready() -> bool:
        return kubectl(at, "get", "nodes", "-o", status).split() == ["True"] * count

    wait_until(are_ready, what=f"{count} ready nodes", within_s=NODES_DEADLINE_S)
    account = ["get", "serviceaccount", "default", "--ignore-not-found", "-o", "name"]
    wait_until(
        lambda: bool(kubectl(at, *account)),
        what="the default ServiceAccount",
        within_s=NODES_DEADLINE_S,
    )


def _keep_logs(record: Record) -> Path:
    at = ClusterPlaces(record.name)
    kept = places.cache() / "failed" / record.name
    shutil.rmtree(kept, ignore_errors=True)
    for name in (*record.nodes, places.MACHINE):
        logs = at.process_logs(name)
        if logs.exists():
            shutil.copytree(logs, kept / name)
    return kept
