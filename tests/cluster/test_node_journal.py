"""The journal of a node as a file of the node, by the DaemonSet that is shipped for it."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import yaml

from cluster.chart_rendering import ROOT
from cluster.handle import Cluster
from components.journal import Journal
from waiting import eventually

MANIFEST = ROOT / "deploy" / "node-journal.yaml"


def of(namespace: str, image: str) -> dict[str, Any]:
    """The DaemonSet in *namespace*, with a journal and a spool of its own on each node."""
    manifest: dict[str, Any] = yaml.safe_load(MANIFEST.read_text())
    manifest["metadata"]["namespace"] = namespace
    spec = manifest["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    container["image"] = image
    container["args"].append(f"--directory=/var/log/{namespace}/written")
    (spool,) = [volume for volume in spec["volumes"] if volume["name"] == "spool"]
    spool["hostPath"]["path"] = f"/var/log/{namespace}/received"
    return manifest


async def test_each_entry_of_a_nodes_journal_is_in_its_file_once(
    cluster: Cluster, namespace: str, images: dict[str, str]
) -> None:
    """Also when its pod is deleted while entries are written."""
    here = f"--namespace={namespace}"
    journals = {}
    for node in cluster.nodes:
        folder = cluster.log_dir(node) / namespace
        folder.mkdir()
        journals[node] = Journal(folder / "written")
        # journalctl does not follow a folder that holds no journal yet.
        journals[node].write(50)
    cluster.apply(of(namespace, images["shipper"]))
    cluster.kubectl("rollout", "status", "daemonset/node-journal", here, "--timeout=120s")

    def received(node: str) -> list[str]:
        path = cluster.log_dir(node) / namespace / "received" / "journal.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line)["MESSAGE"] for line in lines]

    def has_all(node: str) -> bool:
        return len(received(node)) >= len(journals[node].written)

    cluster.kubectl("delete", "pods", here, "--selector=app.kubernetes.io/name=node-journal")
    for node, journal in journals.items():
        journal.write(50)
        journal.end()
        await eventually(partial(has_all, node), within_s=60, what=f"the entries of {node}")
        assert received(node) == journal.written
