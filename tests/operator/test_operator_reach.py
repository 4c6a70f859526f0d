"""Whose pods are read where labels of namespaces say it: the class and the pipeline both have to
want it, and rights come and go with the labels.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api_server.operator_process import OperatorProcess
from cluster import classes
from cluster.handle import Cluster
from cluster.installed_operator import define
from waiting import eventually

WITHIN_S = 90.0
BLUE: dict[str, Any] = {"matchLabels": {"example.net/team": "blue"}}
NO_SECRETS: dict[str, Any] = {
    "matchExpressions": [{"key": "example.net/secret", "operator": "DoesNotExist"}]
}
QUIET: dict[str, Any] = {"partitions": 1, "collectors": {"replicas": 0}}


@pytest.fixture
def cluster(own_cluster: Cluster) -> Cluster:
    """An API server of this test, since the operator has rights of the whole cluster."""
    define(own_cluster)
    return own_cluster


@pytest.fixture
def operator(cluster: Cluster, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator of all namespaces that acts on what it hears alone."""
    roles = {
        "LOGPIPELINE_SHIPPER_ROLE": "ClusterRole/view",
        "LOGPIPELINE_LOOK_AGAIN_SECONDS": "600",
    }
    words = [f"--kubeconfig={cluster.kubeconfig}", "--no-lease"]
    made = OperatorProcess(words, tmp_path / "operator.log", roles, has_rounds=False)
    made.start()
    yield made
    made.kill()


def make(cluster: Cluster, name: str, **labels: str) -> str:
    """Make a namespace with *labels*."""
    given = {f"example.net/{key}": value for key, value in labels.items()}
    metadata = {"name": name, "labels": given}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    return name


def label(cluster: Cluster, namespace: str, word: str) -> None:
    """Change a label of a namespace as a person does."""
    cluster.kubectl("label", "--overwrite", f"namespace/{namespace}", f"example.net/{word}")


def write(cluster: Cluster, namespace: str, shippers: dict[str, Any]) -> None:
    """Write the pipeline, which finds no node."""
    metadata = {"name": "p", "namespace": namespace}
    cluster.apply(
        {"apiVersion": "logpipeline.dev/v1alpha1", "kind": "LogPipeline", "metadata": metadata,
         "spec": {**QUIET, "shippers": shippers}},
    )  # fmt: skip


def told(cluster: Cluster, namespace: str) -> list[str] | None:
    """The namespaces that the shippers are told, None before they are told any."""
    words = ("configmaps", f"--namespace={namespace}", "--selector=logpipeline.dev/pipeline=p")
    found = {each["metadata"]["name"]: each["data"] for each in cluster.get(*words)["items"]}
    text = found.get("p-shipper", {}).get("namespaces.json")
    return None if text is None else list(json.loads(text))


def bound(cluster: Cluster, namespace: str) -> list[str]:
    """The namespaces in which the shippers are bound."""
    selector = f"--selector=logpipeline.dev/namespace={namespace}"
    items = cluster.get("rolebindings", "--all-namespaces", selector)["items"]
    return sorted(each["metadata"]["namespace"] for each in items)


def may(cluster: Cluster, namespace: str, where: str) -> bool:
    """Whether the shippers may list the pods of *where*."""
    user = f"--as=system:serviceaccount:{namespace}:p-shipper"
    words = ("auth", "can-i", "list", "pods", f"--namespace={where}", user)
    return cluster.kubectl(*words, check=False).strip().splitlines()[0] == "yes"


def ready_reason(cluster: Cluster, namespace: str) -> str:
    """The reason of the pipeline's condition Ready; empty before the first look."""
    there = cluster.get("logpipeline/p", f"--namespace={namespace}").get("status") or {}
    found = [each for each in there.get("conditions") or [] if each["type"] == "Ready"]
    return str(found[0]["reason"]) if found else ""


async def test_shippers_read_what_class_and_pipeline_select(
    cluster: Cluster, namespace: str, operator: OperatorProcess
) -> None:
    """Both have to want it; with a label rights go as well as come, and with the pipeline all of
    them do.
    """
    blue, red, secret = (
        make(cluster, f"{namespace}-blue", team="blue"),
        make(cluster, f"{namespace}-red", team="red"),
        make(cluster, f"{namespace}-secret", team="blue", secret="yes"),
    )
    late = make(cluster, f"{namespace}-late")
    classes.allow(cluster, "default", podNamespaces="Selector", podNamespaceSelector=NO_SECRETS)
    write(cluster, namespace, {"podNamespaces": "Selector", "podNamespaceSelector": BLUE})
    await eventually(lambda: told(cluster, namespace) == [blue], within_s=WITHIN_S)
    await eventually(lambda: bound(cluster, namespace) == [blue], within_s=WITHIN_S)
    rights = {each: may(cluster, namespace, each) for each in (blue, red, secret, late, namespace)}

    label(cluster, late, "team=blue")
    label(cluster, secret, "secret-")
    three = sorted((blue, late, secret))
    await eventually(lambda: told(cluster, namespace) == three, within_s=WITHIN_S)
    await eventually(lambda: bound(cluster, namespace) == three, within_s=WITHIN_S)
    label(cluster, blue, "team-")
    label(cluster, late, "team=red")
    await eventually(lambda: told(cluster, namespace) == [secret], within_s=WITHIN_S)
    await eventually(lambda: bound(cluster, namespace) == [secret], within_s=WITHIN_S)
    after = may(cluster, namespace, blue)
    # A class that selects less takes away, and one that says nothing of its pipeline's takes all.
    classes.allow(cluster, "default", podNamespaces="Selector", podNamespaceSelector={
        "matchLabels": {"example.net/team": "red"}})  # fmt: skip
    await eventually(lambda: told(cluster, namespace) == [], within_s=WITHIN_S)
    write(cluster, namespace, {})
    await eventually(lambda: told(cluster, namespace) == sorted((late, red)), within_s=WITHIN_S)
    await eventually(lambda: bound(cluster, namespace) == sorted((late, red)), within_s=WITHIN_S)
    cluster.kubectl("delete", "logpipeline/p", f"--namespace={namespace}")
    await eventually(lambda: bound(cluster, namespace) == [], within_s=WITHIN_S)

    assert rights == {blue: True, red: False, secret: False, late: False, namespace: False}
    assert not after


async def test_an_account_of_another_owner_is_bound_in_no_namespace(
    cluster: Cluster, namespace: str, operator: OperatorProcess
) -> None:
    """Neither one that was there first, nor one that took the place of the pipeline's own."""
    blue = make(cluster, f"{namespace}-blue", team="blue")
    late = make(cluster, f"{namespace}-late")
    account = {"name": "p-shipper", "namespace": namespace}
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    classes.allow(cluster, "default", podNamespaces="All")
    write(cluster, namespace, {"podNamespaces": "Selector", "podNamespaceSelector": BLUE})
    await eventually(lambda: ready_reason(cluster, namespace) == "ForeignChild", within_s=WITHIN_S)
    at_first, could_read = bound(cluster, namespace), may(cluster, namespace, blue)

    here = f"--namespace={namespace}"
    cluster.kubectl("delete", "serviceaccount/p-shipper", here)
    label(cluster, late, "team=blue")
    both = sorted((blue, late))
    await eventually(lambda: bound(cluster, namespace) == both, within_s=WITHIN_S)
    taken = {"metadata": {"labels": None, "ownerReferences": None}}
    patch = ("--type=merge", f"--patch={json.dumps(taken)}")
    cluster.kubectl("patch", "serviceaccount/p-shipper", here, *patch)
    await eventually(lambda: bound(cluster, namespace) == [], within_s=WITHIN_S)

    assert (at_first, could_read) == ([], False)


async def test_a_namespace_that_is_gone_is_read_to_its_end(
    cluster: Cluster, namespace: str, operator: OperatorProcess
) -> None:
    """Shippers may still have its last lines to read; one of its name that has no such label is
    not the same.
    """
    classes.allow(cluster, "default", podNamespaces="All")
    gone = make(cluster, f"{namespace}-gone", team="blue")
    write(cluster, namespace, {"podNamespaces": "Selector", "podNamespaceSelector": BLUE})
    await eventually(lambda: told(cluster, namespace) == [gone], within_s=WITHIN_S)
    cluster.kubectl("delete", f"namespace/{gone}", "--wait=false")
    # Without controllers nobody ends it: its last finalizer is taken away as they would.
    finalized = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": gone}, "spec": {}}
    cluster.kubectl("replace", "--raw", f"/api/v1/namespaces/{gone}/finalize", "-f", "-",
                    input=json.dumps(finalized))  # fmt: skip
    other = make(cluster, f"{namespace}-other", team="blue")
    both = sorted((gone, other))
    await eventually(lambda: told(cluster, namespace) == both, within_s=WITHIN_S)
    make(cluster, gone)

    await eventually(lambda: told(cluster, namespace) == [other], within_s=WITHIN_S)


def test_selectors_that_say_nothing_are_refused(cluster: Cluster, namespace: str) -> None:
    """By the API server, with the field and what belongs there."""
    one = {"key": "team", "operator": "In"}
    for shippers, words in (
        ({"podNamespaces": "Selector"}, "belongs to podNamespaces: Selector, and is needed by it"),
        ({"podNamespaceSelector": BLUE}, "belongs to podNamespaces: Selector, and is needed by it"),
        ({"podNamespaces": "Selector", "podNamespaceSelector": {}}, "selects nothing"),
        ({"podNamespaces": "Selector", "podNamespaceSelector": {"matchExpressions": [one]}},
         "are needed by In and NotIn"),
    ):  # fmt: skip
        with pytest.raises(AssertionError, match=words):
            write(cluster, namespace, shippers)
    one_class = {"podNamespaces": "Selector"}
    with pytest.raises(AssertionError, match="is needed by it"):
        classes.allow(cluster, "strict", **one_class)
