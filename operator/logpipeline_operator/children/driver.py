"""The table's job: one pod that keeps it, alone or as the driver of executors in pods of their
own. It has a stable name, so that one that is started again takes its table back at once.
"""

from __future__ import annotations

from logpipeline.spec import LogPipeline
from logpipeline.spec.table import TableVolume
from logpipeline_operator.children import (
    application,
    config,
    executors,
    model,
    names,
    nats_auth,
    pods,
    services,
    table,
)
from logpipeline_operator.children.model import (
    FROM_FIRST,
    SPARK_BLOCKS_PORT,
    SPARK_DRIVER_PORT,
    TABLE_PORT,
    ChildSettings,
    Component,
    Manifest,
)

# A batch that is under way is finished; one that is cut is repeated.
GRACE_S = 60
# Behind its Service the API server has a name in every cluster.
KUBERNETES = "k8s://https://kubernetes.default.svc"
DRIVER_PORTS = {"driver": SPARK_DRIVER_PORT, "blocks": SPARK_BLOCKS_PORT}


def build(pipeline: LogPipeline, settings: ChildSettings) -> list[Manifest]:
    """Return all that the table's job needs, nothing where there shall be none.

    Raises:
        NoImage: neither the resource nor the operator names one.
    """
    asked, name = pipeline.spec.table, names.table(pipeline)
    is_application = asked.runner == "sparkApplication"
    if not asked.enabled or (is_application and not settings.spark_api):
        return []
    is_native = executors.is_native(pipeline)
    text = config.render(config.for_table(pipeline))
    more = {executors.FILE: executors.render(pipeline, settings)} if is_native else {}
    ports = {"http": TABLE_PORT, **(DRIVER_PORTS if is_native else {})}
    runs = (
        application.build(pipeline, settings, text)
        if is_application
        else _stateful_set(pipeline, settings, [text, *more.values()])
    )
    children = [
        config.config_map(pipeline, name, Component.TABLE, text, more),
        services.service(pipeline, Component.TABLE, name, ports, is_headless=True),
        runs,
    ]
    if asked.service_account_name is None:
        children.append(pods.service_account(pipeline, Component.TABLE, name))
    if executors.has_executors(pipeline) and settings.spark_role:
        children.append(_binding(pipeline, settings.spark_role))
    return children


def account(pipeline: LogPipeline) -> str:
    """Return the ServiceAccount of the table's pods."""
    return pipeline.spec.table.service_account_name or names.table(pipeline)


def _stateful_set(pipeline: LogPipeline, settings: ChildSettings, texts: list[str]) -> Manifest:
    name, volume = names.table(pipeline), pipeline.spec.table.persistence or TableVolume()
    spec: Manifest = {
        "serviceName": name,
        "replicas": 1,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": model.selector(pipeline, Component.TABLE)},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": FROM_FIRST},
        "template": pods.template(pipeline, _plan(pipeline, settings, texts), settings),
    }
    if table.has_own_claim(pipeline):
        spec |= services.own_claims(pipeline, Component.TABLE, table.VOLUME, volume)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": model.metadata(pipeline, name, Component.TABLE),
        "spec": spec,
    }


def _plan(pipeline: LogPipeline, settings: ChildSettings, texts: list[str]) -> pods.Pods:
    is_native, name = executors.is_native(pipeline), names.table(pipeline)
    files = [config.FILE, *([executors.FILE] if is_native else [])]
    mounted = config.volume(pipeline, name, nats_auth.TABLE, files)
    return pods.Pods(
        component=Component.TABLE,
        field="spec.table.image",
        options=pipeline.spec.table,
        container=_container(pipeline, settings),
        volumes=[mounted, table.SCRATCH_VOLUME, *table.volumes(pipeline)],
        security=pods.RESTRICTED_POD,
        service_account=name,
        resources=table.resources(pipeline),
        grace_s=GRACE_S,
        config_hash=config.hash_of(*texts, mounted),
        has_token=is_native,
    )


def _container(pipeline: LogPipeline, settings: ChildSettings) -> pods.Container:
    is_native = executors.is_native(pipeline)
    ports = {"http": TABLE_PORT, **(DRIVER_PORTS if is_native else {})}
    return pods.Container(
        args=table.arguments(TABLE_PORT),
        env=[
            pods.from_field("POD_NAME", "metadata.name"),
            *table.environment(pipeline),
            *(_spark_environment(pipeline, settings) if is_native else []),
        ],
        ports=[{"name": name, "containerPort": number} for name, number in ports.items()],
        mounts=table.mounts(pipeline),
        probes=pods.component_probes(),
        security=pods.RESTRICTED_CONTAINER,
        tells_last_words=True,
    )


def _spark_environment(pipeline: LogPipeline, settings: ChildSettings) -> list[Manifest]:
    """Return what the driver has to know to make executors that find it."""
    image = pipeline.spec.table.image or settings.image(Component.EXECUTOR)
    # The pod's own name is in no other's way, and stays when the pod gets another address.
    host = f"$(POD_NAME).{names.table(pipeline)}.{pipeline.namespace}.svc"
    values = {
        "LOGPIPELINE_SPARK_MASTER": KUBERNETES,
        "LOGPIPELINE_SPARK_NAMESPACE": pipeline.namespace,
        "LOGPIPELINE_SPARK_IMAGE": image,
        "LOGPIPELINE_SPARK_SERVICE_ACCOUNT": account(pipeline),
        "LOGPIPELINE_SPARK_DRIVER_HOST": host,
        "LOGPIPELINE_SPARK_EXECUTOR_TEMPLATE": str(config.FOLDER / executors.FILE),
    }
    return [{"name": name, "value": value} for name, value in values.items()]


def _binding(pipeline: LogPipeline, role: str) -> Manifest:
    """Return what lets the driver make pods, in its own namespace; *role* is a Kind/name."""
    kind, _, role_name = role.rpartition("/")
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": model.metadata(pipeline, names.table(pipeline), Component.TABLE),
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": kind or "ClusterRole",
            "name": role_name,
        },
        "subjects": [
            {
                "kind": "ServiceAccount",
                "name": account(pipeline),
                "namespace": pipeline.namespace,
            }
        ],
    }
