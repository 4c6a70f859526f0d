"""A definition that is taken away, and brought back: the operator waits for it without haste."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from api_server.operator_process import OperatorProcess
from cluster import namespaces
from cluster.handle import Cluster
from cluster.installed_operator import define
from waiting import WITHIN_S, eventually

NAME = "crd/logpipelines.logpipeline.dev"
WATCHED_S = 10.0
# Lists of a round and of watches that are begun anew, each five seconds, and of their retries.
REQUESTS_MAX = 60
AGENTS = ("logpipeline-operator", "kopf/")


@pytest.fixture
def cluster(own_cluster: Cluster) -> Cluster:
    """An API server of this test: pipelines go with the definition, and requests are counted."""
    return own_cluster


@pytest.fixture
def operator(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator of this namespace alone, on this machine."""
    define(cluster)
    words = [f"--kubeconfig={cluster.kubeconfig}", f"--namespace={namespace}", "--no-lease"]
    made = OperatorProcess(words, tmp_path / "operator.log")
    made.start()
    yield made
    made.kill()


def write(cluster: Cluster, namespace: str) -> None:
    """Make a pipeline that needs no pod."""
    spec = {
        "partitions": 1,
        "nats": {"servers": ["nats://127.0.0.1:1"]},
        "collectors": {"replicas": 0},
        "shippers": {"enabled": False},
    }
    cluster.apply(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": "p", "namespace": namespace},
            "spec": spec,
        }
    )


def reason(cluster: Cluster, namespace: str) -> str:
    """Why the pipeline is not ready, empty before that is told."""
    one = {**namespaces.PIPELINES, "url": "logpipelines/p"}
    status = cluster.api.get(**one, namespace=namespace).json().get("status") or {}
    # Of an answer that refuses, the status is a word.
    conditions = status.get("conditions", []) if isinstance(status, dict) else []
    return next((str(each["reason"]) for each in conditions if each["type"] == "Ready"), "")


def requests(log: Path, offset: int) -> int:
    """How many requests the operator made since *offset* of the audit log."""
    with log.open() as lines:
        lines.seek(offset)
        entries = [json.loads(line) for line in lines if line.endswith("\n")]
    return sum(entry["userAgent"].startswith(AGENTS) for entry in entries)


async def test_a_definition_that_comes_back_is_served_again(
    cluster: Cluster, namespace: str, operator: OperatorProcess
) -> None:
    """With it go all pipelines; the operator goes on, asks for it now and then, and acts on the
    first pipeline that there is again.
    """
    write(cluster, namespace)
    await eventually(lambda: reason(cluster, namespace))
    cluster.kubectl("delete", NAME, f"--timeout={WITHIN_S:.0f}s")
    offset = cluster.audit_log.stat().st_size
    # What is measured is what happens while nothing does.
    await asyncio.sleep(WATCHED_S)
    made = requests(cluster.audit_log, offset)
    define(cluster)
    write(cluster, namespace)
    await eventually(lambda: reason(cluster, namespace))

    assert operator.is_running
    assert 0 < made <= REQUESTS_MAX
