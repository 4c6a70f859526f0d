"""The collectors: a StatefulSet whose pods keep their names and their files."""

from __future__ import annotations

from logpipeline.spec import LogPipeline
from logpipeline.spec.components import Persistence
from logpipeline_operator.children import config, credentials, model, names, pods, services
from logpipeline_operator.children.model import (
    COLLECTOR_PORT,
    FROM_FIRST,
    ChildSettings,
    Component,
    Manifest,
    given,
    quantity,
)

CLAIM = "data"
RESOURCES: Manifest = {"requests": {"cpu": "100m", "memory": "256Mi"}}


def build(pipeline: LogPipeline, settings: ChildSettings) -> list[Manifest]:
    """Return the children of collectors.

    Raises:
        NoImage: neither the resource nor the operator names one.
    """
    name, component = names.collector(pipeline), Component.COLLECTOR
    budget = pipeline.spec.collectors.pod_disruption_budget
    text = config.render(config.for_collector(pipeline))
    children = [
        config.config_map(pipeline, name, component, text),
        services.service(pipeline, component, name, {"http": COLLECTOR_PORT}, is_headless=True),
        _stateful_set(pipeline, settings, text),
    ]
    if pipeline.spec.collectors.service_account_name is None:
        children.append(services.service_account(pipeline, component, name))
    if budget.enabled:
        children.append(
            services.disruption_budget(
                pipeline,
                component,
                name,
                max_unavailable=budget.max_unavailable,
                unhealthy_policy=budget.unhealthy_pod_eviction_policy,
            )
        )
    return children


def data_folder(pipeline: LogPipeline, member: str) -> str:
    """Return the folder of the files of the collector *member*, in its pod."""
    collectors = pipeline.spec.collectors
    volume = collectors.persistence or Persistence()
    # Kubernetes does not change the owner of a node's folder: a collector makes its own folder in
    # it.
    below = f"/{member}" if volume.host_path else ""
    return f"{collectors.directory.rstrip('/')}{below}"


def _stateful_set(pipeline: LogPipeline, settings: ChildSettings, text: str) -> Manifest:
    collectors, name = pipeline.spec.collectors, names.collector(pipeline)
    volume = collectors.persistence or Persistence()
    plan = pods.Pods(
        component=Component.COLLECTOR,
        field="spec.collectors.image",
        options=collectors,
        container=_container(pipeline, volume),
        volumes=[
            config.volume(pipeline, name, credentials.COLLECTOR),
            *_volumes(volume),
        ],
        security=pods.RESTRICTED_POD,
        service_account=name,
        resources=RESOURCES,
        grace_s=collectors.drain_timeout_seconds,
        config_hash=config.hash_of(text, config.volume(pipeline, name, credentials.COLLECTOR)),
        is_spread=True,
    )
    spec: Manifest = {
        "serviceName": name,
        "replicas": collectors.replicas,
        # Each collector has its own partitions, and does not wait for others.
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": model.selector(pipeline, Component.COLLECTOR)},
        "updateStrategy": _update_strategy(pipeline, settings),
        "template": pods.template(pipeline, plan, settings),
    }
    if _has_own_claims(volume):
        spec |= services.own_claims(pipeline, Component.COLLECTOR, CLAIM, volume)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": model.metadata(pipeline, name, Component.COLLECTOR),
        "spec": spec,
    }


def _container(pipeline: LogPipeline, volume: Persistence) -> pods.Container:
    directory = pipeline.spec.collectors.directory
    own = {"subPathExpr": "$(POD_NAME)"} if volume.existing_claim else {}
    # Kubernetes fills in the pod's name; a $(…) of the user's is not replaced.
    data = "$(POD_NAME)".join(map(pods.literal, data_folder(pipeline, "\0").split("\0")))
    return pods.Container(
        args=[
            "collect",
            "-f", str(config.FOLDER / config.FILE),
            "--member", "$(POD_NAME)",
            "--data", data,
            "--http", f"0.0.0.0:{COLLECTOR_PORT}",
        ],
        env=[pods.from_field("POD_NAME", "metadata.name")],
        ports=[{"name": "http", "containerPort": COLLECTOR_PORT}],
        mounts=[
            {"name": "config", "mountPath": str(config.FOLDER), "readOnly": True},
            {"name": CLAIM, "mountPath": directory, **own},
        ],
        probes=pods.component_probes(),
        security=pods.RESTRICTED_CONTAINER,
    )  # fmt: skip


def _update_strategy(pipeline: LogPipeline, settings: ChildSettings) -> Manifest:
    strategy = pipeline.spec.collectors.update_strategy
    if strategy.type == "OnDelete":
        return {"type": strategy.type}
    limit = strategy.max_unavailable if settings.features.has_max_unavailable else None
    rolling = FROM_FIRST | given({"maxUnavailable": limit})
    return {"type": strategy.type, "rollingUpdate": rolling}


def _has_own_claims(volume: Persistence) -> bool:
    return not volume.existing_claim and not volume.host_path and volume.empty_dir is None


def _volumes(volume: Persistence) -> list[Manifest]:
    if volume.existing_claim:
        source: Manifest = {"persistentVolumeClaim": {"claimName": volume.existing_claim}}
    elif volume.host_path:
        # A folder that Kubernetes makes belongs to root, and a collector could not write to it.
        source = {"hostPath": {"path": volume.host_path, "type": "Directory"}}
    elif volume.empty_dir is not None:
        limit = volume.empty_dir.size_limit
        source = {"emptyDir": given({"sizeLimit": quantity(limit) if limit else None})}
    else:
        return []
    return [{"name": CLAIM, **source}]
