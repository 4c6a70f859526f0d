"""The one child that lies in no namespace: Kubernetes removes it with nothing, so we do.

No finalizer is spent on it. An operator that goes with its own namespace would leave one behind,
and the namespace with it; a binding whose service account is gone lets nobody do anything.
"""

from __future__ import annotations

from collections.abc import Collection

from logpipeline_operator.children import labels
from logpipeline_operator.children.model import Manifest
from logpipeline_operator.children.names import binding_name
from logpipeline_operator.cluster.client import Cluster
from logpipeline_operator.cluster.errors import ClusterError
from logpipeline_operator.cluster.kinds import kind
from logpipeline_operator.queue import Key

FORBIDDEN = 403


async def find(cluster: Cluster, key: Key) -> Manifest | None:
    """Return the binding of the pipeline's shippers, None where there is none of ours."""
    try:
        there = await cluster.get(
            kind("ClusterRoleBinding"), None, binding_name(key.namespace, key.name)
        )
    except ClusterError as error:
        # Without the right to it there is none of ours.
        if error.status == FORBIDDEN:
            return None
        raise
    return there if there is not None and _key(there) == key else None


async def forget(cluster: Cluster, key: Key) -> None:
    """Delete the binding of a pipeline that is gone."""
    there = await find(cluster, key)
    if there is not None:
        await _delete(cluster, there)


async def sweep(cluster: Cluster, keys: Collection[Key], namespaces: Collection[str]) -> None:
    """Delete the bindings of all pipelines but *keys*, which are all there are in *namespaces*
    (none: everywhere): some went while nobody looked.
    """
    selector = f"{labels.MANAGED_BY_LABEL}={labels.MANAGED_BY},{labels.NAMESPACE_LABEL}"
    try:
        found, _ = await cluster.list(kind("ClusterRoleBinding"), None, selector)
    except ClusterError as error:
        if error.status == FORBIDDEN:
            return
        raise
    for there in found:
        key = _key(there)
        # What other namespaces have is another operator's business.
        if key not in keys and (not namespaces or key.namespace in namespaces):
            await _delete(cluster, there)


async def _delete(cluster: Cluster, there: Manifest) -> None:
    metadata = there["metadata"]
    await cluster.delete(kind("ClusterRoleBinding"), None, metadata["name"], uid=metadata["uid"])


def _key(binding: Manifest) -> Key:
    given = binding["metadata"].get("labels") or {}
    return Key(str(given.get(labels.NAMESPACE_LABEL)), str(given.get(labels.PIPELINE_LABEL)))
