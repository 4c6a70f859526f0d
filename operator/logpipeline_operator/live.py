"""A pipeline's children as they are, and what is done to them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from logpipeline_operator.children.labels import PIPELINE_LABEL
from logpipeline_operator.cluster.client import Cluster, Manifest
from logpipeline_operator.cluster.errors import ClusterError
from logpipeline_operator.cluster.kinds import kind, kind_of
from logpipeline_operator.differences import Changes, Wanted, place

log = logging.getLogger(__name__)

# Kinds of which a pipeline may have children, in the order in which they are made: what pods need
# comes before them.
OWNED = (
    "ServiceAccount",
    "ConfigMap",
    "Service",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "StatefulSet",
    "DaemonSet",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A child that the API server did not take."""

    child: str
    status: int
    reason: str
    message: str


@dataclass(slots=True)
class Done:
    """What became of `carry_out`."""

    failures: list[Failure] = field(default_factory=list)
    drifted: list[str] = field(default_factory=list)
    written: int = 0


async def children(
    cluster: Cluster, namespace: str, pipeline: str, desired: Sequence[Manifest]
) -> list[Manifest]:
    """Return the live children of *pipeline*, and whatever else has the name of a *desired* one.

    Raises:
        ClusterError, ClusterAway: they could not be read.
    """
    selector = f"{PIPELINE_LABEL}={pipeline}"
    lists = await asyncio.gather(
        *(cluster.list(kind(name), namespace, selector) for name in OWNED)
    )
    found = {place(manifest): manifest for manifests, _ in lists for manifest in manifests}
    missing = [manifest for manifest in desired if place(manifest) not in found]
    others = await asyncio.gather(*(_namesake(cluster, manifest) for manifest in missing))
    return [*found.values(), *(other for other in others if other is not None)]


async def pods(cluster: Cluster, namespace: str, pipeline: str) -> list[Manifest]:
    """Return the pods of *pipeline*."""
    found, _ = await cluster.list(kind("Pod"), namespace, f"{PIPELINE_LABEL}={pipeline}")
    return found


async def carry_out(cluster: Cluster, changes: Changes) -> Done:
    """Make *changes*; a child that is refused keeps none of the others back.

    Raises:
        ClusterAway: the API server is away.
    """
    done = Done()
    for wanted in sorted(changes.apply, key=_rank):
        try:
            await _apply(cluster, wanted, done)
        except ClusterError as error:
            done.failures.append(_failure(wanted.manifest, error))
    for manifest in changes.delete:
        metadata = manifest["metadata"]
        try:
            await cluster.delete(
                kind_of(manifest), metadata.get("namespace"), metadata["name"], uid=metadata["uid"]
            )
        except ClusterError as error:
            done.failures.append(_failure(manifest, error))
        else:
            done.written += 1
            log.info("deleted a child", extra={"child": _name(manifest)})
    return done


async def delete_pods(cluster: Cluster, found: Iterable[Manifest]) -> None:
    """Delete pods, whose controller makes them anew."""
    for pod in found:
        metadata = pod["metadata"]
        log.info("deleting a pod of an older revision", extra={"pod": metadata["name"]})
        await cluster.delete(
            kind("Pod"), metadata["namespace"], metadata["name"], uid=metadata["uid"]
        )


async def _apply(cluster: Cluster, wanted: Wanted, done: Done) -> None:
    manifest = wanted.manifest
    if wanted.replaces_uid:
        metadata = manifest["metadata"]
        # Its pods and their volumes stay, and belong to the new one.
        await cluster.delete(
            kind_of(manifest),
            metadata["namespace"],
            metadata["name"],
            uid=wanted.replaces_uid,
            orphan=True,
        )
    await cluster.apply(manifest)
    done.written += 1
    if wanted.drift:
        done.drifted.append(f"{_name(manifest)} ({', '.join(wanted.drift)})")
    log.info(
        "applied a child",
        extra={"child": _name(manifest), "new": wanted.is_new, "drift": list(wanted.drift)},
    )


async def _namesake(cluster: Cluster, manifest: Manifest) -> Manifest | None:
    metadata = manifest["metadata"]
    return await cluster.get(kind_of(manifest), metadata.get("namespace"), metadata["name"])


def _rank(wanted: Wanted) -> int:
    name = str(wanted.manifest["kind"])
    return OWNED.index(name) if name in OWNED else 0


def _failure(manifest: Manifest, error: ClusterError) -> Failure:
    return Failure(
        child=_name(manifest), status=error.status, reason=error.reason, message=error.message
    )


def _name(manifest: Manifest) -> str:
    return "{} {}".format(*place(manifest))
