"""Reads a pipeline's children from the cluster, and applies changes to them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from logpipeline.spec import LogPipeline
from logpipeline.spec.api import PIPELINE_LABEL
from logpipeline_operator.children import model, order
from logpipeline_operator.children.model import Manifest
from logpipeline_operator.children.names import binding_name
from logpipeline_operator.cluster.client import Cluster, ClusterError
from logpipeline_operator.cluster.kinds import Kind, kind, kind_of
from logpipeline_operator.cluster.objects import labels_of
from logpipeline_operator.differences import Changes, Wanted, corrections_of, place, title
from logpipeline_operator.foreign_fields import foreign_fields, removal
from logpipeline_operator.queue import Key
from logpipeline_operator.status.errors import of_kubernetes
from logpipeline_operator.status.facts import Finding
from logpipeline_operator.volume_claims import Growth

_OURS = f"{model.MANAGED_BY_LABEL}={model.MANAGED_BY},{model.NAMESPACE_LABEL}"

log = logging.getLogger(__name__)


# Bindings have no finalizer. An operator that is deleted with its own namespace would leave the
# finalizer behind, which keeps the namespace; a binding without its account gives no rights.
async def find_bindings(cluster: Cluster, key: Key) -> Manifest | None:
    """Return the ClusterRoleBinding of the pipeline's shippers; None if the operator made none."""
    try:
        there = await cluster.get(
            kind("ClusterRoleBinding"), None, binding_name(key.namespace, key.name)
        )
    except ClusterError as error:
        # Without the right to read it the operator cannot have made one.
        if error.status == HTTPStatus.FORBIDDEN:
            return None
        raise
    return there if there is not None and _key(there) == key else None


async def bindings_in_namespaces(cluster: Cluster, key: Key) -> list[Manifest]:
    """Return the bindings of the pipeline's shippers in the namespaces that they read."""
    selector = f"{_OURS}={key.namespace},{model.INSTANCE_LABEL}={key.name}"
    return await _listed(cluster, "RoleBinding", selector)


async def forget_bindings(cluster: Cluster, key: Key) -> None:
    """Delete the bindings of a pipeline that is gone."""
    there = await find_bindings(cluster, key)
    for each in ([there] if there is not None else []) + await bindings_in_namespaces(cluster, key):
        await _delete(cluster, each)


async def sweep_bindings(
    cluster: Cluster, keys: Collection[Key], namespaces: Collection[str]
) -> None:
    """Delete the bindings of pipelines that no longer exist: *keys* are all that exist in
    *namespaces* (none: everywhere). Some may have been deleted while no operator ran.
    """
    for name in ("ClusterRoleBinding", "RoleBinding"):
        for there in await _listed(cluster, name, _OURS):
            key = _key(there)
            # Bindings of pipelines in other namespaces belong to another operator.
            if key not in keys and (not namespaces or key.namespace in namespaces):
                await _delete(cluster, there)


async def _listed(cluster: Cluster, name: str, selector: str) -> list[Manifest]:
    try:
        found, _ = await cluster.list(kind(name), None, selector)
    except ClusterError as error:
        # Without the right to list them the operator cannot have made any.
        if error.status == HTTPStatus.FORBIDDEN:
            return []
        raise
    return found


async def _delete(cluster: Cluster, there: Manifest) -> None:
    metadata = there["metadata"]
    await cluster.delete(
        kind(there["kind"]), metadata.get("namespace"), metadata["name"], uid=metadata["uid"]
    )


def _key(binding: Manifest) -> Key:
    given = labels_of(binding)
    return Key(str(given.get(model.NAMESPACE_LABEL)), str(given.get(model.INSTANCE_LABEL)))


@dataclass(slots=True)
class Applied:
    """The result of `apply_changes`: what was refused, and how many objects were written."""

    findings: list[Finding] = field(default_factory=list)
    written: int = 0


async def children(
    cluster: Cluster,
    pipeline: LogPipeline,
    desired: Sequence[Manifest],
    kinds: Iterable[Kind],
) -> list[Manifest]:
    """Return the children of *pipeline* in the cluster, of *kinds*, and any other object with the
    name of a *desired* one.

    Raises:
        ClusterError, ClusterAway: they could not be read.
    """
    selector = f"{PIPELINE_LABEL}={pipeline.name}"
    lists = await asyncio.gather(
        *(cluster.list(each, pipeline.namespace, selector) for each in kinds if each.is_namespaced)
    )
    found = {place(manifest): manifest for manifests, _ in lists for manifest in manifests}
    missing = [manifest for manifest in desired if place(manifest) not in found]
    others = await asyncio.gather(*(_namesake(cluster, manifest) for manifest in missing))
    live = [*found.values(), *(other for other in others if other is not None)]
    if not any(each["kind"] == "ClusterRoleBinding" for each in desired):
        former = await find_bindings(cluster, Key(pipeline.namespace, pipeline.name))
        live += [former] if former is not None else []
    return live


async def pods(cluster: Cluster, key: Key) -> list[Manifest]:
    """Return the pods of the pipeline *key*."""
    return await _labelled(cluster, "Pod", key)


async def claims(cluster: Cluster, key: Key) -> list[Manifest]:
    """Return the volume claims of the pipeline *key*."""
    return await _labelled(cluster, "PersistentVolumeClaim", key)


async def endpoint_slices(cluster: Cluster, key: Key) -> list[Manifest]:
    """Return the EndpointSlices of the Services of the pipeline *key*, which Kubernetes gives the
    labels of the Services.
    """
    return await _labelled(cluster, "EndpointSlice", key)


async def _labelled(cluster: Cluster, name: str, key: Key) -> list[Manifest]:
    found, _ = await cluster.list(kind(name), key.namespace, f"{PIPELINE_LABEL}={key.name}")
    return found


def lacks_pods(manifest: Manifest) -> bool:
    """Return whether *manifest* is a controller that has fewer pods than it wants."""
    status = manifest.get("status") or {}
    if manifest["kind"] == "StatefulSet":
        return int(status.get("replicas", 0)) < int(manifest["spec"].get("replicas", 1))
    if manifest["kind"] == "DaemonSet":
        wanted = int(status.get("desiredNumberScheduled", 0))
        return int(status.get("currentNumberScheduled", 0)) < wanted
    return False


async def refusals(cluster: Cluster, controllers: Iterable[Manifest]) -> dict[str, str]:
    """Return the errors of *controllers* that could not make their pods, by title."""
    found: dict[str, str] = {}
    for controller in controllers:
        metadata = controller["metadata"]
        fields = f"involvedObject.uid={metadata['uid']},reason=FailedCreate"
        events, _ = await cluster.list(kind("Event"), metadata["namespace"], fields=fields)
        if events:
            newest = max(events, key=lambda event: str(event.get("lastTimestamp") or ""))
            found[title(controller)] = str(newest.get("message", ""))
    return found


async def apply_changes(cluster: Cluster, changes: Changes, drifted: list[str]) -> Applied:
    """Apply *changes*; a refused child does not stop the others. Children that other managers had
    changed are added to *drifted*.

    Raises:
        ClusterAway: the API server did not answer; it may have done the last request.
    """
    done = Applied()
    for wanted in sorted(changes.apply, key=lambda wanted: order(wanted.manifest)):
        try:
            await _apply(cluster, wanted, done, drifted)
        except ClusterError as error:
            done.findings.append(of_kubernetes(title(wanted.manifest), error))
    for manifest in changes.delete:
        metadata = manifest["metadata"]
        try:
            await cluster.delete(
                kind_of(manifest), metadata.get("namespace"), metadata["name"], uid=metadata["uid"]
            )
        except ClusterError as error:
            done.findings.append(of_kubernetes(title(manifest), error))
        else:
            done.written += 1
            log.info("deleted a child", extra={"child": title(manifest)})
    return done


async def grow(cluster: Cluster, namespace: str, growths: Iterable[Growth]) -> list[Finding]:
    """Make claims request more storage, and return the refusals: not every storage can grow."""
    refused = []
    for growth in growths:
        change: Manifest = {"spec": {"resources": {"requests": {"storage": growth.storage}}}}
        try:
            await cluster.merge(kind("PersistentVolumeClaim"), namespace, growth.name, change)
        except ClusterError as error:
            refused.append(of_kubernetes(f"PersistentVolumeClaim {growth.name}", error))
        else:
            log.info("a claim asks for more", extra={"claim": growth.name, "for": growth.storage})
    return refused


async def delete_pods(cluster: Cluster, found: Iterable[Manifest]) -> None:
    """Delete pods; their controller makes new ones."""
    for pod in found:
        metadata = pod["metadata"]
        log.info("deleting a pod of an older revision", extra={"pod": metadata["name"]})
        await cluster.delete(
            kind("Pod"), metadata["namespace"], metadata["name"], uid=metadata["uid"]
        )


async def _apply(cluster: Cluster, wanted: Wanted, done: Applied, drifted: list[str]) -> None:
    corrected = corrections_of(wanted)
    text = f"{title(wanted.manifest)} ({', '.join(corrected)})"
    if corrected:
        # Noted before the request: if its answer is lost, the next reconciliation finds no drift.
        drifted.append(text)
    try:
        await _write(cluster, wanted, done)
    except ClusterError:
        if corrected:
            drifted.remove(text)
        raise
    log.info(
        "applied a child",
        extra={"child": title(wanted.manifest), "new": wanted.is_new, "drift": corrected},
    )


async def _write(cluster: Cluster, wanted: Wanted, done: Applied) -> None:
    manifest = wanted.manifest
    if wanted.replaces_uid:
        metadata = manifest["metadata"]
        # Its pods and their volumes stay; the new object adopts them.
        await cluster.delete(
            kind_of(manifest),
            metadata.get("namespace"),
            metadata["name"],
            uid=wanted.replaces_uid,
            orphan=True,
        )
    there = await cluster.apply(manifest)
    done.written += 1
    # Applying corrects the operator's own fields; fields that others added must be removed.
    named = {each.path for each in wanted.foreign_fields}
    left = tuple(each for each in foreign_fields(manifest, there) if each.path in named)
    if left:
        await cluster.patch(kind_of(manifest), there, removal(there, left))
        done.written += 1


async def _namesake(cluster: Cluster, manifest: Manifest) -> Manifest | None:
    metadata = manifest["metadata"]
    return await cluster.get(kind_of(manifest), metadata.get("namespace"), metadata["name"])
