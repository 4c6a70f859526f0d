"""Deletion of a pipeline: removes what Kubernetes' garbage collection does not.

It must never keep an object, and with it a namespace, from being deleted. What cannot be removed
within a limit is named in an event and left.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from logpipeline.nats.bucket import Conflict
from logpipeline.nats.connection import ConnectFailed, NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
from logpipeline.spec import LogPipeline
from logpipeline.spec.api import GROUP
from logpipeline_operator.children.model import Manifest
from logpipeline_operator.cluster.client import Cluster, ClusterError, NotFound
from logpipeline_operator.cluster.kinds import kind
from logpipeline_operator.cluster.objects import seconds_of
from logpipeline_operator.secret_files import SecretProblem

log = logging.getLogger(__name__)

FINALIZER = f"{GROUP}/cleanup"
# NATS may never come back: when a namespace is deleted, it often goes first.
CLEANUP_S_MAX = 60.0
RETRY_S = 3.0

Remove = Callable[[], Awaitable[list[str]]]


def needs_finalizer(pipeline: LogPipeline) -> bool:
    """Return whether anything must be removed when *pipeline* is deleted."""
    return pipeline.spec.deletion_policy == "Delete"


def has_finalizer(resource: Manifest) -> bool:
    """Return whether the object waits for the operator when it is deleted."""
    return FINALIZER in (resource["metadata"].get("finalizers") or [])


async def keep_finalizer(cluster: Cluster, resource: Manifest, pipeline: LogPipeline) -> Manifest:
    """Set or remove the operator's finalizer, as *pipeline* needs it, and return the object."""
    others = [name for name in resource["metadata"].get("finalizers") or [] if name != FINALIZER]
    wanted = needs_finalizer(pipeline)
    if wanted == has_finalizer(resource):
        return resource
    return await _set_finalizers(cluster, resource, [*others, FINALIZER] if wanted else others)


async def finish(
    cluster: Cluster,
    resource: Manifest,
    remove: Remove,
    *,
    now: float,
) -> tuple[float | None, str]:
    """Clean up for an object that is being deleted; return after how many seconds to try again
    (None: it is done), and what was removed or left.

    *remove* deletes what JetStream has of the pipeline, if it should, and returns the names; *now*
    is in seconds since the epoch.
    """
    note = ""
    if has_finalizer(resource):
        try:
            removed = await remove()
            note = f"deleted {', '.join(removed)}" if removed else ""
        except (
            ClusterError, ConnectFailed, SecretProblem, NotSent, OutcomeUnknown, ApiError, Conflict,
        ) as error:  # fmt: skip
            since = seconds_of(resource["metadata"]["deletionTimestamp"])
            if now - since < CLEANUP_S_MAX:
                return RETRY_S, ""
            note = f"its streams could not be deleted, and stay in JetStream: {error}"
            log.warning("streams could not be deleted, and stay", extra={"why": str(error)})
    if has_finalizer(resource):
        left = [name for name in resource["metadata"]["finalizers"] if name != FINALIZER]
        try:
            await _set_finalizers(cluster, resource, left)
        except NotFound:
            return None, note
    return None, note


async def _set_finalizers(cluster: Cluster, resource: Manifest, finalizers: list[str]) -> Manifest:
    metadata = resource["metadata"]
    change = {
        "metadata": {
            "finalizers": finalizers or None,
            # A finalizer that another program adds meanwhile must not get lost.
            "resourceVersion": metadata["resourceVersion"],
        }
    }
    return await cluster.merge(kind("LogPipeline"), metadata["namespace"], metadata["name"], change)
