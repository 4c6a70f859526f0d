"""The cluster that all other tests here stand on: what they take for granted is true of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cluster.bare import creation, network, objects, places, state
from cluster.bare.images import TARGETS
from cluster.fixtures import KIND
from cluster.handle import Cluster, CommandFailed
from waiting import eventually

# The first that asks for the project's images waits until they are built.

STRICT = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "fsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
STRICT_CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
Manifest = dict[str, Any]


def pod(name: str, namespace: str, image: str, script: str, **spec: Any) -> Manifest:
    """A pod that runs *script* once, under all restrictions that there are."""
    container = {
        "name": "main",
        "image": image,
        "command": ["sh", "-c", script],
        "securityContext": STRICT_CONTAINER,
        **spec.pop("container", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "securityContext": STRICT,
            "containers": [container],
            **spec,
        },
    }


def claim(namespace: str) -> Manifest:
    """A claim named data, of no storage class."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}},
    }


async def end_of(cluster: Cluster, namespace: str, name: str) -> str:
    """Wait until the pod has ended and return what it wrote."""

    def has_ended() -> bool:
        phase = cluster.get("pod", name, f"--namespace={namespace}")["status"]["phase"]
        assert phase in {"Succeeded", "Failed"}, phase
        return True

    await eventually(has_ended, what=f"the end of pod {name}")
    return cluster.kubectl("logs", name, f"--namespace={namespace}")


def test_all_nodes_of_the_cluster_are_ready(cluster: Cluster) -> None:
    """Both nodes are there and ready, and they run the pinned version of Kubernetes."""
    nodes = cluster.get("nodes")["items"]

    conditions = [c for node in nodes for c in node["status"]["conditions"]]
    ready = [c["status"] for c in conditions if c["type"] == "Ready"]
    assert ready == ["True"] * len(cluster.nodes)
    if cluster.record is not None:
        assert cluster.nodes == places.NODES
        pinned = (places.SOURCES / "modules/kubernetes/go.mod").read_text()
        version = nodes[0]["status"]["nodeInfo"]["kubeletVersion"]
        assert f"k8s.io/kubernetes {version}" in pinned


async def test_a_log_stands_on_its_own_node_only(
    cluster: Cluster, namespace: str, workload_image: str
) -> None:
    """What a pod prints is in /var/log/pods of the node that it runs on, and on no other."""
    last = cluster.nodes[-1]
    cluster.apply(pod("talker", namespace, workload_image, "echo hello", nodeName=last))
    await end_of(cluster, namespace, "talker")

    found = {node: list(cluster.log_dir(node).glob("pods/*/main/0.log")) for node in cluster.nodes}
    ours = {
        node: [file for file in files if f"{namespace}_talker_" in str(file)]
        for node, files in found.items()
    }
    assert {node: len(files) for node, files in ours.items()} == {
        node: int(node == last) for node in cluster.nodes
    }
    assert re.fullmatch(r"\S+ stdout F hello\n", ours[last][0].read_text())


async def test_a_service_leads_to_pods_of_other_nodes(
    cluster: Cluster, namespace: str, workload_image: str
) -> None:
    """A pod reaches one on another node by the name of its Service; other names do not exist."""
    serve = "cd /tmp && echo found > page && exec python3 -m http.server 8080"
    probe = {"readinessProbe": {"httpGet": {"path": "/page", "port": 8080}, "periodSeconds": 1}}
    there, here = cluster.nodes[0], cluster.nodes[-1]
    server = pod("web", namespace, workload_image, serve, nodeName=there, container=probe)
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    cluster.apply(server, service)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/web", f"--namespace={namespace}")
    ask = (
        "import socket, urllib.request as r;"
        "print(r.urlopen('http://web/page').read());"
        f"print(r.urlopen('http://web.{namespace}.svc/page').read());"
        "print(socket.getaddrinfo('no.such.name', 80))"
    )
    cluster.apply(pod("ask", namespace, workload_image, f'python3 -c "{ask}"', nodeName=here))

    said = await end_of(cluster, namespace, "ask")
    assert said.count("found") == 2
    assert "Name or service not known" in said


async def test_a_claim_binds_and_its_volume_is_writable(
    cluster: Cluster, namespace: str, workload_image: str
) -> None:
    """A claim without a storage class gets a volume that a pod without root may write to."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    script = "echo kept > /data/file && stat -c %u:%g /data/file"
    writer = pod("writer", namespace, workload_image, script, volumes=volumes, container=mounts)
    cluster.apply(claim(namespace), writer)

    assert await end_of(cluster, namespace, "writer") == "65532:65532\n"


async def test_a_volume_of_a_former_claim_is_offered_again_empty(
    cluster: Cluster, namespace: str, workload_image: str
) -> None:
    """Volumes do not run out: what a test has claimed is the next one's, without its files."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    script = "touch /data/file"
    writer = pod("writer", namespace, workload_image, script, volumes=volumes, container=mounts)
    cluster.apply(claim(namespace), writer)
    await end_of(cluster, namespace, "writer")
    name = cluster.get("pvc", "data", f"--namespace={namespace}")["spec"]["volumeName"]
    folder = cluster.data_dir(name.split("-volume-")[0]) / "volumes" / name
    assert [file.name for file in folder.iterdir()] == ["file"]
    cluster.kubectl("delete", "pod/writer", "pvc/data", f"--namespace={namespace}")

    def is_offered() -> bool:
        cluster.renew_volumes()
        return bool(cluster.get("pv", name)["status"].get("phase") == "Available")

    await eventually(is_offered)
    assert not list(folder.iterdir())


async def test_more_volumes_can_be_made(cluster: Cluster) -> None:
    """A test that needs more volumes than there are makes them."""
    index = objects.VOLUMES_PER_NODE
    cluster.add_volumes([index])

    names = [objects.volume_name(node, index) for node in cluster.nodes]

    def are_available() -> bool:
        found = cluster.get("pv", *names)["items"]
        return [volume["status"].get("phase") for volume in found] == ["Available"] * len(names)

    await eventually(are_available)


@pytest.mark.parametrize("target", TARGETS)
async def test_an_image_of_the_project_starts_without_root(
    cluster: Cluster, namespace: str, images: dict[str, str], target: str
) -> None:
    """Each image runs its program as nobody's user, on a file system that it cannot write to."""
    program = "nats-server" if target == "nats" else "logpipeline"
    guarded = {
        "command": [program, "--help"],
        "securityContext": {**STRICT_CONTAINER, "readOnlyRootFilesystem": True},
    }
    cluster.apply(pod(target, namespace, images[target], "", container=guarded))

    said = await end_of(cluster, namespace, target)
    assert said.strip().lower().startswith("usage: "), said


async def test_a_pod_of_a_cluster_reaches_this_machine(
    cluster: Cluster, namespace: str, workload_image: str
) -> None:
    """A pod connects to a server that a test runs on this machine."""
    with subprocess.Popen(
        [sys.executable, "-u", "-c", SERVE_ONCE], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        ask = (
            f"import socket; print(socket.create_connection(('{cluster.machine}', {port})).recv(9))"
        )
        cluster.apply(pod("ask", namespace, workload_image, f'python3 -c "{ask}"'))

        assert "welcome" in await end_of(cluster, namespace, "ask")


SERVE_ONCE = """
import socket
with socket.create_server(("0.0.0.0", 0)) as server:
    print(server.getsockname()[1])
    server.settimeout(50)
    server.accept()[0].sendall(b"welcome")
"""


def test_pod_security_is_enforced_where_it_is_asked_for(cluster: Cluster, namespace: str) -> None:
    """The API server refuses a pod that may do too much in a restricted namespace."""
    label = "pod-security.kubernetes.io/enforce=restricted"
    cluster.kubectl("label", "namespace", namespace, label)
    bold = pod("bold", namespace, "localhost/none:1", "true")
    bold["spec"]["hostNetwork"] = True

    with pytest.raises(CommandFailed, match="violates PodSecurity"):
        cluster.apply(bold)


def test_the_audit_log_says_who_did_what(cluster: Cluster, namespace: str) -> None:
    """A request stands in the audit log once it was answered, with its user, verb and object."""
    cluster.kubectl("create", "configmap", "noted", f"--namespace={namespace}")

    lines = cluster.audit_log.read_text().splitlines()
    entries = [json.loads(line) for line in lines if '"noted"' in line and namespace in line]
    assert [(e["verb"], e["user"]["username"]) for e in entries] == [("create", "kubernetes-admin")]


def test_a_second_cluster_runs_beside_and_goes_without_a_trace(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Two clusters run at once; the end of one takes nothing from the other, and leaves nothing."""
    if cluster.record is None:
        pytest.skip("only clusters of plain processes are made twice")
    second = f"second-{os.getpid()}"
    config = tmp_path / "kubeconfig"
    kind(f"create cluster --nodes=1 --name={second} --kubeconfig={config}")
    other = Cluster(config, cluster.api, state.read(second))
    try:
        assert other.nodes == ("node-1",)
        assert len(cluster.nodes) == len(cluster.record.nodes)
        assert set(kind("get clusters").split()) >= {second, cluster.record.name}
    finally:
        kind(f"delete cluster --name={second}")

    assert second not in kind("get clusters")
    assert not places.ClusterPlaces(second).folder.exists()
    assert not network.wires_of(second)
    assert len(cluster.nodes) == len(cluster.record.nodes)


def test_a_cluster_whose_owner_was_killed_is_swept_away(cluster: Cluster, tmp_path: Path) -> None:
    """The creation of any cluster ends those whose owners have ended without doing so."""
    if cluster.record is None:
        pytest.skip("only clusters of plain processes are swept away")
    left, later = f"left-{os.getpid()}", f"later-{os.getpid()}"
    with subprocess.Popen(["sleep", "60"]) as owner:
        kind(f"create cluster --nodes=1 --name={left}", owner=owner.pid)
        owner.kill()
    assert left not in kind("get clusters")
    kind(f"create cluster --nodes=1 --name={later}")
    kind(f"delete cluster --name={later}")

    assert state.read(left) is None
    assert not places.ClusterPlaces(left).folder.exists()


async def test_a_cluster_whose_creator_was_killed_goes_with_delete(cluster: Cluster) -> None:
    """What a creator that was killed half way has started is found and ended later."""
    if cluster.record is None:
        pytest.skip("only clusters of plain processes are made here")
    half = f"half-{os.getpid()}"
    at = places.ClusterPlaces(half)
    with subprocess.Popen([KIND, "create", "cluster", f"--name={half}"]) as creator:
        await eventually((at.process_logs("node-1") / "etcd.log").exists)
        creator.kill()
    record = state.read(half)
    assert record is not None
    node = creation.machines(record)[0]
    processes = node.processes()
    assert node.is_alive
    assert half not in kind("get clusters")

    kind(f"delete cluster --name={half}")

    assert not any(process.is_alive for process in processes)
    assert not at.folder.exists()
    assert not network.wires_of(half)


def kind(arguments: str, owner: int = os.getpid()) -> str:
    """What our kind prints."""
    environment = {**os.environ, state.OWNER: str(owner)}
    done = subprocess.run(
        [KIND, *arguments.split()], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
