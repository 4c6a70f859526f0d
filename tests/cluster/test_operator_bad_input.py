"""Whatever users get wrong: a condition says what it is and what to do, and the operator does not
run hot over it. All mistakes are made at once, beside each other, under one operator.
"""

from __future__ import annotations

import asyncio
import base64
import calendar
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import cluster_namespace
from cluster_handle import Cluster
from cluster_operator import define
from cluster_operator_process import OperatorProcess
from cluster_walks import NOWHERE
from logpipeline.embedded import EmbeddedServer, ServerOptions
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from waiting import eventually

MIB = 2**20
Spec = dict[str, Any]
Manifest = dict[str, Any]

TOLD_WITHIN_S = 60.0
# As the operator's own: what is not settled is looked at every three seconds, all else every 30.
WATCHED_S = 9.0
LOOKS_MAX = 5
# A status that changes with each look would be written with each look.
WRITES_MAX = 1
# No pods, so that nothing else is the matter.
NOBODY: Spec = {
    "partitions": 1,
    "collectors": {"replicas": 0},
    "shippers": {"enabled": False},
    # Many share one server here.
    "nats": {"managed": {"storage": "64Mi"}},
}


@dataclass
class Place:
    """Where mistakes are made: servers, namespaces, and an operator that runs."""

    cluster: Cluster
    namespace: str
    confined: str
    open: EmbeddedServer
    closed: EmbeddedServer
    small: EmbeddedServer
    operator: OperatorProcess
    js: JetStream


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A pipeline with the *spec*, and the *reason* that its status must give for it; *names* is
    what its sentence must hold.
    """

    reason: str
    names: str
    spec: Spec = field(default_factory=dict)
    # What it was before; it is changed once that was seen.
    former: Spec | None = None
    server: str = "open"
    namespace: str = "namespace"
    is_of_pods: bool = False


USER: Spec = {"user": "username", "password": "password"}
MISTAKES: dict[str, Mistake] = {
    "secret-missing": Mistake(
        reason="SecretMissing", names="nowhere",
        spec={"nats": {"user": {"secret": {"name": "nowhere"}, **USER}}},
    ),
    "secret-incomplete": Mistake(
        reason="SecretIncomplete", names="incomplete",
        spec={"nats": {"user": {"secret": {"name": "incomplete"}, **USER}}},
    ),
    "credentials-wrong": Mistake(
        reason="NatsCredentialsRefused", names="uthoriz", server="closed",
        spec={"nats": {"user": {"secret": {"name": "wrong"}, **USER}}},
    ),
    "tls-unwanted": Mistake(
        reason="NatsTlsFailed", names="tls",
        spec={"nats": {"tls": {"secret": {"name": "authority"}, "ca": "ca.crt"}}},
    ),
    "server-away": Mistake(
        reason="NatsUnreachable", names="127.0.0.1:1",
        spec={"nats": {"servers": ["nats://127.0.0.1:1"]}},
    ),
    "limits-exceeded": Mistake(
        reason="AccountLimit", names="maxBytes", server="small",
        spec={"stream": {"maxBytes": "10Gi"}},
    ),
    "payload-small": Mistake(
        reason="PayloadTooSmall", names="max_payload", spec={"batch": {"maxBytes": "8Mi"}}
    ),
    "servers-few": Mistake(
        reason="TooFewServers", names="3 replicas", spec={"stream": {"replicas": 3}}
    ),
    "stream-foreign": Mistake(
        reason="ForeignStream", names="FOREIGN_0", spec={"stream": {"name": "FOREIGN"}}
    ),
    "stream-same": Mistake(
        reason="ForeignStream", names="SAME_0", spec={"stream": {"name": "SAME"}, "subject": "b"}
    ),
    "subject-taken": Mistake(
        reason="SubjectsOverlap", names="OTHERS", spec={"subject": "taken"}
    ),
    "subject-same": Mistake(
        reason="SubjectsOverlap", names="SAME_0", spec={"subject": "same"}
    ),
    "data-held": Mistake(
        reason="DataLossHeld", names="max_age", former={"stream": {"maxAge": "1d"}},
        spec={"stream": {"maxAge": "1h"}},
    ),
    "change-impossible": Mistake(
        reason="ChangeImpossible", names="deliver_policy", former={"consumers": [{"name": "a"}]},
        spec={"consumers": [{"name": "a", "deliverPolicy": "new"}]},
    ),
    "local-given": Mistake(
        reason="LocalInCluster", names="spec.local", spec={"local": {"metricsPort": 9200}}
    ),
    "child-invalid": Mistake(
        reason="KubernetesRefused", names="no label",
        spec={"collectors": {"replicas": 0, "podLabels": {"no label": "x"}}},
    ),
    "child-foreign": Mistake(
        reason="ForeignChild", names="child-foreign-collector",
    ),
    "class-missing": Mistake(
        reason="ClaimUnbound", names="no-such-class", is_of_pods=True,
        spec={"collectors": {"persistence": {"storageClassName": "no-such-class"}}},
    ),
    "image-missing": Mistake(
        reason="ImageNotPulled", names="image-missing", is_of_pods=True,
        spec={"collectors": {
            "persistence": {"emptyDir": {}}, "image": "images.invalid/none:1",
            "imagePullPolicy": "Never",
        }},
    ),
    "node-missing": Mistake(
        reason="Unschedulable", names="node", is_of_pods=True,
        spec={"collectors": {"persistence": {"emptyDir": {}}, "nodeSelector": NOWHERE}},
    ),
    "account-missing": Mistake(
        reason="PodRefused", names="nobody", is_of_pods=True,
        spec={"collectors": {
            "persistence": {"emptyDir": {}}, "serviceAccountName": "nobody",
        }},
    ),
    "privileges-refused": Mistake(
        reason="PodSecurity", names="privileged", namespace="confined", is_of_pods=True,
        spec={"collectors": {"replicas": 0}, "shippers": {}},
    ),
}  # fmt: skip


@pytest.fixture
async def place(cluster: Cluster, namespace: str, tmp_path: Path) -> AsyncIterator[Place]:
    """Three servers: one that takes everybody, one that knows its users, one without room."""
    define(cluster)
    confined = cluster_namespace.create(cluster)
    enforced = "pod-security.kubernetes.io/enforce=restricted"
    cluster.kubectl("label", "namespace", confined, enforced)
    options = {
        "open": ServerOptions(),
        "closed": ServerOptions(user="right", password="right"),
        "small": ServerOptions(max_file_store_bytes=64 * MIB),
    }
    async with AsyncExitStack() as stack:
        servers = {
            name: await stack.enter_async_context(EmbeddedServer(tmp_path / name, option))
            for name, option in options.items()
        }
        connection = Connection(NatsOptions(servers=(servers["open"].url,)))
        await connection.start(patience_s=10)
        stack.push_async_callback(connection.close)
        words = [f"--kubeconfig={cluster.kubeconfig}", "--no-lease"]
        words += [f"--namespace={name}" for name in (namespace, confined)]
        operator = OperatorProcess(words, tmp_path / "operator.log")
        stack.callback(operator.kill)
        operator.start()
        js = JetStream(connection)
        yield Place(cluster, namespace, confined, **servers, operator=operator, js=js)
    cluster_namespace.delete(cluster, confined)


def pipeline(place: Place, name: str, mistake: Mistake, spec: Spec) -> Manifest:
    """The resource of a *mistake*, or what it was before."""
    whole = merged(NOBODY, spec)
    server: EmbeddedServer = getattr(place, mistake.server)
    whole["nats"] = {"servers": [server.url]} | whole["nats"]
    if mistake.is_of_pods and "replicas" not in spec["collectors"]:
        whole["collectors"]["replicas"] = 1
    if "shippers" in spec:
        whole["shippers"] = {"enabled": True}
    return {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": name, "namespace": getattr(place, mistake.namespace)},
        "spec": whole,
    }


def merged(one: Spec, other: Spec) -> Spec:
    """*one* with what *other* says, at any depth."""
    made = dict(one)
    for key, value in other.items():
        there = made.get(key)
        is_deeper = isinstance(value, dict) and isinstance(there, dict)
        made[key] = merged(there, value) if is_deeper and there is not None else value
    return made


def secret(namespace: str, name: str, **content: str) -> Manifest:
    """A Secret with *content*."""
    data = {key: base64.b64encode(value.encode()).decode() for key, value in content.items()}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


async def prepare(place: Place) -> None:
    """Put in the way what mistakes stumble over: streams, objects and Secrets of others."""
    for name, subject in (("FOREIGN_0", "f.>"), ("OTHERS", "taken.>")):
        await place.js.call(f"STREAM.CREATE.{name}", {"name": name, "subjects": [subject]})
    roots = place.cluster.get("configmap/kube-root-ca.crt", f"--namespace={place.namespace}")
    pem = roots["data"]["ca.crt"]
    config = {"name": "child-foreign-collector", "namespace": place.namespace}
    place.cluster.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": config},
        secret(place.namespace, "incomplete", username="right"),
        secret(place.namespace, "authority", **{"ca.crt": pem}),
        secret(place.namespace, "wrong", username="right", password="wrong"),
    )
    good = Mistake(reason="", names="")
    first = pipeline(place, "first", good, {"stream": {"name": "SAME"}, "subject": "same"})
    place.cluster.apply(first)
    await eventually(lambda: is_true(place, "first", "StreamsReady"), within_s=TOLD_WITHIN_S)


def statuses(place: Place) -> dict[str, Manifest]:
    """The conditions of all pipelines, by name and type."""
    found: dict[str, Manifest] = {}
    for namespace in (place.namespace, place.confined):
        for each in place.cluster.get("logpipelines", f"--namespace={namespace}")["items"]:
            status = each.get("status") or {}
            is_newest = status.get("observedGeneration") == each["metadata"]["generation"]
            conditions = status.get("conditions", []) if is_newest else []
            found[each["metadata"]["name"]] = {entry["type"]: entry for entry in conditions}
    return found


def is_true(place: Place, name: str, condition: str) -> bool:
    """Whether a pipeline's condition holds."""
    return bool(statuses(place)[name].get(condition, {}).get("status") == "True")


def unlike(found: dict[str, Manifest]) -> list[str]:
    """Which mistakes are not told as they should be."""
    wrong = []
    for name, mistake in MISTAKES.items():
        ready = found.get(name, {}).get("Ready", {})
        said = f"{ready.get('status')} {ready.get('reason')}: {ready.get('message')}"
        is_told = ready.get("status") == "False" and ready.get("reason") == mistake.reason
        if not is_told or mistake.names not in str(ready.get("message")):
            wrong.append(f"{name}: {mistake.reason} with {mistake.names!r}, found {said}")
    return wrong


def requests(cluster: Cluster, since: float, namespaces: Iterable[str]) -> Counter[str]:
    """Count what the operator asked the API server of pipelines since then: verb and path."""
    wanted = tuple(f"/namespaces/{name}/logpipelines/" for name in namespaces)
    counted: Counter[str] = Counter()
    with cluster.audit_log.open() as lines:
        for line in lines:
            if not any(part in line for part in wanted):
                continue
            entry = json.loads(line)
            text = entry["requestReceivedTimestamp"][:19]
            at = calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
            if entry["userAgent"] == "logpipeline-operator" and at >= since:
                counted[f"{entry['verb']} {entry['requestURI'].partition('?')[0]}"] += 1
    return counted


@pytest.mark.timeout(300)
async def test_every_mistake_is_told_and_none_runs_hot(place: Place) -> None:
    """Each has a reason and a sentence of its own; then the operator looks now and then, and writes
    nothing more.
    """
    await prepare(place)
    former = {name: each for name, each in MISTAKES.items() if each.former is not None}
    place.cluster.apply(
        *(pipeline(place, name, each, each.former or {}) for name, each in former.items())
    )

    def is_made() -> bool:
        return all(is_true(place, name, "StreamsReady") for name in former)

    await eventually(is_made, within_s=TOLD_WITHIN_S)
    place.cluster.apply(
        *(pipeline(place, name, each, each.spec) for name, each in MISTAKES.items())
    )

    def is_told() -> bool:
        wrong = unlike(statuses(place))
        assert not wrong, "\n".join(wrong)
        return True

    await eventually(is_told, within_s=TOLD_WITHIN_S)
    began = time.time()
    # What is measured is what happens while nothing does.
    await asyncio.sleep(WATCHED_S)
    made = requests(place.cluster, began + 1, (place.namespace, place.confined))

    assert unlike(statuses(place)) == []
    assert is_true(place, "first", "StreamsReady")
    assert requests(place.cluster, 0.0, (place.namespace,)), "the audit log shows its requests"
    assert {what: n for what, n in made.items() if what.startswith("get") and n > LOOKS_MAX} == {}
    assert {
        what: n for what, n in made.items() if not what.startswith("get") and n > WRITES_MAX
    } == {}
