"""Which documents run pods, and what becomes of one that does: the same again, injected twice."""

from __future__ import annotations

from typing import Any

from logpipeline_cli.errors import CliError
from logpipeline_cli.injection.sidecar import (
    ANNOTATION,
    CONTAINER,
    GRACE_MORE_S,
    HTTP_PORT_FIRST,
    READ_OUT_S,
    USER,
    Manifest,
    Sidecar,
    container,
    volumes,
)
from logpipeline_cli.injection.volume import mount_volume

# Where the pod template stands, by kind; a kind counts in these groups only.
TEMPLATES: dict[str, tuple[str, ...]] = {
    "Pod": (),
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
GROUPS = ("v1", "apps/v1", "batch/v1")
# Kubernetes' default.
GRACE_S = 30


def is_workload(document: Any) -> bool:
    """Return whether *document* runs pods."""
    return (
        isinstance(document, dict)
        and document.get("kind") in TEMPLATES
        and document.get("apiVersion") in GROUPS
    )


def workloads_in(document: Any) -> list[Manifest]:
    """Return the workloads of *document*: itself, or those of a List."""
    if is_workload(document):
        return [document]
    if isinstance(document, dict) and document.get("kind") == "List":
        return [item for item in document.get("items") or () if is_workload(item)]
    return []


def pipeline_of(workload: Manifest) -> str | None:
    """Return for which pipeline *workload* was injected before."""
    annotations = _metadata(_template(workload)).get("annotations") or {}
    pipeline = annotations.get(ANNOTATION)
    return None if pipeline is None else str(pipeline)


def inject(workload: Manifest, sidecar: Sidecar) -> None:
    """Put *sidecar* into the pods of *workload*, in place of one that is there.

    Raises:
        CliError: that cannot work; the message says why.
    """
    where = name_of(workload)
    _check_namespace(workload, sidecar, where)
    template = _template(workload)
    spec = template.get("spec")
    if not isinstance(spec, dict) or not spec.get("containers"):
        raise CliError(f"{where} has no containers; give a complete manifest")
    _check_containers(spec, where)
    metadata = _metadata(template)
    was_injected = ANNOTATION in (metadata.get("annotations") or {})
    mount = mount_volume(sidecar, spec, where)
    made = container(sidecar, mount, port=_port(spec), user=_user(spec))
    for volume in volumes(sidecar):
        _upsert(spec.setdefault("volumes", []), volume)
    _upsert(spec.setdefault("initContainers", []), made, at=0)
    if not was_injected:
        # The shipper has what the containers leave of it.
        grace_s = spec.get("terminationGracePeriodSeconds", GRACE_S)
        spec["terminationGracePeriodSeconds"] = grace_s + READ_OUT_S + GRACE_MORE_S
    metadata.setdefault("annotations", {})[ANNOTATION] = sidecar.pipeline
    template["metadata"] = metadata


def name_of(workload: Manifest) -> str:
    """Return what messages call *workload*."""
    metadata = _metadata(workload)
    return f"{workload['kind']} {metadata.get('name') or metadata.get('generateName') or '?'}"


def _template(workload: Manifest) -> Manifest:
    found: Any = workload
    for key in TEMPLATES[workload["kind"]]:
        found = found.get(key) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        path = ".".join(TEMPLATES[workload["kind"]])
        raise CliError(f"{name_of(workload)} has no {path}; give a complete manifest")
    return found


def _metadata(object: Manifest) -> Manifest:
    metadata = object.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _check_namespace(workload: Manifest, sidecar: Sidecar, where: str) -> None:
    namespace = _metadata(workload).get("namespace")
    if sidecar.namespace is not None and namespace not in (None, sidecar.namespace):
        raise CliError(
            f"{where} lies in namespace {namespace!r}, the pipeline in {sidecar.namespace!r}: the "
            "sidecar mounts the pipeline's ConfigMap and Secret, and pods mount those of their own "
            f"namespace only. Make a LogPipeline in {namespace!r}, and give --namespace {namespace}"
        )


def _check_containers(spec: Manifest, where: str) -> None:
    if any(each.get("name") == CONTAINER for each in spec["containers"]):
        raise CliError(
            f"{where} has an ordinary container {CONTAINER!r}: remove it, or give it another name"
        )


def _port(spec: Manifest) -> int | None:
    """Return a port that no container of the pod says it uses; None on the node's own network,
    where any may be taken.
    """
    if spec.get("hostNetwork"):
        return None
    others = [*spec["containers"], *(spec.get("initContainers") or ())]
    used = {
        port.get("containerPort")
        for each in others
        if each.get("name") != CONTAINER
        for port in each.get("ports") or ()
    }
    return next(port for port in range(HTTP_PORT_FIRST, 65536) if port not in used)


def _user(spec: Manifest) -> int | None:
    """Return as whom to run: as the first container, whose files may be for its eyes only, unless
    that is root.
    """
    own = (spec["containers"][0].get("securityContext") or {}).get("runAsUser")
    pods = (spec.get("securityContext") or {}).get("runAsUser")
    if own is not None:
        return int(own) or USER
    return USER if pods == 0 else None


def _upsert(entries: list[Manifest], entry: Manifest, at: int | None = None) -> None:
    for index, other in enumerate(entries):
        if other.get("name") == entry["name"]:
            entries[index] = entry
            return
    entries.insert(len(entries) if at is None else at, entry)
