"""Decides from the pods of a pipeline which collectors share the partitions, how many collector
pods must stay, and which pods must be deleted because an update cannot go on with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from logpipeline.lag import PartitionState
from logpipeline.spec import LogPipeline
from logpipeline.spec.api import COMPONENT_LABEL
from logpipeline_operator.children import nats_tls
from logpipeline_operator.children.model import Component, ManagedServer, Manifest
from logpipeline_operator.children.nats_server import USERS_ANNOTATION
from logpipeline_operator.cluster.objects import (
    annotations_of,
    condition,
    is_ending,
    is_owned_by,
    labels_of,
    seconds_of,
)

# A pod that is replaced, or whose image is pulled, is back earlier. Its files are on its volume, so
# waiting is better than moving its partitions. A pod of a node that is gone takes longer.
AWAY_MAX_S = 120.0
# A pod that runs may be about to become ready; after this time it counts as stuck.
STUCK_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorPod:
    """A collector's pod; *away_s*: the seconds for which it has not been ready, 0 if it is."""

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
        ready = condition(pod, "Ready")
        is_ready = ready.get("status") == "True" and not is_ending(pod)
        since = ready.get("lastTransitionTime") or pod["metadata"].get("creationTimestamp")
        away_s = 0.0 if is_ready else max(0.0, now - seconds_of(since)) if since else 0.0
        found.append(
            CollectorPod(name=name, ordinal=int(ordinal), is_ready=is_ready, away_s=away_s)
        )
    return sorted(found, key=lambda pod: pod.ordinal)


def not_ready(pods: Iterable[CollectorPod], *, replicas: int, stateful_set: str) -> list[str]:
    """Return the collectors that there should be and that are not ready, or have no pod."""
    ready = {pod.name for pod in pods if pod.is_ready}
    return [name for name in _names(stateful_set, replicas) if name not in ready]


def members(
    pods: Sequence[CollectorPod], *, replicas: int, assigned: Sequence[str], stateful_set: str,
    absent_s: Mapping[str, float],
) -> list[str]:  # fmt: skip
    """Return the collectors that share the partitions: the ready ones, and those of the previous
    set *assigned* that have been away for a short time only. If there are none of these, return the
    previous set, or all that there should be.

    *absent_s*: for how many seconds each collector has been seen not ready. A pod that cannot be
    made has no object that says so, and one that is made again and again a new one each time.
    """
    by_name = {pod.name: pod for pod in pods}
    wanted = _names(stateful_set, replicas)
    chosen = []
    for name in wanted:
        pod = by_name.get(name)
        away_s = max(pod.away_s if pod is not None else 0.0, absent_s.get(name, 0.0))
        if (pod is not None and pod.is_ready) or (name in assigned and away_s < AWAY_MAX_S):
            chosen.append(name)
    # An empty set would leave every partition without an owner; these may come back, or start soon.
    return chosen or [name for name in assigned if name in wanted] or wanted


def _names(stateful_set: str, replicas: int) -> list[str]:
    return [f"{stateful_set}-{ordinal}" for ordinal in range(replicas)]


def replicas_to_keep(
    *, wanted: int, current: int, survey: Iterable[PartitionState], assigned: Iterable[str],
    stateful_set: str, is_patient: bool,
) -> int:  # fmt: skip
    """Return how many pods there must be: one that still holds partitions is removed only after it
    has released them, or if *is_patient* is false; one that is still *assigned* some never, since
    nobody else could take them.
    """
    if current <= wanted or wanted == 0:
        return wanted
    owners = [state.owner for state in survey if state.owner and not state.released]
    needed = [*assigned, *(owners if is_patient else [])]
    ordinals = [name.removeprefix(f"{stateful_set}-") for name in needed]
    found = [int(ordinal) for ordinal in ordinals if ordinal.isdigit()]
    return max([wanted, *(ordinal + 1 for ordinal in found if ordinal < current)])


def stuck_pods(stateful_set: Manifest, pods: Iterable[Manifest], *, now: float) -> list[Manifest]:
    """Return pods of an older revision that do not become ready. The controller would wait for them
    for ever before it makes pods of the newer revision. *now* is in seconds since the epoch.
    """
    status = stateful_set.get("status") or {}
    update = status.get("updateRevision")
    if not update or status.get("observedGeneration") != stateful_set["metadata"].get("generation"):
        return []
    return [
        pod
        for pod in pods
        if is_owned_by(pod, stateful_set["metadata"]["uid"])
        and not is_ending(pod)
        and _revision(pod) not in ("", update)
        and _is_broken(pod, now)
    ]


def isolated_servers(
    pods: Iterable[Manifest], pipeline: LogPipeline, wanted: ManagedServer
) -> list[Manifest]:
    """Return the pods of a NATS cluster whose servers know other users than *wanted*, or cannot
    join a server with its certificate. They refuse clients and servers that were started since.

    A rolling update does not replace them: the first new server finds no other one to join, and
    never becomes ready.
    """
    if pipeline.spec.nats.servers or pipeline.spec.nats.managed.replicas == 1:
        return []
    return [
        pod
        for pod in pods
        if not is_ending(pod)
        and labels_of(pod).get(COMPONENT_LABEL) == Component.NATS
        and _is_isolated(annotations_of(pod), wanted)
    ]


def _is_isolated(notes: Mapping[str, str], wanted: ManagedServer) -> bool:
    # A pod without the annotation is older than this rule: its server knows the current users.
    if notes.get(USERS_ANNOTATION, wanted.users) != wanted.users:
        return True
    return nats_tls.cannot_join(notes.get(nats_tls.MARK_ANNOTATION, ""), wanted.certificate)


def _revision(pod: Manifest) -> str:
    return str(labels_of(pod).get("controller-revision-hash", ""))


def _is_broken(pod: Manifest, now: float) -> bool:
    """Return whether the pod does not run, or has not been ready for longer than a start takes."""
    if condition(pod, "PodScheduled").get("status") == "False":
        return True
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    if any("waiting" in (status.get("state") or {}) for status in statuses):
        return True
    ready = condition(pod, "Ready")
    since = ready.get("lastTransitionTime")
    if ready.get("status") != "False" or not since:
        return False
    return now - seconds_of(since) > STUCK_S
