"""The shippers: one on each node. It reads logs, and writes only its own positions."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath

from logpipeline.spec import LogPipeline
from logpipeline.spec.api import PIPELINE_LABEL
from logpipeline_operator.children import (
    config,
    credentials,
    model,
    names,
    nats_server,
    pods,
    services,
)
from logpipeline_operator.children.config import POD_LOGS
from logpipeline_operator.children.model import (
    SHIPPER_PORT,
    ChildSettings,
    Component,
    Manifest,
)

_WILD = re.compile(r"[*?\[]")

DATA = "/var/lib/logpipeline"
NAMESPACES_FILE = "namespaces.json"
RESOURCES: Manifest = {"requests": {"cpu": "50m", "memory": "96Mi"}}
# Enough to send the batches in flight; the next shipper continues with the files.
GRACE_S = 30
# A node with taints has logs, too.
TOLERATE_ALL: Manifest = {"operator": "Exists"}


def host_folders(pipeline: LogPipeline) -> list[str]:
    """Return the folders to mount, sorted, none below another."""
    shippers = pipeline.spec.shippers
    wanted = {POD_LOGS} if shippers.container_logs else set()
    wanted |= {base_of(glob) for files in shippers.host_files for glob in files.include}
    paths = {PurePosixPath(folder) for folder in wanted}
    return sorted(str(path) for path in paths if not paths & set(path.parents))


def base_of(glob: str) -> str:
    """Return the folder before the first part of *glob* with a wildcard, or of its file."""
    parts = PurePosixPath(glob).parts
    literal = next(
        (number for number, part in enumerate(parts) if _WILD.search(part)), len(parts) - 1
    )
    return str(PurePosixPath(*parts[:literal]))


def build(pipeline: LogPipeline, settings: ChildSettings) -> list[Manifest]:
    """Return the children of shippers on nodes, and the ConfigMap of sidecars.

    Raises:
        NoImage: neither the resource nor the operator names one.
    """
    shippers, component = pipeline.spec.shippers, Component.SHIPPER
    if not shippers.enabled:
        return []
    former = config.render(config.for_sidecar(pipeline, knows_tls=False))
    sidecar = {config.SIDECAR_FILE: config.render(config.for_sidecar(pipeline))}
    children = [config.config_map(pipeline, names.sidecar(pipeline), component, former, sidecar)]
    if shippers.mode == "sidecar":
        return children
    name = names.shipper(pipeline)
    text = config.render(config.for_shipper(pipeline, has_token=settings.has_callout))
    children += [
        config.config_map(pipeline, name, component, text, _namespaces(pipeline, settings)),
        services.service(pipeline, component, name, {"http": SHIPPER_PORT}, is_headless=True),
        _daemon_set(pipeline, settings, text),
    ]
    if shippers.service_account_name is None:
        children.append(services.service_account(pipeline, component, name))
    # If a selector of namespaces is used, each namespace gets a binding: see `binding_in`.
    if asks_kubernetes(pipeline, settings) and not config.selects_namespaces(pipeline):
        children.append(_binding(pipeline, settings))
    return children


def binding_in(namespace: str, pipeline: LogPipeline, settings: ChildSettings) -> Manifest:
    """Return the binding in *namespace* that lets this pipeline's shippers read its pods."""
    metadata = _cluster_metadata(pipeline)
    # Else a pipeline of the same name in that namespace would take it for its own child.
    del metadata["labels"][PIPELINE_LABEL]
    return _bound(
        pipeline, "RoleBinding", settings.install.shipper_role, metadata | {"namespace": namespace}
    )


def asks_kubernetes(pipeline: LogPipeline, settings: ChildSettings) -> bool:
    """Return whether shippers learn labels and annotations of pods from the API server."""
    shippers = pipeline.spec.shippers
    is_on_nodes = shippers.enabled and shippers.mode == "daemonset"
    is_all = config.reads_all_namespaces(pipeline)
    role = settings.install.shipper_cluster_role if is_all else settings.install.shipper_role
    return is_on_nodes and shippers.container_logs and bool(role)


def _daemon_set(pipeline: LogPipeline, settings: ChildSettings, text: str) -> Manifest:
    shippers, name = pipeline.spec.shippers, names.shipper(pipeline)
    # The shipper reads a changed list of namespaces again, without a restart.
    files = (config.FILE, *_namespaces(pipeline, settings))
    role = None if settings.has_callout else credentials.SHIPPER
    mounted = config.volume(pipeline, name, role, files)
    if settings.has_callout:
        # Instead of a password that all shippers share, a node has a token with its own name.
        token = nats_server.token_source(pipeline, config.NATS_FOLDER)
        mounted["projected"]["sources"].append(token)
    folders = host_folders(pipeline)
    plan = pods.Pods(
        component=Component.SHIPPER,
        field="spec.shippers.image",
        options=shippers,
        container=_container(pipeline, settings, folders),
        volumes=[
            mounted,
            {
                "name": "positions",
                "hostPath": {"path": positions_folder(pipeline), "type": "DirectoryOrCreate"},
            },
            *(
                {"name": _volume_name(number), "hostPath": {"path": folder, "type": ""}}
                for number, folder in enumerate(folders)
            ),
        ],
        security=pods.SHIPPER_POD,
        service_account=name,
        resources=RESOURCES,
        grace_s=GRACE_S,
        config_hash=config.hash_of(text, mounted),
        has_token=asks_kubernetes(pipeline, settings),
    )
    pod = pods.template(pipeline, plan, settings)
    pod["spec"].setdefault("tolerations", [TOLERATE_ALL])
    limit = shippers.update_strategy.max_unavailable
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": model.metadata(pipeline, name, Component.SHIPPER),
        "spec": {
            "selector": {"matchLabels": model.selector(pipeline, Component.SHIPPER)},
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 1 if limit is None else limit},
            },
            "template": pod,
        },
    }


def positions_folder(pipeline: LogPipeline) -> str:
    """Return the folder of the node that keeps this pipeline's positions."""
    chosen = pipeline.spec.shippers.positions_host_path
    return chosen or f"{DATA}/{pipeline.namespace}/{pipeline.name}"


def _container(
    pipeline: LogPipeline, settings: ChildSettings, folders: list[str]
) -> pods.Container:
    watches = ["--kubernetes"] if asks_kubernetes(pipeline, settings) else []
    login = ["--as-host"] if settings.has_callout else []
    chosen = [str(config.FOLDER / file) for file in _namespaces(pipeline, settings)]
    return pods.Container(
        args=[
            "ship",
            "-f", str(config.FOLDER / config.FILE),
            "--name", config.NODE_SHIPPER,
            "--host", "$(NODE_NAME)",
            "--data", DATA,
            "--http", f"0.0.0.0:{SHIPPER_PORT}",
            *watches,
            *login,
            *(word for file in chosen for word in ("--namespaces", file)),
        ],
        env=[pods.from_field("NODE_NAME", "spec.nodeName")],
        ports=[{"name": "http", "containerPort": SHIPPER_PORT}],
        mounts=[
            {"name": "config", "mountPath": str(config.FOLDER), "readOnly": True},
            {"name": "positions", "mountPath": DATA},
            *(
                {
                    "name": _volume_name(number),
                    "mountPath": folder,
                    "readOnly": True,
                    # So that later mounts of the node below it are visible, too.
                    "mountPropagation": "HostToContainer",
                }
                for number, folder in enumerate(folders)
            ),
        ],
        probes=pods.component_probes(),
        security=pods.SHIPPER_CONTAINER,
    )  # fmt: skip


def _volume_name(number: int) -> str:
    return f"logs-{number}"


def _binding(pipeline: LogPipeline, settings: ChildSettings) -> Manifest:
    """Return the binding that lets this pipeline's shippers read pods: of their own namespace, or
    of all, with the namespaces. The latter has no namespace, so that no owner removes it: the
    operator does, before the pipeline goes.
    """
    if config.reads_all_namespaces(pipeline):
        role, metadata = settings.install.shipper_cluster_role, _cluster_metadata(pipeline)
        return _bound(pipeline, "ClusterRoleBinding", role, metadata)
    metadata = model.metadata(pipeline, names.shipper(pipeline), Component.SHIPPER)
    return _bound(pipeline, "RoleBinding", settings.install.shipper_role, metadata)


def _bound(pipeline: LogPipeline, kind: str, role: str, metadata: Manifest) -> Manifest:
    account = pipeline.spec.shippers.service_account_name or names.shipper(pipeline)
    return services.role_binding(pipeline, kind, role, account, metadata)


def _namespaces(pipeline: LogPipeline, settings: ChildSettings) -> dict[str, str]:
    """Return the file with the namespaces whose pods are read, if a selector decides it."""
    if not config.selects_namespaces(pipeline) or not pipeline.spec.shippers.container_logs:
        return {}
    return {NAMESPACES_FILE: json.dumps(list(settings.pod_namespaces))}


def _cluster_metadata(pipeline: LogPipeline) -> Manifest:
    """Return metadata without a namespace and an owner; labels name the pipeline instead."""
    return {
        "name": names.binding_name(pipeline.namespace, pipeline.name),
        "labels": {
            **model.labels(pipeline, Component.SHIPPER),
            model.NAMESPACE_LABEL: pipeline.namespace,
        },
    }
