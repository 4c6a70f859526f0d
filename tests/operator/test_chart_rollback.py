"""What a release allows goes back with it, on a real API server, without nodes."""

from __future__ import annotations

import json
import subprocess

import pytest

from cluster.chart_rendering import CHART, HELM_DEADLINE_S, NAMESPACE, RELEASE, helm
from cluster.handle import Cluster


@pytest.fixture
def cluster(own_cluster: Cluster) -> Cluster:
    """An API server of this test: the chart's objects are the whole cluster's."""
    own_cluster.kubectl("create", "namespace", NAMESPACE)
    return own_cluster


def run(cluster: Cluster, *words: str) -> str:
    """Run Helm, and return what it printed."""
    done = subprocess.run(
        [helm(), "--kubeconfig", str(cluster.kubeconfig), "--namespace", NAMESPACE, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=HELM_DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def release(cluster: Cluster, command: str, namespaces: str) -> None:
    """Install or upgrade, so that the class default reads the pods of *namespaces*."""
    values = json.dumps({"podNamespaces": namespaces})
    run(cluster, command, RELEASE, str(CHART), "--set-json", f"classes.default={values}")


def allowed(cluster: Cluster) -> str:
    """Whose pods a pipeline without a class name may read."""
    return str(cluster.get("logpipelineclass/default")["spec"]["podNamespaces"])


def test_a_rollback_takes_back_what_a_class_allowed(cluster: Cluster) -> None:
    """To the first revision, and to a later one."""
    release(cluster, "install", "Own")
    release(cluster, "upgrade", "All")
    assert allowed(cluster) == "All"

    run(cluster, "rollback", RELEASE, "1")
    assert allowed(cluster) == "Own"
    run(cluster, "rollback", RELEASE, "2")
    assert allowed(cluster) == "All"
