"""Removing the operator the way it was installed removes the operator, and nothing of its users."""

from __future__ import annotations

from cluster.chart_rendering import ROOT
from cluster.handle import Cluster
from cluster.installed_operator import define

NAMESPACE = "logging"
OPERATOR = ROOT / "deploy" / "operator.yaml"


def test_operator_manifests_are_deleted_without_pipelines_and_claims(own_cluster: Cluster) -> None:
    """`kubectl delete -f deploy/operator.yaml` leaves the namespace and all that is in it."""
    define(own_cluster)
    metadata = {"name": "prod", "namespace": NAMESPACE}
    own_cluster.kubectl("create", "namespace", NAMESPACE)
    own_cluster.kubectl("apply", "--server-side", "-f", str(OPERATOR))
    own_cluster.apply(
        {"apiVersion": "logpipeline.dev/v1alpha1", "kind": "LogPipeline", "metadata": metadata},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {**metadata, "name": "archive-prod-collector-0"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    )

    own_cluster.kubectl("delete", "-f", str(OPERATOR))

    kept = ("namespace/logging", "logpipeline/prod", "pvc/archive-prod-collector-0")
    found = [own_cluster.get(each, "--namespace", NAMESPACE)["metadata"] for each in kept]
    assert [each.get("deletionTimestamp") for each in found] == [None, None, None]
    deployments = own_cluster.get("deployments", "--namespace", NAMESPACE)["items"]
    assert all("deletionTimestamp" in each["metadata"] for each in deployments)
