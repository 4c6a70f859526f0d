"""An operator of some namespaces, with the rights that the chart gives it and no others: they are
enough for its work, and end where its namespaces do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from api_server.operator_process import OperatorProcess
from cluster import classes, namespaces
from cluster.chart_rendering import NAMESPACE, Manifest, Rendered, render
from cluster.handle import Cluster
from cluster.installed_operator import define
from waiting import eventually

OPERATOR = "logpipeline-operator"
USER = f"system:serviceaccount:{NAMESPACE}:{OPERATOR}"
KINDS = "serviceaccounts,daemonsets,statefulsets,rolebindings"
RIGHTS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
WITHIN_S = 90.0
# What a thief of its token would want, where it looks after nothing.
ELSEWHERE = (
    ("get", "secrets"),
    ("list", "secrets"),
    ("create", "secrets"),
    ("create", "pods"),
    ("list", "pods"),
    ("create", "daemonsets.apps"),
    ("patch", "statefulsets.apps"),
    ("create", "rolebindings.rbac.authorization.k8s.io"),
    ("create", "serviceaccounts/token"),
    ("patch", "logpipelines.logpipeline.dev"),
)
# And nowhere at all.
NOWHERE = (
    ("create", "clusterrolebindings.rbac.authorization.k8s.io"),
    ("create", "logpipelineclasses.logpipeline.dev"),
    ("patch", "logpipelineclasses.logpipeline.dev"),
    ("create", "pods"),
    ("create", "pods/exec"),
    ("list", "secrets"),
    ("escalate", "roles.rbac.authorization.k8s.io"),
    ("impersonate", "users"),
    ("create", "serviceaccounts/token"),
    ("patch", "controllerrevisions.apps"),
)


@pytest.fixture
def cluster(own_cluster: Cluster) -> Cluster:
    """An API server of this test, since it has rights of the whole cluster."""
    define(own_cluster)
    return own_cluster


@pytest.fixture
def operator(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator of this namespace, as the chart's account."""
    rendered = render({"watchNamespaces": [namespace]})
    home = {"apiVersion": "v1", "kind": "Namespace",
                                     "metadata": {"name": NAMESPACE}}  # fmt: skip
    cluster.apply(home)
    cluster.apply(*(each for kind in RIGHTS for each in rendered.all(kind)))
    token = cluster.kubectl("create", "token", OPERATOR, f"--namespace={NAMESPACE}").strip()
    kubeconfig = tmp_path / "operator.kubeconfig"
    kubeconfig.write_text(json.dumps(with_token(cluster, token)))
    words = [f"--kubeconfig={kubeconfig}", f"--namespace={namespace}"]
    made = OperatorProcess(words, tmp_path / "operator.log", environment_of(rendered))
    made.start()
    yield made
    made.kill()


def with_token(cluster: Cluster, token: str) -> dict[str, Any]:
    """The kubeconfig of *cluster* for who has *token*."""
    config: dict[str, Any] = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"] = [{"name": each["name"], "user": {"token": token}} for each in config["users"]]
    return config


def environment_of(rendered: Rendered) -> dict[str, str]:
    """What the chart tells the operator about roles and its Lease."""
    names = ("SHIPPER_ROLE", "SPARK_ROLE", "LEASE_NAME")
    told = {f"LOGPIPELINE_{name}": rendered.environment[f"LOGPIPELINE_{name}"] for name in names}
    return told | {"LOGPIPELINE_LEASE_NAMESPACE": NAMESPACE}


def pipeline(namespace: str, **spec: Any) -> Manifest:
    """A pipeline whose pods find no node."""
    return {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": "p", "namespace": namespace},
        "spec": {"partitions": 1, "shippers": {"podNamespaces": "Own"}, **spec},
    }


def children(cluster: Cluster, namespace: str) -> set[str]:
    """Kind and name of each child, in a namespace."""
    words = (KINDS, f"--namespace={namespace}", "--selector=logpipeline.dev/pipeline")
    return {f"{each['kind']} {each['metadata']['name']}" for each in cluster.get(*words)["items"]}


def may(cluster: Cluster, verb: str, what: str, *words: str) -> bool:
    """What `kubectl auth can-i` says of the operator."""
    # A slash would stand before a name.
    resource, _, sub = what.partition("/")
    words = (*words, f"--subresource={sub}", f"--as={USER}")
    said = cluster.kubectl("auth", "can-i", verb, resource, *words, check=False)
    # Of a kind that lies in no namespace it says so before.
    return said.strip().splitlines()[-1].startswith("yes")


async def test_the_charts_rights_are_enough_and_end_with_its_namespaces(
    cluster: Cluster, namespace: str, operator: OperatorProcess
) -> None:
    """It makes children, binds shippers to the one role, and remembers what was allowed; nothing of
    it counts in another namespace.
    """
    here = f"--namespace={namespace}"
    cluster.apply(pipeline(namespace))
    wanted = {"DaemonSet p-shipper", "StatefulSet p-collector", "RoleBinding p-shipper"}
    await eventually(lambda: wanted <= children(cluster, namespace), within_s=WITHIN_S)
    classes.allow(cluster, "default", limits={"partitions": 0})
    one = {**namespaces.PIPELINES, "url": "logpipelines/p"}

    def is_refused() -> bool:
        status = cluster.api.get(**one, namespace=namespace).json()["status"]
        return any(each["reason"] == "NotAllowedByClass" for each in status["conditions"])

    await eventually(is_refused, within_s=WITHIN_S, what="the class is heard of")
    cluster.kubectl("delete", "serviceaccount/p-shipper", here)
    await eventually(lambda: wanted <= children(cluster, namespace), within_s=WITHIN_S)
    account = "ServiceAccount p-shipper"
    await eventually(lambda: account in children(cluster, namespace), within_s=WITHIN_S)

    elsewhere = [each for each in ELSEWHERE if may(cluster, *each, "--namespace=kube-system")]
    nowhere = [each for each in NOWHERE if may(cluster, *each, here)]
    assert (elsewhere, nowhere) == ([], [])
    assert may(cluster, "get", "secrets", here)
    kept = cluster.get("controllerrevisions", here, "--selector=logpipeline.dev/pipeline=p")[
        "items"
    ]
    # Kubernetes' own controllers keep some of theirs, with the labels of their pods.
    names = [each["metadata"]["name"] for each in kept]
    assert [name for name in names if name.startswith("p-allowed-")] == ["p-allowed-1"]
