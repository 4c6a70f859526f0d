"""An operator in a cluster as people install it: by the chart, with the images that were built."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cluster_namespace
from chart_rendering import CHART, ROOT
from cluster_handle import Cluster

DEFINITION = ROOT / "deploy" / "crd.yaml"
RELEASE = "logpipeline"
# Images of children. That of the archive is large, and there where a test wants it.
CHILDREN = ("collector", "shipper", "archive", "nats")
INSTALL_S_MAX = 120
DELETE_S_MAX = 30
# What a test waits for is mostly told by a watch; what is not is seen soon.
RESYNC_S = 5


def define(cluster: Cluster) -> None:
    """Have the API server know the resource. A definition that was just made has no conditions yet,
    of which ``--for=condition`` makes an error.
    """
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(DEFINITION))
    path = '--for=jsonpath={.status.conditions[?(@.type=="Established")].status}=True'
    cluster.kubectl("wait", path, "-f", str(DEFINITION), "--timeout=60s")


@dataclass(slots=True)
class Operator:
    """A release of the chart, which watches all namespaces."""

    cluster: Cluster
    images: dict[str, str]
    namespace: str
    _namespaces: list[str] = field(default_factory=list)

    def install(self, **values: Any) -> None:
        """Install or upgrade, and wait until the operator leads; *values* win over the usual."""
        self.cluster.helm(
            "upgrade", "--install", RELEASE, str(CHART), f"--namespace={self.namespace}",
            "--values=-", "--wait", f"--timeout={INSTALL_S_MAX}s",
            input=json.dumps(values_of(self.images) | values),
        )  # fmt: skip
        self.cluster.kubectl(
            "wait", f"lease/{RELEASE}-operator", f"--namespace={self.namespace}",
            f"--timeout={INSTALL_S_MAX}s", "--for=jsonpath={.spec.holderIdentity}",
        )  # fmt: skip

    def uninstall(self) -> None:
        """Take the pipelines away, while somebody cleans up after them, and then all the rest."""
        for name in self._namespaces:
            self.cluster.kubectl(
                "delete", "logpipelines", "--all", f"--namespace={name}", "--ignore-not-found",
                f"--timeout={DELETE_S_MAX}s", check=False,
            )  # fmt: skip
        for name in self._namespaces:
            cluster_namespace.delete(self.cluster, name)
        self.cluster.helm(
            "uninstall", RELEASE, f"--namespace={self.namespace}", "--ignore-not-found", "--wait"
        )
        cluster_namespace.delete(self.cluster, self.namespace)

    def new_namespace(self) -> str:
        """A namespace that goes with the operator."""
        name = cluster_namespace.create(self.cluster)
        self._namespaces.append(name)
        return name

    def pods(self) -> set[str]:
        """The names of the operator's pods."""
        found = self.cluster.get(
            "pods", f"--namespace={self.namespace}",
            "--selector=app.kubernetes.io/component=operator",
        )  # fmt: skip
        return {pod["metadata"]["name"] for pod in found["items"]}


def operator_of(cluster: Cluster, images: dict[str, str]) -> Operator:
    """Install an operator; the definition is applied before, and stays for others."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(DEFINITION))
    name = f"test-operator-{secrets.token_hex(2)}"
    cluster.kubectl("create", "namespace", name)
    operator = Operator(cluster, images, name)
    operator.install()
    return operator


def values_of(images: dict[str, str]) -> dict[str, Any]:
    """The chart's values for *images*, which are on the nodes and nowhere else."""
    return {
        "crds": {"enabled": False},
        "image": _image(images["operator"]) | {"pullPolicy": "IfNotPresent"},
        "images": {name: _image(images[name]) for name in CHILDREN if name in images},
        "rbac": {"aggregateToView": False},
        "resyncSeconds": RESYNC_S,
        "test": {"enabled": False},
    }


def sample(name: str) -> Path:
    """One of the samples that users apply."""
    return ROOT / "deploy" / "samples" / name


def _image(name: str) -> dict[str, str]:
    path, _, tag = name.rpartition(":")
    registry, _, repository = path.rpartition("/")
    return {"registry": registry, "repository": repository, "tag": tag}
