"""Pipelines in which something is wrong, under one operator, and what their status says of it."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from api_server.operator_process import OperatorProcess
from cluster import namespaces
from cluster.handle import Cluster
from logpipeline.embedded import EmbeddedServer, ServerOptions
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from waiting import WITHIN_S, eventually

MIB = 2**20
Spec = dict[str, Any]
Manifest = dict[str, Any]

TOLD_WITHIN_S = 60.0
# A third of the operator's own: what is not settled is looked at every second, all else every ten.
PERIODS = {"LOGPIPELINE_LOOK_AGAIN_SECONDS": "1", "LOGPIPELINE_RESYNC_SECONDS": "10"}
WATCHED_S = 3.0
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


@asynccontextmanager
async def place_of(cluster: Cluster, namespace: str, folder: Path) -> AsyncIterator[Place]:
    """Three servers: one that takes everybody, one that knows its users, one without room."""
    confined = namespaces.create(cluster)
    enforced = "pod-security.kubernetes.io/enforce=restricted"
    cluster.kubectl("label", "namespace", confined, enforced)
    options = {
        "open": ServerOptions(),
        "closed": ServerOptions(user="right", password="right"),
        "small": ServerOptions(max_file_store_bytes=64 * MIB),
    }
    async with AsyncExitStack() as stack:
        stack.callback(namespaces.delete, cluster, confined)
        servers = {
            name: await stack.enter_async_context(EmbeddedServer(folder / name, option))
            for name, option in options.items()
        }
        connection = Connection(NatsOptions(servers=(servers["open"].url,)))
        await connection.start(patience_s=WITHIN_S)
        stack.push_async_callback(connection.close)
        words = [f"--kubeconfig={cluster.kubeconfig}", "--no-lease"]
        words += [f"--namespace={name}" for name in (namespace, confined)]
        operator = OperatorProcess(words, folder / "operator.log", PERIODS)
        stack.callback(operator.kill)
        operator.start()
        js = JetStream(connection)
        yield Place(cluster, namespace, confined, **servers, operator=operator, js=js)


def pipeline(place: Place, name: str, mistake: Mistake, spec: Spec) -> Manifest:
    """The resource of a *mistake*, or what it was before."""
    whole = merged(NOBODY, spec)
    server: EmbeddedServer = getattr(place, mistake.server)
    whole["nats"] = {"servers": [server.url]} | whole["nats"]
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


def statuses(place: Place) -> dict[str, Manifest]:
    """The conditions of all pipelines, by name and type."""
    found: dict[str, Manifest] = {}
    for namespace in (place.namespace, place.confined):
        answer = place.cluster.api.get(**namespaces.PIPELINES, namespace=namespace)
        answer.raise_for_status()
        for each in answer.json()["items"]:
            status = each.get("status") or {}
            is_newest = status.get("observedGeneration") == each["metadata"]["generation"]
            conditions = status.get("conditions", []) if is_newest else []
            found[each["metadata"]["name"]] = {entry["type"]: entry for entry in conditions}
    return found


def is_true(place: Place, name: str, condition: str) -> bool:
    """Whether a pipeline's condition holds."""
    return bool(statuses(place)[name].get(condition, {}).get("status") == "True")


def unlike(mistakes: Mapping[str, Mistake], found: dict[str, Manifest]) -> list[str]:
    """Which *mistakes* are not told as they should be."""
    wrong = []
    for name, mistake in mistakes.items():
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
            at = datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()
            if entry["userAgent"] == "logpipeline-operator" and at >= since:
                counted[f"{entry['verb']} {entry['requestURI'].partition('?')[0]}"] += 1
    return counted


async def are_told(place: Place, mistakes: Mapping[str, Mistake]) -> None:
    """Return once each of *mistakes* is told, and stays told for a while in which nothing runs hot.
    Before that, Kubernetes may have more to say: a pod is refused in several steps.

    Raises:
        AssertionError: one is not told as it should be; or the operator looks or writes too often.
    """

    def all_told() -> None:
        wrong = unlike(mistakes, statuses(place))
        assert not wrong, "\n".join(wrong)

    async def rests() -> bool:
        all_told()
        began = time.time()
        # The test changes nothing now: the operator's requests in this time are counted.
        await asyncio.sleep(WATCHED_S)
        made = requests(place.cluster, began, (place.namespace, place.confined))
        all_told()
        assert requests(place.cluster, 0.0, (place.namespace,)), "the audit log shows its requests"
        looks = {what: n for what, n in made.items() if what.startswith("get") and n > LOOKS_MAX}
        assert looks == {}, looks
        writes = {
            what: n for what, n in made.items() if not what.startswith("get") and n > WRITES_MAX
        }
        assert writes == {}, writes
        return True

    await eventually(rests, within_s=TOLD_WITHIN_S, what="all is told, and nothing runs hot")
