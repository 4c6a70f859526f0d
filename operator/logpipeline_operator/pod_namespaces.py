"""The namespaces whose pods a pipeline's shippers read if a selector of namespaces decides it, and
the bindings that allow it.

A binding lies in the namespace that is read, and its pipeline in another, so it can have no owner
that removes it. The operator does, as soon as the selector no longer selects the namespace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from logpipeline import json_text
from logpipeline.spec import LogPipeline
from logpipeline.spec.pods import query_of
from logpipeline_operator import child_objects
from logpipeline_operator.child_objects import Applied, apply_changes
from logpipeline_operator.children import ChildSettings, names, shippers
from logpipeline_operator.children.model import Desired, Manifest
from logpipeline_operator.cluster.client import Cluster, ClusterError
from logpipeline_operator.cluster.kinds import kind
from logpipeline_operator.cluster.objects import is_ending
from logpipeline_operator.differences import Changes, Wanted, changes, title, uses_stranger
from logpipeline_operator.queue import Key
from logpipeline_operator.status import Finding, errors

# Shippers may still have last lines to read of namespaces that are gone.
GONE_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PodNamespaces:
    """The namespaces whose pods are read: the *listed* ones are in the file that shippers read; in
    the *bound* ones, which exist and are not being deleted, they get a binding. *finding*: why the
    namespaces are not known.
    """

    listed: tuple[str, ...] = ()
    bound: tuple[str, ...] = ()
    finding: Finding | None = None


async def observe(cluster: Cluster, pipeline: LogPipeline) -> PodNamespaces:
    """Return the namespaces that the selector of *pipeline* selects.

    Raises:
        ClusterError, ClusterAway: the namespaces could not be read.
    """
    selector = pipeline.spec.shippers.pod_namespace_selector
    if selector is None:
        return PodNamespaces()
    before = await _listed_before(cluster, pipeline)
    try:
        found, _ = await cluster.list(kind("Namespace"), None, query_of(selector))
        matching = {str(each["metadata"]["name"]): each for each in found}
        gone = [name for name in before if name not in matching and await _is_gone(cluster, name)]
    except ClusterError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        finding = errors.of_unknown_namespaces(error)
        return PodNamespaces(listed=tuple(before), finding=finding)
    # A namespace that is being deleted takes no binding; its last lines are still read.
    staying = [name for name, each in matching.items() if not is_ending(each)]
    listed = {*matching, *gone[:GONE_MAX]}
    return PodNamespaces(listed=tuple(sorted(listed)), bound=tuple(sorted(staying)))


async def bind(
    cluster: Cluster,
    pipeline: LogPipeline,
    settings: ChildSettings,
    read: PodNamespaces,
    *,
    foreign: Sequence[str],
    may_write: bool,
    drifted: list[str],
) -> tuple[Applied, list[str]]:
    """Make the shippers' bindings in the namespaces of *read*, and delete all others; return the
    result, and without *may_write* the changes that wait. An account that is among the *foreign*
    children gets none. Bindings that others had changed are added to *drifted*.

    Raises:
        ClusterError, ClusterAway: the bindings could not be read.
    """
    if read.finding is not None:
        return Applied(), []
    present = await child_objects.bindings_in_namespaces(
        cluster, Key(pipeline.namespace, pipeline.name)
    )
    there = {str(each["metadata"]["namespace"]): each for each in present}
    wanted = {}
    if shippers.asks_kubernetes(pipeline, settings):
        made = {name: shippers.binding_in(name, pipeline, settings) for name in read.bound}
        wanted = {name: each for name, each in made.items() if not uses_stranger(each, foreign)}
    apply: list[Wanted] = []
    for namespace, manifest in wanted.items():
        # All bindings have the same name, so each is compared alone.
        found = [there[namespace]] if namespace in there else []
        apply += changes(
            Desired(manifests=(manifest,)),
            found,
            owner_uid=pipeline.uid,
            pipeline=pipeline.name,
            may_adopt=True,
        ).apply
    unwanted = tuple(each for namespace, each in there.items() if namespace not in wanted)
    if may_write:
        wished = Changes(apply=tuple(apply), delete=unwanted)
        return await apply_changes(cluster, wished, drifted), []
    pending = [_place(each.manifest) for each in apply]
    return Applied(), pending + [f"delete {_place(each)}" for each in unwanted]


async def _listed_before(cluster: Cluster, pipeline: LogPipeline) -> Sequence[str]:
    there = await cluster.get(kind("ConfigMap"), pipeline.namespace, names.shipper(pipeline))
    text = ((there or {}).get("data") or {}).get(shippers.NAMESPACES_FILE, "[]")
    try:
        listed = json_text.parse(text)
    except ValueError:
        return ()  # It was changed by hand, and is corrected by this reconciliation.
    return [each for each in listed if isinstance(each, str)] if isinstance(listed, list) else ()


async def _is_gone(cluster: Cluster, name: str) -> bool:
    return await cluster.get(kind("Namespace"), None, name) is None


def _place(binding: Manifest) -> str:
    return f"{title(binding)} in {binding['metadata']['namespace']}"
