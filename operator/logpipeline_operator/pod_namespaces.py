"""Which namespaces' pods the shippers of a pipeline read where labels of namespaces say it, and the
bindings that let them see those pods.

A binding lies in the namespace that is read, and its pipeline in another: no owner can remove it.
The operator does, as soon as the labels no longer say so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from logpipeline.spec import LogPipeline
from logpipeline.spec.pods import query_of
from logpipeline_operator import child_objects
from logpipeline_operator.child_objects import Done, carry_out
from logpipeline_operator.children import ChildSettings, names, shippers
from logpipeline_operator.children.model import Manifest
from logpipeline_operator.cluster.client import Cluster, ClusterError
from logpipeline_operator.cluster.kinds import kind
from logpipeline_operator.differences import Changes, Wanted, changes, title
from logpipeline_operator.queue import Key
from logpipeline_operator.status import Finding, errors

# Names of namespaces that are gone, of which shippers may still have last lines to read.
GONE_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The namespaces whose pods are read: shippers are *told* these, and *bound* in those that are
    there and stay. *finding* says why they are not known.
    """

    told: tuple[str, ...] = ()
    bound: tuple[str, ...] = ()
    finding: Finding | None = None


async def look(cluster: Cluster, pipeline: LogPipeline) -> Reach:
    """Return what the shippers of *pipeline* read, by the labels of namespaces.

    Raises:
        ClusterError, ClusterAway: the namespaces could not be read.
    """
    selector = pipeline.spec.shippers.pod_namespace_selector
    if selector is None:
        return Reach()
    before = await _told_before(cluster, pipeline)
    try:
        found, _ = await cluster.list(kind("Namespace"), None, query_of(selector))
        matching = {str(each["metadata"]["name"]): each for each in found}
        gone = [name for name in before if name not in matching and await _is_gone(cluster, name)]
    except ClusterError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return Reach(told=tuple(before), bound=(), finding=errors.of_unknown_namespaces(error))
    # Nothing can be made in a namespace that is ending; its last lines are read.
    staying = [name for name, each in matching.items() if _is_staying(each)]
    told = {*matching, *gone[:GONE_MAX]}
    return Reach(told=tuple(sorted(told)), bound=tuple(sorted(staying)))


async def bind(
    cluster: Cluster,
    pipeline: LogPipeline,
    settings: ChildSettings,
    reach: Reach,
    *,
    may_write: bool,
    drifted: list[str],
) -> tuple[Done, list[str]]:
    """Make bindings of the shippers in the namespaces of *reach*, and remove all others; return
    what came of it, and without *may_write* what would be done. What others had changed is added to
    *drifted*.

    Raises:
        ClusterError, ClusterAway: the bindings could not be read.
    """
    if reach.finding is not None:
        return Done(), []
    present = await child_objects.bindings_in_namespaces(
        cluster, Key(pipeline.namespace, pipeline.name)
    )
    there = {str(each["metadata"]["namespace"]): each for each in present}
    wanted = {}
    if shippers.asks_kubernetes(pipeline, settings):
        wanted = {name: shippers.binding_in(name, pipeline, settings) for name in reach.bound}
    apply: list[Wanted] = []
    for namespace, manifest in wanted.items():
        # All of them have one name, so that each is compared alone.
        found = [there[namespace]] if namespace in there else []
        apply += changes(
            [manifest], found, owner_uid=pipeline.uid, pipeline=pipeline.name, may_adopt=True
        ).apply
    unwanted = tuple(each for namespace, each in there.items() if namespace not in wanted)
    if may_write:
        wished = Changes(apply=tuple(apply), delete=unwanted)
        return await carry_out(cluster, wished, drifted), []
    pending = [_place(each.manifest) for each in apply]
    return Done(), pending + [f"delete {_place(each)}" for each in unwanted]


async def _told_before(cluster: Cluster, pipeline: LogPipeline) -> Sequence[str]:
    there = await cluster.get(kind("ConfigMap"), pipeline.namespace, names.shipper(pipeline))
    text = ((there or {}).get("data") or {}).get(shippers.NAMESPACES_FILE, "[]")
    try:
        told = json.loads(text)
    except ValueError:
        return ()  # It was changed by hand, and is put right by this look.
    return [each for each in told if isinstance(each, str)] if isinstance(told, list) else ()


async def _is_gone(cluster: Cluster, name: str) -> bool:
    return await cluster.get(kind("Namespace"), None, name) is None


def _place(binding: Manifest) -> str:
    return f"{title(binding)} in {binding['metadata']['namespace']}"


def _is_staying(namespace: Manifest) -> bool:
    return "deletionTimestamp" not in namespace["metadata"]
