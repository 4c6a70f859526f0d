"""Who of the collectors shares the partitions, how many pods must stay for that, and which pods
stand in the way of an update: decided from what is seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from logpipeline.lag import PartitionState
from logpipeline.spec import LogPipeline
from logpipeline.spec.api import COMPONENT_LABEL
from logpipeline_operator.children import nats_tls
from logpipeline_operator.children.model import Component, Manifest
from logpipeline_operator.children.nats_server import USERS_ANNOTATION

# A pod that is replaced, or whose image is pulled, is back before; its files lie on its volume, so
# that it is better waited for. A node that is gone is not.
AWAY_MAX_S = 120.0
# A pod that runs may be about to become ready; one that takes longer does not without help.
STUCK_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorPod:
    """A collector's pod; *away_s* is for how long it has not been ready, 0 for one that is."""

    name: str
    ordinal: int
    is_ready: bool
    away_s: float = 0.0


def collector_pods(
    pods: Iterable[Manifest], stateful_set: str, *, now: float
) -> list[CollectorPod]:
    """Return the pods of *stateful_set* in order; *now* is in seconds since the epoch."""
    found = []
    for pod in pods:
        name = str(pod["metadata"]["name"])
        ordinal = name.removeprefix(f"{stateful_set}-")
        if not name.startswith(f"{stateful_set}-") or not ordinal.isdigit():
            continue
        ready = _condition(pod, "Ready")
        is_ready = ready.get("status") == "True" and "deletionTimestamp" not in pod["metadata"]
        since = ready.get("lastTransitionTime") or pod["metadata"].get("creationTimestamp")
        away_s = 0.0 if is_ready else max(0.0, now - seconds_of(since)) if since else 0.0
        found.append(
            CollectorPod(name=name, ordinal=int(ordinal), is_ready=is_ready, away_s=away_s)
        )
    return sorted(found, key=lambda pod: pod.ordinal)


def members(
    pods: Sequence[CollectorPod], *, replicas: int, assigned: Sequence[str], stateful_set: str
) -> list[str]:
    """Return who shares the partitions: ready collectors, and those of the former set *assigned*
    that are away for a short time only; where that leaves nobody, the former set, or all there
    shall be.
    """
    by_name = {pod.name: pod for pod in pods}
    wanted = [f"{stateful_set}-{ordinal}" for ordinal in range(replicas)]
    chosen = []
    for name in wanted:
        pod = by_name.get(name)
        is_short = pod is None or pod.away_s < AWAY_MAX_S
        if (pod is not None and pod.is_ready) or (name in assigned and is_short):
            chosen.append(name)
    # Nobody would be no better than those that may come back, or are about to start.
    return chosen or [name for name in assigned if name in wanted] or wanted


def replicas_to_keep(
    *, wanted: int, current: int, survey: Iterable[PartitionState], stateful_set: str,
    is_patient: bool,
) -> int:  # fmt: skip
    """Return how many pods there must be: one that still holds partitions goes only after it has
    given them up, or when nobody is *patient* any more.
    """
    if current <= wanted or not is_patient or wanted == 0:
        return wanted
    held = [
        int(ordinal)
        for state in survey
        if state.owner and not state.released
        if (ordinal := state.owner.removeprefix(f"{stateful_set}-")).isdigit()
    ]
    return max([wanted, *(ordinal + 1 for ordinal in held if ordinal < current)])


def pods_in_the_way(
    stateful_set: Manifest, pods: Iterable[Manifest], *, now: float
) -> list[Manifest]:
    """Return pods of an older revision that do not become ready: the controller waits for them
    before it takes the newer revision, for ever. *now* is in seconds since the epoch.
    """
    status = stateful_set.get("status") or {}
    update = status.get("updateRevision")
    if not update or status.get("observedGeneration") != stateful_set["metadata"].get("generation"):
        return []
    return [
        pod
        for pod in pods
        if _is_of(pod, stateful_set)
        and "deletionTimestamp" not in pod["metadata"]
        and _revision(pod) not in ("", update)
        and _is_broken(pod, now)
    ]


def servers_apart(
    pods: Iterable[Manifest], pipeline: LogPipeline, *, users: str, certificate: str
) -> list[Manifest]:
    """Return the managed servers of a cluster that know other users than *users*, or do not join a
    server with *certificate*: neither a client nor another server that was started since gets in.
    One after the other they would not be replaced: the first finds no other, and does not become
    ready.
    """
    if pipeline.spec.nats.servers or pipeline.spec.nats.managed.replicas == 1:
        return []
    return [
        pod
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
        and pod["metadata"].get("labels", {}).get(COMPONENT_LABEL) == Component.NATS
        and _is_apart(pod["metadata"].get("annotations", {}), users, certificate)
    ]


def _is_apart(annotations: Mapping[str, str], users: str, certificate: str) -> bool:
    # A pod without one is older than this rule: its server knows the users of now.
    if annotations.get(USERS_ANNOTATION, users) != users:
        return True
    return nats_tls.are_apart(annotations.get(nats_tls.MARK_ANNOTATION, ""), certificate)


def seconds_of(text: str) -> float:
    """Return a time as Kubernetes writes it in seconds since the epoch."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _is_of(pod: Manifest, stateful_set: Manifest) -> bool:
    owners = pod["metadata"].get("ownerReferences") or []
    return any(owner.get("uid") == stateful_set["metadata"]["uid"] for owner in owners)


def _revision(pod: Manifest) -> str:
    return str((pod["metadata"].get("labels") or {}).get("controller-revision-hash", ""))


def _is_broken(pod: Manifest, now: float) -> bool:
    """Return whether the pod does not run, or is not ready for longer than one that starts."""
    if _condition(pod, "PodScheduled").get("status") == "False":
        return True
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    if any("waiting" in (status.get("state") or {}) for status in statuses):
        return True
    ready = _condition(pod, "Ready")
    since = ready.get("lastTransitionTime")
    if ready.get("status") != "False" or not since:
        return False
    return now - seconds_of(since) > STUCK_S


def _condition(pod: Manifest, name: str) -> Mapping[str, Any]:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next((entry for entry in conditions if entry.get("type") == name), {})
