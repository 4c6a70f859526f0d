"""The API server that all other tests here stand on: what they take for granted is true of it."""

from __future__ import annotations

import json
import os
import subprocess

from api_server import shared
from cluster.bare import creation, nodeless, places, state
from cluster.handle import Cluster
from waiting import eventually

# On a busy machine a process that is killed is not gone at once.
GONE_WITHIN_S = 60.0


async def test_programs_of_a_cluster_end_with_the_process_that_it_belongs_to(
    cluster: Cluster,
) -> None:
    """Nothing is left running of a run that was killed, and the next creation takes its folder."""
    assert cluster.record is None or cluster.record.nodes == ()
    name = f"left-{os.getpid()}"
    with subprocess.Popen(["sleep", "600"]) as owner:
        at = creation.create(name, (), state.Process.of(owner.pid))
        owner.kill()
    host = nodeless.Host(at)

    await eventually(lambda: not host.is_alive, within_s=GONE_WITHIN_S, what="the supervisor's end")
    record = state.read(name)
    assert record is not None
    assert not creation.is_usable(record)
    creation.sweep()
    assert state.read(name) is None
    assert not places.ClusterPlaces(name).folder.exists()


def test_processes_of_a_run_share_one_cluster() -> None:
    """Whoever asks second gets what is there."""
    first, second = shared.shared(), shared.shared()

    assert first.record == second.record
    assert first.kubeconfig == second.kubeconfig


async def test_controllers_of_the_cluster_do_their_part(cluster: Cluster, namespace: str) -> None:
    """A child goes with its owner, and a namespace has the account that pods are made with."""
    here = f"--namespace={namespace}"

    def has_account() -> bool:
        return "default" in cluster.kubectl("get", "serviceaccount", here, "-o", "name")

    await eventually(has_account, within_s=GONE_WITHIN_S, what="the default ServiceAccount")
    cluster.kubectl("create", "configmap", "owner", here)
    uid = cluster.get("configmap", "owner", here)["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    metadata = {"name": "child", "namespace": namespace, "ownerReferences": [owner]}
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    cluster.kubectl("delete", "configmap", "owner", here)

    def is_gone() -> bool:
        return "child" not in cluster.kubectl("get", "configmaps", here, "-o", "name")

    await eventually(is_gone, within_s=GONE_WITHIN_S, what="the child's end")


def test_the_audit_log_of_the_cluster_says_who_did_what(cluster: Cluster, namespace: str) -> None:
    """A request stands in the audit log once it was answered, with its user, verb and object."""
    cluster.kubectl("create", "configmap", "noted", f"--namespace={namespace}")

    lines = cluster.audit_log.read_text().splitlines()
    entries = [json.loads(line) for line in lines if '"noted"' in line and namespace in line]
    assert [(e["verb"], e["user"]["username"]) for e in entries] == [("create", "kubernetes-admin")]
