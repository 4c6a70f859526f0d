"""An operator in a cluster as people install it: by the chart, with the images that were built."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster import classes, namespaces, turns
from cluster.chart_rendering import CHART, ROOT
from cluster.handle import Cluster

DEFINITION = ROOT / "deploy" / "crd.yaml"
RELEASE = "logpipeline"
# Of the namespace that has the operator of all.
NAMESPACE = "test-operator"
LABEL = "test.logpipeline.dev/operator-of-all"
# Images of children. That of the table is large, and there where a test wants it.
CHILDREN = ("collector", "shipper", "table", "nats")
INSTALL_S_MAX = 120
# What a test waits for is mostly told by a watch; what is not is seen soon.
RESYNC_S = 5


def define(cluster: Cluster) -> None:
    """Have the API server, and kubectl, know the resource, and allow all of it to every pipeline
    that names no class.
    """
    names = ("logpipelines.logpipeline.dev", "logpipelineclasses.logpipeline.dev")
    cluster.define(DEFINITION.read_text(), *names)
    # The second is the one that samples name.
    for name in ("default", "cluster"):
        classes.allow(cluster, name)


@dataclass(slots=True)
class Operator:
    """A release of the chart, which watches all namespaces, as one module of tests uses it."""

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

    def new_namespace(self) -> str:
        """A namespace that goes when the module is done with the operator."""
        name = namespaces.create(self.cluster)
        self._namespaces.append(name)
        return name

    def clear(self) -> None:
        """Have the namespaces deleted, with the pipelines in them."""
        for name in self._namespaces:
            namespaces.delete(self.cluster, name)

    def pods(self) -> set[str]:
        """The names of the operator's pods."""
        found = self.cluster.get(
            "pods", f"--namespace={self.namespace}",
            "--selector=app.kubernetes.io/component=operator",
        )  # fmt: skip
        return {pod["metadata"]["name"] for pod in found["items"]}


@contextmanager
def shared(cluster: Cluster, images: dict[str, str]) -> Iterator[Operator]:
    """The operator of all modules and processes that test on *cluster*: whoever comes first
    installs it.
    """
    with turns.shared(cluster):
        with turns.installing(cluster):
            operator = _installed(cluster, images)
        try:
            yield operator
        finally:
            operator.clear()


@contextmanager
def away(cluster: Cluster) -> Iterator[None]:
    """Without the operator of all meanwhile, for a test that installs one of its own."""
    with turns.alone(cluster):
        _uninstall(cluster)
        yield


def leave(cluster: Cluster) -> None:
    """Uninstall the operator of all, unless others still use it."""
    with turns.alone_if_free(cluster) as is_alone:
        if is_alone:
            _uninstall(cluster)


def _installed(cluster: Cluster, images: dict[str, str]) -> Operator:
    wanted = values_of(images)
    for name in _namespaces(cluster):
        told = cluster.helm("status", RELEASE, f"--namespace={name}", "-o", "json", check=False)
        release = json.loads(told) if told.startswith("{") else {}
        # A test may have upgraded it with other values; but it has to run this very code.
        is_ours = all(release.get("config", {}).get(k) == wanted[k] for k in ("image", "images"))
        if is_ours and release["info"]["status"] == "deployed":
            return Operator(cluster, images, name)
    # It is of former code, or of a run that was killed while it installed.
    _uninstall(cluster)
    define(cluster)
    # The former one's namespace may take a while to go.
    operator = Operator(cluster, images, f"{NAMESPACE}-{secrets.token_hex(2)}")
    metadata = {"name": operator.namespace, "labels": {LABEL: "true"}}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    operator.install()
    return operator


def _uninstall(cluster: Cluster) -> None:
    for name in _namespaces(cluster):
        cluster.helm("uninstall", RELEASE, f"--namespace={name}", "--ignore-not-found", "--wait")
        namespaces.delete(cluster, name)


def _namespaces(cluster: Cluster) -> list[str]:
    found = cluster.get("namespaces", f"--selector={LABEL}")["items"]
    return [n["metadata"]["name"] for n in found if n["status"]["phase"] == "Active"]


def values_of(images: dict[str, str]) -> dict[str, Any]:
    """The chart's values for *images*, which are on the nodes and nowhere else."""
    return {
        # Tests make them, or the release of one test would take them from the others.
        "crds": {"enabled": False},
        "classes": {"create": False, "admission": False},
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
