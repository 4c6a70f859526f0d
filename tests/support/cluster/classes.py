"""LogPipelineClasses for tests: one that allows all, for those that are about something else."""

from __future__ import annotations

import json
from typing import Any

from cluster.handle import Cluster

API_VERSION = "logpipeline.dev/v1alpha1"
ANY = ["*"]
ROOT = ["/"]
EVERYTHING: dict[str, Any] = {
    "podNamespaces": "All",
    # Also said where it is what is so by default: an installed chart's class may say less.
    "namespaces": ANY,
    **dict.fromkeys(("hostFiles", "hostPaths", "directories"), ROOT),
    **dict.fromkeys(
        (
            "images", "imagePullSecrets", "serviceAccounts", "secrets", "env", "podLabels",
            "podAnnotations", "nodeLabels", "tolerations", "priorityClasses", "claims",
            "natsServers", "monitoringUrls", "tables", "s3Endpoints", "catalogs",
            "catalogProperties",
        ),
        ANY,
    ),
    **dict.fromkeys(("envFrom", "affinity", "adopt"), True),
    "limits": {"partitions": 1024, "collectors": 1024, "executors": 1000, "storage": "1Pi"},
}  # fmt: skip


def allow(cluster: Cluster, name: str = "default", **spec: Any) -> None:
    """Make the class *name*, or make it anew; without *spec* it allows everything."""
    # Tests beside each other make the same one: the server's own apply takes both.
    words = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    cluster.kubectl(*words, input=json.dumps(manifest(name, spec or EVERYTHING)))


def manifest(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """The class *name*."""
    metadata = {"name": name}
    return {
        "apiVersion": API_VERSION, "kind": "LogPipelineClass", "metadata": metadata, "spec": spec,
    }  # fmt: skip
