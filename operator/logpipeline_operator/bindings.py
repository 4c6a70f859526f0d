"""The bindings that lie outside of their pipeline's namespace, in none or in one that its shippers
read: Kubernetes removes them with nothing, so we do.

No finalizer is spent on them. An operator that goes with its own namespace would leave one behind,
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
_OURS = f"{labels.MANAGED_BY_LABEL}={labels.MANAGED_BY},{labels.NAMESPACE_LABEL}"


async def find(cluster: Cluster, key: Key) -> Manifest | None:
    """Return the binding of the pipeline's shippers that lies in no namespace, None where there is
    none of ours.
    """
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


async def in_namespaces(cluster: Cluster, key: Key) -> list[Manifest]:
    """Return the bindings of the pipeline's shippers that lie in the namespaces that they read."""
    selector = f"{_OURS}={key.namespace},{labels.INSTANCE_LABEL}={key.name}"
    return await _listed(cluster, "RoleBinding", selector)


async def forget(cluster: Cluster, key: Key) -> None:
    """Delete the bindings of a pipeline that is gone."""
    there = await find(cluster, key)
    for each in ([there] if there is not None else []) + await in_namespaces(cluster, key):
        await _delete(cluster, each)


async def sweep(cluster: Cluster, keys: Collection[Key], namespaces: Collection[str]) -> None:
    """Delete the bindings of all pipelines but *keys*, which are all there are in *namespaces*
    (none: everywhere): some went while nobody looked.
    """
    for name in ("ClusterRoleBinding", "RoleBinding"):
        for there in await _listed(cluster, name, _OURS):
            key = _key(there)
            # What other namespaces have is another operator's business.
            if key not in keys and (not namespaces or key.namespace in namespaces):
                await _delete(cluster, there)


async def _listed(cluster: Cluster, name: str, selector: str) -> list[Manifest]:
    try:
        found, _ = await cluster.list(kind(name), None, selector)
    except ClusterError as error:
        # Without the right to them there are none of ours.
        if error.status == FORBIDDEN:
            return []
        raise
    return found


async def _delete(cluster: Cluster, there: Manifest) -> None:
    metadata = there["metadata"]
    await cluster.delete(
        kind(there["kind"]), metadata.get("namespace"), metadata["name"], uid=metadata["uid"]
    )


def _key(binding: Manifest) -> Key:
    given = binding["metadata"].get("labels") or {}
    return Key(str(given.get(labels.NAMESPACE_LABEL)), str(given.get(labels.INSTANCE_LABEL)))
