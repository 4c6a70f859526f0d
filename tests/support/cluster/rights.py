"""What the chart grants, and what was asked for, by the API server's own log."""

from __future__ import annotations

import json
from typing import Any

import yaml

from cluster.handle import Cluster
from cluster.installed_operator import RELEASE, Operator

# Group, resource and verb.
Right = tuple[str, str, str]
Manifest = dict[str, Any]


def rights_of(role: Manifest) -> set[Right]:
    """What a role gives."""
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def granted(operator: Operator) -> dict[str, set[Right]]:
    """What the installed chart lets `operator`, `shipper` and `spark` (drivers) do."""
    text = operator.cluster.helm("get", "manifest", RELEASE, f"--namespace={operator.namespace}")
    rights: dict[str, set[Right]] = {}
    for manifest in yaml.safe_load_all(text):
        if manifest and manifest["kind"] in ("Role", "ClusterRole"):
            end = manifest["metadata"]["name"].rpartition("-")[2]
            who = end if end in ("shipper", "spark") else "operator"
            rights.setdefault(who, set()).update(rights_of(manifest))
    return rights


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
