"""What the operator and its shippers do and what they may do, compared by the API server's own log:
each right of the chart is used, and nothing is asked for that is not granted.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from cluster_handle import Cluster
from cluster_operator import RELEASE, Operator
from cluster_pipelines import create, small
from waiting import eventually

pytest_plugins = ["cluster_operator_fixture"]

# Group, resource and verb.
Right = tuple[str, str, str]
Manifest = dict[str, Any]
SEEN_WITHIN_S = 120.0
BAD_IMAGE = "localhost/nobody-builds-this:1"
# A server of the user's takes the place of the managed one, whose children then go; nobody is asked
# to delete its streams.
ELSEWHERE = {"nats": {"servers": ["nats://127.0.0.1:1"]}, "deletionPolicy": "Retain"}
# What the log cannot show, and why it is granted all the same.
_APPLIED = "server-side apply of what is not there yet is a patch that needs it"
_NO_KIND = "this cluster has no PodMonitors"
UNSEEN: dict[Right, str] = {
    ("rbac.authorization.k8s.io", "clusterroles", "bind"): "asked of whoever makes a binding",
    ("", "pods", "delete"): "Kubernetes may be first to take a stuck pod away",
    ("", "events", "list"): "asked only while a controller has not made its pods",
    **{("monitoring.coreos.com", "podmonitors", verb): _NO_KIND for verb in
       ("get", "list", "create", "patch", "delete")},
    **{(group, resource, "create"): _APPLIED for group, resource in (
        ("", "configmaps"), ("", "serviceaccounts"), ("", "services"),
        ("apps", "daemonsets"), ("apps", "statefulsets"),
        ("networking.k8s.io", "networkpolicies"), ("policy", "poddisruptionbudgets"),
        ("rbac.authorization.k8s.io", "clusterrolebindings"),
    )},
}  # fmt: skip


def rights_of(role: Manifest) -> set[Right]:
    """What a role gives."""
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def granted(operator: Operator) -> tuple[set[Right], set[Right]]:
    """What the installed chart lets the operator do, and its shippers."""
    text = operator.cluster.helm("get", "manifest", RELEASE, f"--namespace={operator.namespace}")
    mine: set[Right] = set()
    shippers: set[Right] = set()
    for manifest in yaml.safe_load_all(text):
        if manifest and manifest["kind"] in ("Role", "ClusterRole"):
            is_shipper = manifest["metadata"]["name"].endswith("-shipper")
            (shippers if is_shipper else mine).update(rights_of(manifest))
    return mine, shippers


def used(cluster: Cluster, user: str) -> tuple[set[Right], set[Right]]:
    """What *user* asked the API server: what that allowed, and what not."""
    allowed: set[Right] = set()
    denied: set[Right] = set()
    with cluster.audit_log.open() as lines:
        for line in lines:
            if user not in line or not line.endswith("\n"):
                continue
            entry = json.loads(line)
            at = entry.get("objectRef")
            if entry["user"]["username"] != user or not at:
                continue
            resource = "/".join(filter(None, (at["resource"], at.get("subresource"))))
            decision = entry.get("annotations", {}).get("authorization.k8s.io/decision")
            found = denied if decision == "forbid" else allowed
            found.add((at.get("apiGroup", ""), resource, entry["verb"]))
    return allowed, denied


def account(namespace: str, name: str) -> str:
    """How the audit log calls a service account."""
    return f"system:serviceaccount:{namespace}:{name}"


@pytest.mark.timeout(600)
async def test_rights_are_those_that_are_used(cluster: Cluster, operator: Operator) -> None:
    """A pipeline with everything, changed, spoiled, mended and deleted: the operator and shippers
    are denied nothing, and there is no right that they did without, but for those listed here.
    """
    namespace = operator.new_namespace()
    full = small(shippers={}, networkPolicy={"enabled": True}, deletionPolicy="Delete")
    full["collectors"] = {"persistence": {"size": "1Gi"}}
    pipeline = create(cluster, namespace, "all", full)
    pipeline.wait_ready()
    pipeline.patch({"collectors": {"image": BAD_IMAGE}})
    pipeline.wait_reason("Ready", "ImageNotPulled")
    pipeline.patch(
        {
            "collectors": {"image": None, "podDisruptionBudget": {"enabled": False}},
            "shippers": {"enabled": False},
            "networkPolicy": {"enabled": False},
        }
    )
    # Its volume cannot grow here; that is another's refusal, and the right was used.
    pipeline.patch({"collectors": {"persistence": {"size": "2Gi"}}})
    pipeline.wait_reason("Ready", "KubernetesRefused")
    mine, shippers = granted(operator)
    me = account(operator.namespace, f"{RELEASE}-operator")

    def is_done() -> bool:
        assert ("apps", "daemonsets", "delete") in used(cluster, me)[0]
        return True

    await eventually(is_done, within_s=SEEN_WITHIN_S, what="the shippers go")
    pipeline.patch(ELSEWHERE | {"collectors": {"persistence": {"size": "1Gi"}}})
    pipeline.wait_reason("Ready", "NatsUnreachable")
    pipeline.kubectl("delete", "logpipeline/all", f"--timeout={SEEN_WITHIN_S:.0f}s")
    allowed, denied = used(cluster, me)
    seen, not_seen = used(cluster, account(namespace, "all-shipper"))

    assert denied | not_seen == set()
    assert mine - allowed - UNSEEN.keys() == set()
    assert allowed - mine == set()
    assert seen == shippers
