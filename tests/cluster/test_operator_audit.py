"""What the operator and its shippers do and what they may do, compared by the API server's own log:
each right of the chart is used, and nothing is asked for that is not granted.
"""

from __future__ import annotations

import json

from cluster.handle import Cluster
from cluster.installed_operator import RELEASE, Operator
from cluster.pipelines import create, small
from cluster.rights import Right, account, granted, used
from waiting import eventually

pytest_plugins = ["cluster.operator_fixture"]

SEEN_WITHIN_S = 120.0
BAD_IMAGE = "localhost/nobody-builds-this:1"
# A driver of Spark gets rights of its own; here it never runs.
DRIVER = {
    "enabled": True,
    "runner": "native",
    "image": BAD_IMAGE,
    "path": "s3://nowhere/table",
    "executors": {"instances": 1},
}
_RBAC = ("rbac.authorization.k8s.io", "rolebindings")
# What the log cannot show, and why it is granted all the same.
_APPLIED = "server-side apply of what is not there yet is a patch that needs it"
_NO_KIND = "this cluster has no PodMonitors"
_NO_SPARK = "this cluster has no operator for Spark"
UNSEEN: dict[Right, str] = {
    **{("rbac.authorization.k8s.io", kind, "bind"): "asked of whoever makes a binding" for kind in
       ("clusterroles", "roles")},
    **{(group, "sparkapplications", verb): _NO_SPARK
       for group in ("spark.apache.org", "sparkoperator.k8s.io")
       for verb in ("get", "list", "create", "patch", "delete")},
    ("", "pods", "delete"): "Kubernetes may be first to take a stuck pod away",
    ("", "events", "list"): "asked only while a controller has not made its pods",
    **{("monitoring.coreos.com", "podmonitors", verb): _NO_KIND for verb in
       ("get", "list", "create", "patch", "delete")},
    **{(group, resource, "create"): _APPLIED for group, resource in (
        ("", "configmaps"), ("", "serviceaccounts"), ("", "services"),
        ("apps", "daemonsets"), ("apps", "statefulsets"),
        ("networking.k8s.io", "networkpolicies"), ("policy", "poddisruptionbudgets"),
        ("rbac.authorization.k8s.io", "clusterrolebindings"),
        ("rbac.authorization.k8s.io", "rolebindings"),
    )},
}  # fmt: skip


async def test_rights_are_those_that_are_used(cluster: Cluster, operator: Operator) -> None:
    """A pipeline with everything, changed, spoiled, mended and deleted: the operator and shippers
    are denied nothing, and there is no right that they did without, but for those listed here.
    """
    namespace = operator.new_namespace()
    full = small(shippers={}, networkPolicy={"enabled": True}, deletionPolicy="Delete")
    full["collectors"] = {"persistence": {"size": "1Gi"}}
    pipeline = create(cluster, namespace, "all", full)
    pipeline.wait_ready()
    pipeline.patch({"collectors": {"image": BAD_IMAGE}, "table": DRIVER})
    pipeline.wait_reason("Ready", "ImageNotPulled")
    pipeline.kubectl("wait", "rolebinding/all-table", "--for=create", "--timeout=60s")
    pipeline.patch(
        {
            "collectors": {"image": None, "podDisruptionBudget": {"enabled": False}},
            "shippers": {"enabled": False},
            "networkPolicy": {"enabled": False},
            "table": {"enabled": False},
        }
    )
    # Its volume cannot grow here; that is another's refusal, and the right was used.
    pipeline.patch({"collectors": {"persistence": {"size": "2Gi"}}})
    pipeline.wait_reason("Ready", "KubernetesRefused")
    password = {"stringData": {"shipper-password": "another-password-0123"}}
    pipeline.kubectl("patch", "secret/all-nats-auth", f"--patch={json.dumps(password)}")
    rights = granted(operator)
    me = account(operator.namespace, f"{RELEASE}-operator")

    def is_done() -> bool:
        assert ("apps", "daemonsets", "delete") in used(cluster, me)[0]
        assert (*_RBAC, "delete") in used(cluster, me)[0]
        assert ("", "secrets", "patch") in used(cluster, me)[0]
        return True

    await eventually(
        is_done, within_s=SEEN_WITHIN_S, what="shippers and rights go, the server gets a password"
    )
    pipeline.patch({"collectors": {"persistence": {"size": "1Gi"}}})
    pipeline.kubectl("delete", "logpipeline/all", f"--timeout={SEEN_WITHIN_S:.0f}s")
    allowed, denied = used(cluster, me)
    seen, not_seen = used(cluster, account(namespace, "all-shipper"))

    assert denied | not_seen == set()
    assert rights["operator"] - allowed - UNSEEN.keys() == set()
    assert allowed - rights["operator"] == set()
    assert seen == rights["shipper"]
