"""Mistakes of users that only pods show: a condition says what it is and what to do, and the
operator does not run hot over it. The others are in tests/operator.
"""

from __future__ import annotations

from pathlib import Path

from api_server.mistakes import Mistake, are_told, pipeline, place_of
from api_server.walks import NOWHERE
from cluster.handle import Cluster
from cluster.installed_operator import define

MISTAKES: dict[str, Mistake] = {
    "class-missing": Mistake(
        reason="ClaimUnbound", names="no-such-class",
        spec={"collectors": {"replicas": 1, "persistence": {"storageClassName": "no-such-class"}}},
    ),
    "image-missing": Mistake(
        reason="ImageNotPulled", names="image-missing",
        spec={"collectors": {
            "replicas": 1, "persistence": {"emptyDir": {}}, "image": "images.invalid/none:1",
            "imagePullPolicy": "Never",
        }},
    ),
    "node-missing": Mistake(
        reason="Unschedulable", names="node",
        spec={"collectors": {
            "replicas": 1, "persistence": {"emptyDir": {}}, "nodeSelector": NOWHERE,
        }},
    ),
    "account-missing": Mistake(
        reason="PodRefused", names="nobody",
        spec={"collectors": {
            "replicas": 1, "persistence": {"emptyDir": {}}, "serviceAccountName": "nobody",
        }},
    ),
    "privileges-refused": Mistake(
        reason="PodSecurity", names="privileged", namespace="confined",
        spec={"collectors": {"replicas": 0}, "shippers": {"enabled": True}},
    ),
}  # fmt: skip


async def test_every_mistake_in_pods_is_told_and_none_runs_hot(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Each has a reason and a sentence of its own; then the operator looks now and then, and writes
    nothing more.
    """
    define(cluster)
    async with place_of(cluster, namespace, tmp_path) as place:
        cluster.apply(*(pipeline(place, name, each, each.spec) for name, each in MISTAKES.items()))
        await are_told(place, MISTAKES)
