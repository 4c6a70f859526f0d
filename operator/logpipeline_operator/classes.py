"""Applies a pipeline's class to it: if the class allows all of it, all of it is carried out, else
the last version that was allowed.

The allowed version is kept in a ControllerRevision: its data cannot be changed, and the usual roles
of Kubernetes let only controllers make one. In a place that users of LogPipelines can write, such
as an annotation, they could allow themselves anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus

from logpipeline.spec import LogPipeline, SpecError, dump, parse
from logpipeline.spec.api import ADOPT_ANNOTATION, CLASS_KIND, PIPELINE_LABEL
from logpipeline.spec.choices import REFUSALS_MAX, class_name, refusals
from logpipeline.spec.classes import LogPipelineClass, parse_class
from logpipeline.spec.components import ClaimRetention, Persistence
from logpipeline.spec.pods import both
from logpipeline.spec.table import TableVolume
from logpipeline_operator.children import model, names
from logpipeline_operator.children.model import Manifest
from logpipeline_operator.cluster.client import Cluster, ClusterError
from logpipeline_operator.cluster.kinds import kind
from logpipeline_operator.cluster.objects import has_controller, is_owned_by
from logpipeline_operator.status import Finding, errors


@dataclass(frozen=True, slots=True)
class Allowed:
    """The pipeline to carry out, None for nothing; *finding*: why it is not the resource's."""

    pipeline: LogPipeline | None
    finding: Finding | None = None


async def allowed(cluster: Cluster, pipeline: LogPipeline, *, may_write: bool) -> Allowed:
    """Return what of *pipeline* its class allows, and keep it as the last allowed version.

    Raises:
        ClusterError, ClusterAway: the class, or the last allowed version, could not be read.
    """
    kept, orphans = await _kept(cluster, pipeline)
    try:
        of = await _class(cluster, class_name(pipeline))
    except SpecError as error:
        return Allowed(_recalled(pipeline, kept), errors.of_class(class_name(pipeline), error))
    if of is None:
        return Allowed(_recalled(pipeline, kept), errors.of_class(class_name(pipeline), None))
    refused = [str(refusal) for refusal in refusals(pipeline, of)]
    if not kept and await _would_narrow(cluster, pipeline, of):
        refused.append(
            "spec.shippers.podNamespaces: the running shippers read the pods of all namespaces, "
            f"and LogPipelineClass {of.name} allows {of.spec.pod_namespaces}: set it to what they "
            "are to read from now on, such as Own for the pipeline's own namespace"
        )
    if refused:
        finding = errors.of_refused_choices(refused[:REFUSALS_MAX])
        return Allowed(_recalled(pipeline, kept), finding)
    filled_in = _filled_in(pipeline, of)
    if may_write:
        await _keep(cluster, filled_in, kept, orphans)
    return Allowed(filled_in)


def _filled_in(pipeline: LogPipeline, of: LogPipelineClass) -> LogPipeline:
    """Return *pipeline* with the values that it leaves to its class."""
    shippers = pipeline.spec.shippers
    width = shippers.pod_namespaces or of.spec.pod_namespaces
    selector = None
    if width == "Selector":
        selector = both(of.spec.pod_namespace_selector, shippers.pod_namespace_selector)
    shippers = replace(shippers, pod_namespaces=width, pod_namespace_selector=selector)
    table = pipeline.spec.table
    if table.enabled is None:
        table = replace(table, enabled=of.spec.table_by_default)
    return replace(pipeline, spec=replace(pipeline.spec, shippers=shippers, table=table))


async def _class(cluster: Cluster, name: str) -> LogPipelineClass | None:
    there = await cluster.get(kind(CLASS_KIND), None, name)
    return parse_class(there) if there is not None else None


async def _would_narrow(cluster: Cluster, pipeline: LogPipeline, of: LogPipelineClass) -> bool:
    """Return whether shippers that were made before there were classes would stop reading some
    pods, though the resource did not change.
    """
    shippers = pipeline.spec.shippers
    is_said = shippers.pod_namespaces is not None or not shippers.container_logs
    if is_said or of.spec.pod_namespaces == "All":
        return False
    name = names.shipper(pipeline)
    there = await cluster.get(kind("DaemonSet"), pipeline.namespace, name)
    return there is not None and _is_owned(there, pipeline)


async def _kept(cluster: Cluster, pipeline: LogPipeline) -> tuple[list[Manifest], list[Manifest]]:
    """Return the allowed versions, the newest last, and those that a former pipeline of the name
    left without an owner (--cascade=orphan), which allow nothing.
    """
    selector = f"{PIPELINE_LABEL}={pipeline.name}"
    found, _ = await cluster.list(kind("ControllerRevision"), pipeline.namespace, selector)
    ours = [each for each in found if _is_owned(each, pipeline)]
    prefix = _revision_name(pipeline, "")
    orphans = [
        each
        for each in found
        if each["metadata"]["name"].startswith(prefix) and not has_controller(each)
    ]
    return sorted(ours, key=_number), orphans


def _recalled(pipeline: LogPipeline, kept: Sequence[Manifest]) -> LogPipeline | None:
    """Return *pipeline* as it was allowed last."""
    if not kept:
        return None
    given = {name: text for name, text in pipeline.annotations.items() if name != ADOPT_ANNOTATION}
    resource = dump(replace(pipeline, annotations=given)) | {"spec": kept[-1]["data"]["spec"]}
    try:
        return sparing(parse(resource), pipeline)
    except SpecError:
        # It was allowed by a version of the operator with other rules.
        return None


def sparing(recalled: LogPipeline, pipeline: LogPipeline) -> LogPipeline:
    """Return *recalled*, which deletes nothing that *pipeline* retains: to keep streams and claims
    needs no permission.
    """
    former, spec = recalled.spec, pipeline.spec
    volume, table_volume = former.collectors.persistence, former.table.persistence
    if volume is not None:
        policy = _sparing(volume.retention_policy, spec.collectors.persistence)
        volume = replace(volume, retention_policy=policy)
    if table_volume is not None:
        policy = _sparing(table_volume.retention_policy, spec.table.persistence)
        table_volume = replace(table_volume, retention_policy=policy)
    changed = replace(
        former,
        deletion_policy="Delete" if _both(former, spec, "deletion_policy") else "Retain",
        collectors=replace(former.collectors, persistence=volume),
        table=replace(former.table, persistence=table_volume),
    )
    return replace(recalled, spec=changed)


def _sparing(former: ClaimRetention, volume: Persistence | TableVolume | None) -> ClaimRetention:
    wanted = volume.retention_policy if volume is not None else ClaimRetention()
    return ClaimRetention(
        when_deleted="Delete" if _both(former, wanted, "when_deleted") else "Retain",
        when_scaled="Delete" if _both(former, wanted, "when_scaled") else "Retain",
    )


def _both(former: object, wanted: object, name: str) -> bool:
    """Return whether both say that something is deleted."""
    return {getattr(former, name), getattr(wanted, name)} == {"Delete"}


async def _keep(
    cluster: Cluster, allowed: LogPipeline, kept: Sequence[Manifest], orphans: Sequence[Manifest]
) -> None:
    """Keep *allowed* as the newest version; it is written before the others are deleted."""
    data = {"spec": dump(allowed)["spec"]}
    former = [*kept, *orphans]
    if kept and kept[-1]["data"] == data:
        former.remove(kept[-1])
    else:
        # Also of orphans the numbers are taken.
        number = max(map(_number, former), default=0) + 1
        try:
            await cluster.create(_revision(allowed, number, data))
        except ClusterError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            # A pipeline of the same name is being deleted: the next reconciliation finds the name
            # free.
            return
    for each in former:
        metadata = each["metadata"]
        await cluster.delete(
            kind("ControllerRevision"),
            metadata["namespace"],
            metadata["name"],
            uid=metadata["uid"],
        )


def _revision(pipeline: LogPipeline, number: int, data: Manifest) -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": model.metadata(pipeline, _revision_name(pipeline, number)),
        "revision": number,
        "data": data,
    }


def _revision_name(pipeline: LogPipeline, number: int | str) -> str:
    return f"{pipeline.name}-allowed-{number}"


def _number(revision: Manifest) -> int:
    return int(revision["revision"])


def _is_owned(there: Manifest, pipeline: LogPipeline) -> bool:
    return is_owned_by(there, pipeline.uid, as_controller=True)
