"""What users change in a pipeline that exists, well and badly: moves for random walks. A value is
one that Kubernetes and JetStream take, unless it stands under a heading that says otherwise.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Spec = dict[str, Any]

# The field is taken away.
GONE = object()
NOWHERE = {"logpipeline.dev/test": "nowhere"}
FIELDS_AT_ONCE_MAX = 3

_POD: dict[str, tuple[Any, ...]] = {
    "image": ("images.invalid/other:2", GONE),
    "imagePullPolicy": ("Never", "Always", GONE),
    "imagePullSecrets": ([{"name": "pull"}], GONE),
    "resources": ({"requests": {"cpu": "10m"}, "limits": {"memory": "64Mi"}}, {"limits": {}}, GONE),
    "nodeSelector": ({**NOWHERE, "zone": "a"}, NOWHERE),
    "tolerations": ([{"key": "a", "operator": "Exists"}], [{"operator": "Exists"}], GONE),
    "affinity": ({"podAntiAffinity": {}}, {}, GONE),
    "topologySpreadConstraints": (
        [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
        GONE,
    ),
    "podLabels": ({"team": "a"}, {"team": "b", "tier": "c"}, GONE),
    "podAnnotations": ({"note": "1"}, GONE),
    "env": ([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], [{"name": "A"}], GONE),
    "serviceAccountName": ("somebody", GONE),
    "terminationGracePeriodSeconds": (0, 90, GONE),
}
_COLLECTORS: dict[str, tuple[Any, ...]] = {
    "replicas": (0, 1, 2),
    "directory": ("/archive", GONE),
    "path": ("{partition}/{host}.log", GONE),
    "filePath": ("{host}/%Y/{path}", GONE),
    "output": ("cri", "json", GONE),
    "rotation": ({"maxBytes": "1Mi"}, {"maxAge": "1h"}, GONE),
    "compression": ("gzip", "none", GONE),
    "retention": ({"maxBytes": "1Gi"}, {"minFreePercent": 0}, GONE),
    "maxOpenFiles": (16, GONE),
    "commit": ({"interval": "1s"}, GONE),
    "takeoverAfter": ("1m", GONE),
    "snapshotEvery": ("1s", GONE),
    "updateStrategy": (
        {"type": "OnDelete"},
        {"maxUnavailable": "50%"},
        {"maxUnavailable": 1},
        GONE,
    ),
    "drainTimeoutSeconds": (0, GONE),
    "podDisruptionBudget": ({"enabled": False}, {"maxUnavailable": "30%"}, GONE),
}
_SHIPPERS: dict[str, tuple[Any, ...]] = {
    "enabled": (False, True),
    "mode": ("sidecar", "daemonset"),
    "hostFiles": ([{"include": ["/srv/app/*.log"]}], [{"include": ["/opt/app/**"]}], GONE),
    "readFrom": ("end", GONE),
    "match": ([{"exclude": {"namespaces": ["kube-system"]}}], GONE),
    "labels": (["app"], GONE),
    "maxInFlightBytes": ("1Mi", GONE),
    "deletedFiles": ({"maxAge": "1m"}, GONE),
    "maxOpenFiles": (16, GONE),
    "rescan": ("1s", GONE),
    "updateStrategy": ({"maxUnavailable": "10%"}, GONE),
    "positionsHostPath": ("/var/lib/elsewhere", GONE),
}
_STREAM: dict[str, tuple[Any, ...]] = {
    "maxAge": ("1h", "0s", GONE),
    "discard": ("old", "new"),
    "maxBytes": ("16Mi", "64Mi", GONE),
    "maxMsgs": (1000, -1),
    "maxMsgSize": (1_000_000, -1),
    "maxMsgsPerSubject": (100, 0),
    "maxConsumers": (50, -1),
    "duplicateWindow": ("1m", GONE),
    "compression": ("s2", "none"),
    "retention": ("interest", "limits"),
    "trim": ("never", GONE),
    "trimAbove": (90, GONE),
    "skipTablesAbove": (100, GONE),
    "metadata": ({"team": "a"}, GONE),
    "overrides": ([{"partitions": "0", "maxMsgs": 5}], GONE),
}
_AUDIT: Spec = {"name": "audit", "maxAckPending": 10}
_PUSH: Spec = {"name": "tail", "type": "push", "ackPolicy": "none", "deliverPolicy": "new"}

MOVES: dict[str, tuple[Any, ...]] = {
    "cluster": ("east", GONE),
    "deletionPolicy": ("Delete", "Retain"),
    "networkPolicy": ({"enabled": True}, GONE),
    "batch": ({"maxBytes": "64Ki"}, {"compression": "none"}, {"ack": "each", "linger": "0s"}, GONE),
    "consumers": ([_AUDIT], [{**_AUDIT, "maxAckPending": 20}, _PUSH], [_PUSH], GONE),
    **{f"stream.{name}": values for name, values in _STREAM.items()},
    **{f"shippers.{name}": values for name, values in {**_POD, **_SHIPPERS}.items()},
    **{f"collectors.{name}": values for name, values in {**_POD, **_COLLECTORS}.items()},
}
# They only add, so that on the way back nothing differs from what is wanted but that there is more.
ADDED = ("podLabels", "podAnnotations", "env", "tolerations", "imagePullSecrets")
# The API server takes them; what comes of them is shown in a condition.
HARMFUL: dict[str, tuple[Any, ...]] = {
    "managementState": ("Unmanaged",),
    "local": ({"metricsPort": 9200},),
    "stream.replicas": (3,),
    "nats.servers": (["nats://127.0.0.1:1"],),
    "nats.token": ({"secret": {"name": "nowhere"}, "token": "token"},),
    "collectors.podLabels": ({"no label": "x"},),
    "collectors.resources": ({"requests": {"cpu": "lots"}},),
    "collectors.env": ([{"value": "of no name"}],),
    "shippers.tolerations": ([{"operator": "Sometimes"}],),
    "shippers.nodeSelector": ({**NOWHERE, "a": "no value!"},),
}
# The API server refuses them.
REFUSED: dict[str, tuple[Any, ...]] = {
    "partitions": (3, -1, 5000),
    "nats.servers": ([],),
    "subject": ("other",),
    "stream.name": ("OTHER",),
    "stream.storage": ("memory",),
    "stream.maxAge": ("1 day", "50ms"),
    "collectors.replicas": (3,),
    "collectors.path": ("/{host}", "constant"),
    "collectors.persistence": ({"hostPath": "/srv/x"},),
    "shippers.hostFiles": ([{"include": ["/etc/*.conf"]}],),
    "consumers": ([{"name": "a", "maxWaiting": 1, "type": "push"}], [_AUDIT, _AUDIT]),
}


@dataclass(frozen=True, slots=True)
class Step:
    """What is written next; *is_waited_for* when the operator gets the time to act on it."""

    spec: Spec
    is_refused: bool
    is_waited_for: bool


def walk(base: Spec, seed: int, *, steps: int) -> Iterator[Step]:
    """Yield *steps* changes one after the other, beginning at *base*; the last one is good."""
    chance = random.Random(seed)
    good = base
    for number in range(steps):
        good = _moved(good, chance, MOVES, count=chance.randint(1, FIELDS_AT_ONCE_MAX))
        is_waited_for = chance.random() < 0.5
        kind = chance.choice(("good", "good", "harmful", "refused"))
        if kind == "good" or number == steps - 1:
            yield Step(good, is_refused=False, is_waited_for=is_waited_for)
            continue
        table = HARMFUL if kind == "harmful" else REFUSED
        wrong = _moved(good, chance, table, count=1)
        yield Step(wrong, is_refused=kind == "refused", is_waited_for=is_waited_for)


def every_move(spec: Spec) -> Iterator[Spec]:
    """Yield *spec* with the first value of every move at once, with the second ones, and so on; and
    with each harmful one alone; last with what is only added.
    """
    for number in range(max(map(len, MOVES.values()))):
        moved = spec
        for path, values in MOVES.items():
            moved = changed(moved, path, values[min(number, len(values) - 1)])
        yield moved
    for path, values in HARMFUL.items():
        for value in values:
            yield changed(spec, path, value)
    for path in (f"{part}.{name}" for part in ("collectors", "shippers") for name in ADDED):
        spec = changed(spec, path, MOVES[path][0])
    yield spec


def changed(spec: Spec, path: str, value: Any) -> Spec:
    """Return *spec* with *value* at *path*."""
    made = copy.deepcopy(spec)
    *folders, name = path.split(".")
    place = made
    for folder in folders:
        place = place.setdefault(folder, {})
    if value is GONE:
        place.pop(name, None)
    else:
        place[name] = copy.deepcopy(value)
    return made


def _moved(
    spec: Spec, chance: random.Random, table: Mapping[str, tuple[Any, ...]], *, count: int
) -> Spec:
    for path in chance.sample(sorted(table), count):
        spec = changed(spec, path, chance.choice(table[path]))
    return spec
