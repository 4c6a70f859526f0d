"""Children of a pipeline for tests, and ways to find one among them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from logpipeline.spec import LogPipeline, parse
from logpipeline_operator.children import ChildSettings, Manifest, build
from logpipeline_operator.children.model import Install

SETTINGS = ChildSettings(
    install=Install(image_collector="c:1", image_shipper="s:1", image_nats="n:1", image_table="a:1")
)
UID = "11111111-2222-3333-4444-555555555555"


def settings(**changes: Any) -> ChildSettings:
    """SETTINGS with *changes*, each in the part that has a field of this name."""
    parts = {name: getattr(SETTINGS, name) for name in ("install", "features", "server")}
    for name, part in parts.items():
        known = {field.name for field in fields(part)} & changes.keys()
        parts[name] = replace(part, **{field: changes.pop(field) for field in known})
    return replace(SETTINGS, **parts, **changes)


def resource(
    spec: dict[str, Any], *, name: str = "prod", namespace: str = "logging", uid: str = UID
) -> LogPipeline:
    """The pipeline *name* with *spec*."""
    return parse(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "spec": spec,
        }
    )


def children(spec: dict[str, Any], settings: ChildSettings = SETTINGS) -> list[Manifest]:
    """The children of a pipeline with *spec*."""
    return built(resource(spec), settings)


def built(pipeline: LogPipeline, settings: ChildSettings = SETTINGS) -> list[Manifest]:
    """The children of *pipeline*, which could all be decided."""
    desired = build(pipeline, settings)
    assert not desired.undecided, desired.undecided
    return list(desired.manifests)


def child(made: Iterable[Manifest], kind: str, name: str) -> Manifest:
    """The one child of this *kind* and *name*."""
    (found,) = (m for m in made if m["kind"] == kind and m["metadata"]["name"] == name)
    return found


def workloads(made: Iterable[Manifest]) -> list[Manifest]:
    """What makes pods."""
    return [m for m in made if m["kind"] in ("StatefulSet", "DaemonSet")]


def pod_templates(made: Iterable[Manifest]) -> dict[str, Manifest]:
    """The pods' templates by component."""
    return {
        workload["metadata"]["labels"]["app.kubernetes.io/component"]: workload["spec"]["template"]
        for workload in workloads(made)
    }


def pod_spec(workload: Manifest) -> Manifest:
    """The specification of the pods of *workload*."""
    spec: Manifest = workload["spec"]["template"]["spec"]
    return spec
