"""Whatever users get wrong: a condition says what it is and what to do, and the operator does not
run hot over it. All mistakes are made at once, beside each other, under one operator.

Those that only pods show are in tests/cluster.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api_server.mistakes import (
    TOLD_WITHIN_S,
    Mistake,
    Place,
    Spec,
    are_told,
    is_true,
    pipeline,
    place_of,
    secret,
)
from cluster.handle import Cluster
from waiting import eventually

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
}  # fmt: skip


@pytest.fixture
async def place(cluster: Cluster, namespace: str, tmp_path: Path) -> AsyncIterator[Place]:
    """Where the mistakes are made."""
    async with place_of(cluster, namespace, tmp_path) as made:
        yield made


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
    await are_told(place, MISTAKES)

    assert is_true(place, "first", "StreamsReady")
