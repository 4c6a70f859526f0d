"""Who may ask for what: a writer of LogPipelines, who may do nothing else, reaches no further than
his class says, by the API server's policy and by the operator alone.
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
from cluster.chart_rendering import ROOT
from cluster.handle import Cluster
from cluster.installed_operator import DEFINITION
from waiting import eventually

WRITER = "writer"
POLICY = ROOT / "deploy" / "admission.yaml"
CLASSES = ROOT / "deploy" / "classes.yaml"
WITHIN_S = 90.0
# Where nothing answers: what is looked at here is what Kubernetes has.
NOWHERE = ["nats://127.0.0.1:1"]
SECRET = {"name": "bank"}
QUIET: dict[str, Any] = {"partitions": 1, "collectors": {"replicas": 0}}
RIGHTS = [
    {"apiGroups": ["logpipeline.dev"], "resources": ["logpipelines"], "verbs": ["*"]},
]
# By what name the pipeline goes, and what it asks for.
ATTEMPTS: dict[str, dict[str, Any]] = {
    "image": {"shippers": {"image": "evil.example.net/shell:1"}},
    "collector-image": {"collectors": {"image": "evil.example.net/shell:1"}},
    "server-image": {"nats": {"managed": {"image": "evil.example.net/shell:1"}}},
    "account": {"shippers": {"serviceAccountName": "logpipeline-operator"}},
    "positions": {"shippers": {"positionsHostPath": "/root"}},
    "tokens": {"shippers": {"hostFiles": [{"include": ["/var/lib/kubelet/pods/**"]}]}},
    "node-volume": {"collectors": {"persistence": {"hostPath": "/etc/kubernetes"}}},
    "claim": {"collectors": {"persistence": {"existingClaim": "bank"}}},
    "env-secret": {"collectors": {"env": [
        {"name": "X", "valueFrom": {"secretKeyRef": {"name": "bank", "key": "pin"}}}]}},
    "preload": {"shippers": {"env": [{"name": "LD_PRELOAD", "value": "/var/log/x.so"}]}},
    "server": {"nats": {"servers": ["nats://evil.example.net:4222"]}},
    "server-secret": {"nats": {"servers": ["nats://evil.example.net:4222"],
                               "token": {"secret": SECRET, "token": "pin"}}},
    "request": {"nats": {"monitoringUrl": "http://169.254.169.254/"}},
    "all-pods": {"shippers": {"podNamespaces": "All"}},
    "priority": {"collectors": {"priorityClassName": "system-node-critical"}},
    "node": {"shippers": {"nodeSelector": {"node-role.kubernetes.io/control-plane": ""}}},
    "taint": {"collectors": {"tolerations": [{"operator": "Exists"}]}},
    "annotation": {"shippers": {"podAnnotations": {
        "container.apparmor.security.beta.kubernetes.io/shipper": "unconfined"}}},
    "label": {"collectors": {"podLabels": {"app": "bank"}}},
    "pull-secret": {"collectors": {"imagePullSecrets": [SECRET]}},
    "folder": {"collectors": {"directory": "/opt/logpipeline"}},
    "catalog": {"table": {"catalog": {"py-catalog-impl": "os.system"}}},
    "bucket": {"table": {"s3": {"endpoint": "http://evil.example.net:9000"}}},
    "size": {"nats": {"managed": {"storage": "1Pi"}}},
    "count": {"partitions": 1024},
    "other-class": {"className": "cluster"},
}  # fmt: skip


@pytest.fixture
def cluster(own_cluster: Cluster) -> Cluster:
    """An API server of this test, with the classes as they are installed."""
    names = ("logpipelines.logpipeline.dev", "logpipelineclasses.logpipeline.dev")
    own_cluster.define(DEFINITION.read_text(), *names)
    own_cluster.kubectl("apply", "-f", str(CLASSES))
    return own_cluster


@pytest.fixture
def operator(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator of this namespace alone, on this machine."""
    words = [f"--kubeconfig={cluster.kubeconfig}", f"--namespace={namespace}", "--no-lease"]
    roles = {
        "LOGPIPELINE_SHIPPER_CLUSTER_ROLE": "view",
        "LOGPIPELINE_SHIPPER_ROLE": "ClusterRole/view",
        # What it does is for what it hears: of a class, by its watch.
        "LOGPIPELINE_LOOK_AGAIN_SECONDS": "600",
    }
    made = OperatorProcess(words, tmp_path / "operator.log", roles, has_rounds=False)
    made.start()
    yield made
    made.kill()


def pipeline(namespace: str, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """A LogPipeline that has no pods, but for what *spec* says."""
    merged = {
        key: {**QUIET.get(key, {}), **value} if isinstance(value, dict) else value
        for key, value in {**QUIET, **spec}.items()
    }
    return {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": merged,
    }


def write(cluster: Cluster, namespace: str, name: str, spec: dict[str, Any], **more: Any) -> None:
    """Apply it as an administrator."""
    cluster.apply(pipeline(namespace, name, spec, **more))


def let_write(cluster: Cluster, namespace: str) -> None:
    """Give the writer his one right, in this namespace."""
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {
        "name": WRITER, "namespace": namespace}}  # fmt: skip
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": WRITER}
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": WRITER}
    cluster.apply(
        {**role, "kind": "Role", "rules": RIGHTS},
        {**role, "kind": "RoleBinding", "roleRef": reference, "subjects": [user]},
    )


def answer(cluster: Cluster, manifest: dict[str, Any], *words: str) -> str:
    """What the API server says to the writer who creates *manifest*."""
    words = (*words, "create", "-f", "-", f"--as={WRITER}")
    return cluster.kubectl(*words, input=json.dumps(manifest), check=False)


def ready(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    """The condition Ready of a pipeline, empty before there is one."""
    one = {**namespaces.PIPELINES, "url": f"logpipelines/{name}"}
    status = cluster.api.get(**one, namespace=namespace).json().get("status") or {}
    found: list[dict[str, Any]] = status.get("conditions", [])
    return next((each for each in found if each["type"] == "Ready"), {})


def children(cluster: Cluster, namespace: str, kinds: str) -> set[str]:
    """Kind and name of each object of *kinds* that belongs to a pipeline."""
    words = (kinds, f"--namespace={namespace}", "--selector=logpipeline.dev/pipeline")
    return {f"{each['kind']} {each['metadata']['name']}" for each in cluster.get(*words)["items"]}


def may(cluster: Cluster, user: str, *words: str) -> bool:
    """What `kubectl auth can-i` says of *user*."""
    said = cluster.kubectl("auth", "can-i", *words, f"--as={user}", check=False)
    return said.strip().splitlines()[0] == "yes"


PODS = "serviceaccounts,configmaps,daemonsets,statefulsets,rolebindings"


async def test_a_writer_of_pipelines_is_refused_by_the_api_server(
    cluster: Cluster, namespace: str
) -> None:
    """Nothing that reaches further is even stored; what a class allows is."""
    let_write(cluster, namespace)
    cluster.kubectl("apply", "-f", str(POLICY))
    probe = pipeline(namespace, "probe", ATTEMPTS["image"])

    def is_enforced() -> bool:
        return "LogPipelineClass default" in answer(cluster, probe, "--dry-run=server")

    await eventually(is_enforced, within_s=WITHIN_S, what="the policy is enforced")
    answers = {
        name: answer(cluster, pipeline(namespace, name, spec)) for name, spec in ATTEMPTS.items()
    }
    allowed = answer(cluster, pipeline(namespace, "good", {"shippers": {"podNamespaces": "Own"}}))
    adopting = {"annotations": {"logpipeline.dev/adopt": "true"}}
    adopted = answer(cluster, pipeline(namespace, "adopting", {}, **adopting))

    missing = {n: text for n, text in answers.items() if "LogPipelineClass" not in text}
    assert missing == {}
    assert "LogPipelineClass default" in adopted
    assert "created" in allowed
    stored = cluster.get("logpipelines", f"--namespace={namespace}")["items"]
    assert [each["metadata"]["name"] for each in stored] == ["good"]


async def test_a_url_with_a_star_lets_no_other_host_in(cluster: Cluster, namespace: str) -> None:
    """The API server's policy tells a login from a host, too."""
    let_write(cluster, namespace)
    cluster.kubectl("apply", "-f", str(POLICY))
    classes.allow(cluster, "default", natsServers=["nats://a.example.net:*"])

    def said(url: str) -> str:
        asked = pipeline(namespace, "p", {"nats": {"servers": [url]}})
        return answer(cluster, asked, "--dry-run=server")

    def is_enforced() -> bool:
        return "natsServers" in said("nats://evil.example.net:4222")

    await eventually(is_enforced, within_s=WITHIN_S, what="the policy is enforced")
    await eventually(lambda: "created" in said("nats://a.example.net:4222"), within_s=WITHIN_S)

    assert "natsServers" in said("nats://a.example.net:x@evil.example.net:4222")


async def test_a_pipeline_that_is_allowed_no_more_can_still_be_labelled_and_deleted(
    cluster: Cluster, namespace: str
) -> None:
    """A class that became narrower holds back changes of what is asked for, and nothing else."""
    let_write(cluster, namespace)
    write(cluster, namespace, "p", ATTEMPTS["image"], finalizers=["example.net/wait"])
    cluster.kubectl("apply", "-f", str(POLICY))
    one = ("logpipeline/p", f"--namespace={namespace}", f"--as={WRITER}")

    def changed() -> str:
        words = (
            "patch",
            *one,
            "--type=merge",
            "-p",
            '{"spec":{"cluster":"x"}}',
            "--dry-run=server",
        )
        return cluster.kubectl(*words, check=False)

    await eventually(lambda: "LogPipelineClass" in changed(), within_s=WITHIN_S)
    labelled = cluster.kubectl("label", *one, "a=b", check=False)
    cluster.kubectl("delete", *one, "--wait=false")
    free = '{"metadata":{"finalizers":null}}'
    freed = cluster.kubectl("patch", *one, "--type=merge", "-p", free, check=False)

    assert "labeled" in labelled
    assert "patched" in freed
    assert cluster.get("logpipelines", f"--namespace={namespace}")["items"] == []


async def test_a_writer_of_pipelines_is_refused_by_the_operator_without_the_policy(
    cluster: Cluster, namespace: str, operator: OperatorProcess
) -> None:
    """Each pipeline says class and field, and there is nothing of it: no pod, no account, no
    binding, and no finalizer.
    """
    let_write(cluster, namespace)
    for name, spec in ATTEMPTS.items():
        said = answer(cluster, pipeline(namespace, name, spec))
        assert "created" in said, (name, said)

    def are_refused() -> bool:
        found = {name: ready(cluster, namespace, name) for name in ATTEMPTS}
        others = {n: c for n, c in found.items() if c.get("reason") != "NotAllowedByClass"}
        assert others == {}
        return all("LogPipelineClass" in each["message"] for each in found.values())

    await eventually(are_refused, within_s=WITHIN_S * 2)

    assert children(cluster, namespace, PODS) == set()
    bound = cluster.get("clusterrolebindings", "--selector=logpipeline.dev/namespace")["items"]
    assert bound == []


async def test_a_pipeline_that_is_refused_runs_on_as_it_was_allowed(
    cluster: Cluster, namespace: str, operator: OperatorProcess
) -> None:
    """Its children stay as they were, and are healed; once the class allows it, it is carried out
    without another word.
    """
    account = "serviceaccount/p-shipper"
    here = f"--namespace={namespace}"
    write(cluster, namespace, "p", {})

    def image() -> str:
        found = cluster.get("daemonset/p-shipper", here)
        return str(found["spec"]["template"]["spec"]["containers"][0]["image"])

    await eventually(lambda: "DaemonSet p-shipper" in children(cluster, namespace, PODS),
                     within_s=WITHIN_S)  # fmt: skip
    former = image()
    write(cluster, namespace, "p", ATTEMPTS["image"])
    await eventually(
        lambda: ready(cluster, namespace, "p").get("reason") == "NotAllowedByClass",
        within_s=WITHIN_S,
    )
    cluster.kubectl("delete", account, here)
    await eventually(
        lambda: "ServiceAccount p-shipper" in children(cluster, namespace, PODS), within_s=WITHIN_S
    )
    meanwhile = image()
    classes.allow(cluster, "default", images=["evil.example.net/*"])
    await eventually(lambda: image() == "evil.example.net/shell:1", within_s=WITHIN_S)

    assert meanwhile == former


async def test_what_a_former_pipeline_of_the_name_was_allowed_is_forgotten(
    cluster: Cluster, namespace: str, operator: OperatorProcess
) -> None:
    """Deleted without its children it leaves that behind, under a name that the next one needs."""
    labels = {"logpipeline.dev/pipeline": "p"}
    metadata = {"name": "p-allowed-1", "namespace": namespace, "labels": labels}
    former = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata}
    cluster.apply({**former, "revision": 1, "data": {"spec": {}}})
    write(cluster, namespace, "p", {})

    def versions() -> set[str]:
        found = children(cluster, namespace, "controllerrevisions")
        return {each for each in found if "-allowed-" in each}

    own = {"ControllerRevision p-allowed-2"}
    await eventually(lambda: versions() == own, within_s=WITHIN_S, what="the version of its own")


async def test_streams_are_kept_if_the_resource_says_so_whatever_its_class_allows(
    cluster: Cluster, namespace: str, operator: OperatorProcess
) -> None:
    """A pipeline whose class is gone runs on as it was allowed last; where that says Delete, and
    the resource says Retain since then, nothing waits for its end to delete its streams.
    """

    def finalizers() -> list[str]:
        found = cluster.get("logpipeline/p", f"--namespace={namespace}")["metadata"]
        return list(found.get("finalizers", []))

    def is_refused() -> bool:
        return ready(cluster, namespace, "p").get("reason") == "ClassUnusable"

    write(cluster, namespace, "p", {"deletionPolicy": "Delete"})
    await eventually(lambda: finalizers() == ["logpipeline.dev/cleanup"], within_s=WITHIN_S)
    cluster.kubectl("delete", "logpipelineclass", "default")
    await eventually(is_refused, within_s=WITHIN_S)
    meanwhile = finalizers()
    write(cluster, namespace, "p", {"deletionPolicy": "Retain"})
    await eventually(lambda: finalizers() == [], within_s=WITHIN_S)

    assert meanwhile == ["logpipeline.dev/cleanup"]
    assert is_refused()
    assert "DaemonSet p-shipper" in children(cluster, namespace, PODS)


async def test_a_class_that_is_not_there_allows_nothing(
    cluster: Cluster, namespace: str, operator: OperatorProcess
) -> None:
    """The pipeline says which one is missing, and goes on as soon as it is made."""
    write(cluster, namespace, "p", {"className": "lost"})

    def is_said() -> bool:
        found = ready(cluster, namespace, "p")
        return found.get("reason") == "ClassUnusable" and "lost" in found["message"]

    await eventually(is_said, within_s=WITHIN_S)
    before = children(cluster, namespace, PODS)
    classes.allow(cluster, "lost", images=[])
    await eventually(
        lambda: "DaemonSet p-shipper" in children(cluster, namespace, PODS), within_s=WITHIN_S
    )

    assert before == set()


async def test_an_account_of_somebody_else_is_neither_bound_nor_used(
    cluster: Cluster, namespace: str, operator: OperatorProcess
) -> None:
    """A pipeline that is named so that its accounts would be those of others gets no pods."""
    metadata = {"name": "bank-shipper", "namespace": namespace}
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    write(cluster, namespace, "bank", {})
    await eventually(
        lambda: ready(cluster, namespace, "bank").get("reason") == "ForeignChild", within_s=WITHIN_S
    )

    found = children(cluster, namespace, PODS)
    assert not found & {"DaemonSet bank-shipper", "RoleBinding bank-shipper"}
    user = f"system:serviceaccount:{namespace}:bank-shipper"
    assert not may(cluster, user, "list", "pods", f"--namespace={namespace}")


async def test_shippers_of_their_own_namespace_see_no_other(
    cluster: Cluster, namespace: str, operator: OperatorProcess
) -> None:
    """Their rights follow what their class lets them read."""
    user = f"system:serviceaccount:{namespace}:p-shipper"
    here = f"--namespace={namespace}"
    write(cluster, namespace, "p", {})
    await eventually(lambda: may(cluster, user, "list", "pods", here), within_s=WITHIN_S)
    elsewhere = may(cluster, user, "list", "pods", "--namespace=kube-system")
    config = cluster.get("configmap/p-shipper", here)["data"]["pipeline.yaml"]
    classes.allow(cluster, "default", podNamespaces="All")
    await eventually(
        lambda: may(cluster, user, "list", "pods", "--namespace=kube-system"), within_s=WITHIN_S
    )
    classes.allow(cluster, "default", podNamespaces="Own")
    await eventually(
        lambda: not may(cluster, user, "list", "pods", "--namespace=kube-system"), within_s=WITHIN_S
    )

    assert not elsewhere
    assert yaml.safe_load(config)["spec"]["shippers"]["podNamespaces"] == "Own"
    assert may(cluster, user, "list", "pods", here)
    assert not may(cluster, user, "get", "secrets", here)
