"""Children on a real API server: it takes them, stores them as they are, and holds them to Pod
Security.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from cluster.child_manifests import built, children, pod_templates, resource
from cluster.handle import Cluster
from logpipeline_operator.children import Manifest, credentials
from logpipeline_operator.differences import differing

MANAGER = "logpipeline-operator"
PASSWORDS = {role: f"{role}-0123456789abcdef" for role in credentials.ROLES}
OPTIONS: dict[str, Any] = {
    "image": "registry.invalid/x:1",
    "resources": {"requests": {"cpu": 0.5, "memory": "1024Mi"}, "limits": {"memory": "1.5Gi"}},
    "nodeSelector": {"logpipeline.dev/test": "nowhere"},
    "tolerations": [{"operator": "Exists", "key": "a", "effect": None}],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
         "labelSelector": {}}
    ],
    "podLabels": {"team": "logs"},
    "podAnnotations": {"note": "1"},
    "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
    "terminationGracePeriodSeconds": 7,
}  # fmt: skip
# Of each kind of volume, server and shipper one; none of the pods finds a node.
SPECS: dict[str, dict[str, Any]] = {
    "full": {
        "networkPolicy": {"enabled": True},
        "partitions": 1024,
        "nats": {"managed": {"replicas": 3, "storage": 1_500_000_000, **OPTIONS}},
        "collectors": {
            "replicas": 3,
            "persistence": {"size": "1.5Gi", "storageClassName": ""},
            "updateStrategy": {"maxUnavailable": "50%"},
            **OPTIONS,
        },
        "shippers": {"hostFiles": [{"include": ["/srv/app/**/x.log"]}], **OPTIONS},
    },
    "foreign": {
        "networkPolicy": {"enabled": True},
        "nats": {
            "servers": ["tls://nats.example.net:4223"],
            "tls": {"secret": {"name": "t"}, "cert": "tls.crt", "key": "tls.key"},
        },
        "collectors": {
            "persistence": {"existingClaim": "c"},
            "updateStrategy": {"type": "OnDelete"},
            **OPTIONS,
        },
        "shippers": {"mode": "sidecar"},
    },
    "node": {
        "nats": {"managed": OPTIONS},
        "collectors": {"persistence": {"hostPath": "/srv/logs"}, **OPTIONS},
        "shippers": {"positionsHostPath": "/var/pos", **OPTIONS},
    },
    "fleeting": {
        "nats": {"managed": OPTIONS},
        "collectors": {"persistence": {"emptyDir": {"sizeLimit": 1_500_000}}, **OPTIONS},
        "shippers": {"enabled": False},
    },
}


def made_in(namespace: str, name: str, spec: dict[str, Any]) -> list[Manifest]:
    """The children of the pipeline *name*, without an owner that is not there."""
    pipeline = resource(spec, name=name, namespace=namespace, uid="")
    return [*built(pipeline), credentials.users_secret(pipeline, PASSWORDS)]


def apply(cluster: Cluster, made: list[Manifest], *more: str) -> None:
    """Apply *made* as the operator does."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    words = ("apply", "--server-side", f"--field-manager={MANAGER}", *more, "-f", "-")
    cluster.kubectl(*words, input=text)


def written_at(found: Manifest) -> list[str]:
    """When we last changed an object; its status is others'."""
    return [
        entry["time"] for entry in found["metadata"]["managedFields"] if entry["manager"] == MANAGER
    ]


@pytest.mark.parametrize("name", SPECS)
def test_what_is_applied_is_what_is_stored(cluster: Cluster, namespace: str, name: str) -> None:
    """The API server takes every child, changes nothing in it, and finds nothing to do when it is
    applied again.
    """
    made = made_in(namespace, name, SPECS[name])
    apply(cluster, made)
    first = cluster.stored(made)
    apply(cluster, made)
    second = cluster.stored(made)

    for manifest, before, after in zip(made, first, second, strict=True):
        # What was written as text comes back encoded.
        wanted = {key: value for key, value in manifest.items() if key != "stringData"}
        assert list(differing(wanted, after)) == [], manifest["metadata"]["name"]
        assert written_at(before) == written_at(after)
        assert before["metadata"].get("generation") == after["metadata"].get("generation")


def test_pod_security_lets_collectors_and_servers_pass(cluster: Cluster, namespace: str) -> None:
    """In a namespace that enforces `restricted`; a shipper's pod needs one that does not."""
    label = "pod-security.kubernetes.io/enforce=restricted"
    cluster.kubectl("label", "namespace", namespace, label)
    refused = []
    for component, template in pod_templates(children({})).items():
        spec = {**template["spec"], "serviceAccountName": "default"}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": component, "namespace": namespace},
            "spec": {**spec, "volumes": [*spec["volumes"], {"name": "data", "emptyDir": {}}]},
        }
        text = json.dumps(pod)
        said = cluster.kubectl("create", "--dry-run=server", "-f", "-", input=text, check=False)
        if "violates PodSecurity" in said:
            refused.append(component)
        else:
            assert "created" in said

    assert refused == ["shipper"]
