"""The children of a pipeline's table: the pod of the job, alone or as Spark's driver, and the pods
of the executors. An operator for Spark may run the same pods from a SparkApplication.

The driver has a stable name, so that a restarted one takes its table back at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import yaml

from logpipeline.spec import LogPipeline
from logpipeline.spec.table import TableVolume
from logpipeline_operator.children import config, credentials, model, names, pods, services
from logpipeline_operator.children.model import (
    FROM_FIRST,
    SPARK_BLOCKS_PORT,
    SPARK_DRIVER_PORT,
    TABLE_PORT,
    ChildSettings,
    Component,
    Manifest,
    NoSparkApi,
    given,
    quantity,
)
from logpipeline_operator.cluster.kinds import SPARK_APACHE, SPARK_APPLICATION, SPARK_KUBEFLOW

VOLUME = "table"
# Spark uses a volume of this name for its own files, in executors, too.
SCRATCH_NAME = "spark-local-dir-scratch"
SCRATCH = "/var/lib/logpipeline"
SCRATCH_VOLUME: Manifest = {"name": SCRATCH_NAME, "emptyDir": {}}
# Hadoop's libraries need a user's name, and the pod's user is not in /etc/passwd.
USER = "logpipeline"
_USER_VARIABLES = ("HADOOP_USER_NAME", "SPARK_USER", "USER")
# Memory besides the JVM's heap: its own overhead, and Python's workers with their data.
BESIDE_HEAP_BYTES = 2**30


def is_in_bucket(pipeline: LogPipeline) -> bool:
    """Return whether the table lies in a bucket."""
    return config.table_path(pipeline).startswith(config.BUCKET)


def has_own_claim(pipeline: LogPipeline) -> bool:
    """Return whether the table lies in a claim of its own, made for it."""
    volume = pipeline.spec.table.persistence or TableVolume()
    is_given = volume.existing_claim is not None or volume.empty_dir is not None
    return not is_in_bucket(pipeline) and not is_given


def volumes(pipeline: LogPipeline) -> list[Manifest]:
    """Return the table's volume, unless it has a claim of its own."""
    volume = pipeline.spec.table.persistence or TableVolume()
    if is_in_bucket(pipeline) or has_own_claim(pipeline):
        return []
    if volume.existing_claim is not None:
        return [{"name": VOLUME, "persistentVolumeClaim": {"claimName": volume.existing_claim}}]
    limit = volume.empty_dir.size_limit if volume.empty_dir is not None else None
    return [{"name": VOLUME, "emptyDir": given({"sizeLimit": quantity(limit) if limit else None})}]


def mounts(pipeline: LogPipeline) -> list[Manifest]:
    """Return the mounts of configuration, scratch and table, the same in all pods: tasks name files
    by their paths.
    """
    found: list[Manifest] = [
        {"name": "config", "mountPath": str(config.FOLDER), "readOnly": True},
        {"name": SCRATCH_NAME, "mountPath": SCRATCH},
    ]
    if not is_in_bucket(pipeline):
        # A folder of its own: the root of a file system is not empty, and a claim may be shared.
        path = config.table_path(pipeline)
        found.append({"name": VOLUME, "mountPath": path, "subPath": pipeline.name})
    return found


def arguments(http_port: int) -> list[str]:
    """Return the arguments of the job."""
    return [
        "table", "run",
        "-f", str(config.FOLDER / config.FILE),
        "--data", SCRATCH,
        "--http", f"0.0.0.0:{http_port}",
    ]  # fmt: skip


def environment(pipeline: LogPipeline) -> list[Manifest]:
    """Return the variables with the user's name, and the keys of the bucket from their Secret."""
    names = {**dict.fromkeys(_USER_VARIABLES, USER), "HOME": SCRATCH}
    found: list[Manifest] = [{"name": name, "value": value} for name, value in names.items()]
    secret = pipeline.spec.table.s3.secret
    if secret is not None and is_in_bucket(pipeline):
        found += [
            _from_secret("AWS_ACCESS_KEY_ID", secret.name, secret.access_key_id),
            _from_secret("AWS_SECRET_ACCESS_KEY", secret.name, secret.secret_access_key),
        ]
    return found


def resources(pipeline: LogPipeline) -> Manifest:
    """Return the requests of the driver's pod, if the resource does not set them."""
    memory = quantity(pipeline.spec.table.driver_memory + BESIDE_HEAP_BYTES)
    return {"requests": {"cpu": "500m", "memory": memory}}


def _from_secret(name: str, secret: str, key: str) -> Manifest:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


EXECUTOR_FILE = "executor.yaml"
# Another executor finishes the tasks of one that ends.
EXECUTOR_GRACE_S = 10


def has_executors(pipeline: LogPipeline) -> bool:
    """Return whether the table's pod is a driver that makes pods for its executors."""
    asked = pipeline.spec.table
    return bool(asked.enabled) and asked.runner != "embedded" and asked.executors.instances > 0


def is_native(pipeline: LogPipeline) -> bool:
    """Return whether that driver is a pod of this operator, and not of an operator for Spark."""
    return has_executors(pipeline) and pipeline.spec.table.runner == "native"


def executor_template(pipeline: LogPipeline, settings: ChildSettings) -> Manifest:
    """Return the template of executors: configuration, credentials and table have the same paths as
    in the driver. Spark sets image, processors and memory itself.

    Raises:
        NoImage: neither the resource nor the operator names one.
    """
    options = pipeline.spec.table
    mounted = config.volume(pipeline, names.table(pipeline), credentials.TABLE)
    plan = pods.Pods(
        component=Component.EXECUTOR,
        field="spec.table.image",
        options=replace(options, resources=options.executors.resources),
        container=_executor_container(pipeline),
        volumes=[mounted, SCRATCH_VOLUME, *volumes(pipeline)],
        security=pods.RESTRICTED_POD,
        # Access to a bucket may depend on the account. Executors get no token of it: only the
        # driver makes pods.
        service_account=names.table(pipeline),
        resources={},
        grace_s=EXECUTOR_GRACE_S,
        config_hash=config.hash_of(mounted),
        is_spread=True,
    )
    return pods.template(pipeline, plan, settings)


def executor_file(pipeline: LogPipeline, settings: ChildSettings) -> str:
    """Return the template as the file that Spark reads."""
    pod = {"apiVersion": "v1", "kind": "Pod", **executor_template(pipeline, settings)}
    return yaml.safe_dump(pod, sort_keys=True, allow_unicode=True, width=100)


def _executor_container(pipeline: LogPipeline) -> pods.Container:
    return pods.Container(
        args=[],
        env=environment(pipeline),
        ports=[{"name": "blocks", "containerPort": SPARK_BLOCKS_PORT}],
        mounts=mounts(pipeline),
        probes={},
        security=pods.RESTRICTED_CONTAINER,
    )


# Spark's version in the table's image; operators for Spark submit according to it.
SPARK_VERSION = "4.2.1"
# The program of a submitted driver, in the table's image; it takes the command's arguments.
MAIN = "local:///opt/logpipeline/driver.py"
HASH_CHARS = 8
MIB = 2**20
# Apache's operator gives up after three restarts by default.
RESTARTS_MAX = 1_000_000
RESTART_BACKOFF_MS = 10_000
RESTART_FORGET_MS = 600_000


def _application(pipeline: LogPipeline, settings: ChildSettings, text: str, api: str) -> Manifest:
    """Return the application of *api*, which the cluster has; *text* is its configuration.

    Raises:
        NoImage: neither the resource nor the operator names one.
    """
    driver = driver_template(pipeline, settings, text)
    workers = executor_template(pipeline, settings)
    specs = {SPARK_APACHE: _apache, SPARK_KUBEFLOW: _kubeflow}
    spec = specs[api](pipeline, driver, workers)
    name = f"{names.table(pipeline)}-{config.hash_of(spec)[:HASH_CHARS]}"
    return {
        "apiVersion": api,
        "kind": SPARK_APPLICATION,
        "metadata": model.metadata(pipeline, name, Component.TABLE),
        "spec": spec,
    }


def driver_template(pipeline: LogPipeline, settings: ChildSettings, text: str) -> Manifest:
    """Return the template of the driver's pod, without its command, which Spark adds."""
    mounted = config.volume(pipeline, names.table(pipeline), credentials.TABLE)
    container = pods.Container(
        args=[],
        env=[
            pods.from_field("POD_NAME", "metadata.name"),
            *environment(pipeline),
            {"name": "LOGPIPELINE_SPARK_SUBMITTED", "value": "true"},
        ],
        ports=[{"name": "http", "containerPort": TABLE_PORT}],
        mounts=mounts(pipeline),
        probes=pods.component_probes(),
        security=pods.RESTRICTED_CONTAINER,
        tells_last_words=True,
    )
    plan = pods.Pods(
        component=Component.TABLE,
        field="spec.table.image",
        options=pipeline.spec.table,
        container=container,
        volumes=[mounted, SCRATCH_VOLUME, *volumes(pipeline)],
        security=pods.RESTRICTED_POD,
        service_account=names.table(pipeline),
        resources=resources(pipeline),
        grace_s=GRACE_S,
        config_hash=config.hash_of(text, mounted),
        has_token=True,
    )
    return pods.template(pipeline, plan, settings)


def _apache(pipeline: LogPipeline, driver: Manifest, workers: Manifest) -> Manifest:
    asked = pipeline.spec.table
    conf = _conf(pipeline, driver) | {
        "spark.driver.memory": _memory(asked.driver_memory),
        "spark.executor.instances": str(asked.executors.instances),
        "spark.executor.cores": str(asked.executors.cores),
        "spark.executor.memory": _memory(asked.executors.memory),
        "spark.kubernetes.container.image": _image(driver),
        "spark.kubernetes.authenticate.driver.serviceAccountName": account(pipeline),
        "spark.kubernetes.authenticate.executor.serviceAccountName": account(pipeline),
    }
    return {
        "runtimeVersions": {"sparkVersion": SPARK_VERSION},
        "deploymentMode": "ClusterMode",
        "pyFiles": MAIN,
        "driverArgs": arguments(TABLE_PORT),
        "sparkConf": conf,
        "applicationTolerations": {
            "resourceRetainPolicy": "Never",
            "restartConfig": {
                "restartPolicy": "Always",
                "maxRestartAttempts": RESTARTS_MAX,
                "restartBackoffMillis": RESTART_BACKOFF_MS,
                "restartCounterResetMillis": RESTART_FORGET_MS,
            },
        },
        "driverSpec": {"podTemplateSpec": driver},
        "executorSpec": {"podTemplateSpec": workers},
    }


def _kubeflow(pipeline: LogPipeline, driver: Manifest, workers: Manifest) -> Manifest:
    asked = pipeline.spec.table
    return {
        "type": "Python",
        "mode": "cluster",
        "sparkVersion": SPARK_VERSION,
        "image": _image(driver),
        "mainApplicationFile": MAIN,
        "arguments": arguments(TABLE_PORT),
        "sparkConf": _conf(pipeline, driver),
        "restartPolicy": {"type": "Always"},
        "driver": {
            "memory": _memory(asked.driver_memory),
            "serviceAccount": account(pipeline),
            "template": driver,
        },
        "executor": {
            "instances": asked.executors.instances,
            "cores": asked.executors.cores,
            "memory": _memory(asked.executors.memory),
            "serviceAccount": account(pipeline),
            "template": workers,
        },
    }


def _conf(pipeline: LogPipeline, driver: Manifest) -> dict[str, str]:
    """Return the configuration of Spark for both operators. Spark sets the pull policy itself, and
    ignores that of the templates.
    """
    pull = driver["spec"]["containers"][0].get("imagePullPolicy")
    return {
        # Executors have no claims. Without this the driver lists claims, and has no right to.
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        # For many small batches Spark's web page shows nothing useful.
        "spark.ui.enabled": "false",
        **given({"spark.kubernetes.container.image.pullPolicy": pull}),
    }


def _image(template: Mapping[str, Manifest]) -> str:
    return str(template["spec"]["containers"][0]["image"])


def _memory(size_bytes: int) -> str:
    return f"{size_bytes // MIB}m"


# A running batch is finished within this time; a batch that is cut is repeated.
GRACE_S = 60
# The API server's name in every cluster.
KUBERNETES = "k8s://https://kubernetes.default.svc"
DRIVER_PORTS = {"driver": SPARK_DRIVER_PORT, "blocks": SPARK_BLOCKS_PORT}


def build(pipeline: LogPipeline, settings: ChildSettings) -> list[Manifest]:
    """Return the children of the table's job; none if the pipeline has no table.

    Raises:
        NoImage: neither the resource nor the operator names one.
        NoSparkApi: the table's runner needs an operator for Spark.
    """
    asked, name = pipeline.spec.table, names.table(pipeline)
    if not asked.enabled:
        return []
    api = settings.features.spark_api
    if asked.runner == "sparkApplication" and not api:
        raise NoSparkApi(is_known=api is not None)
    native = is_native(pipeline)
    text = config.render(config.for_table(pipeline))
    more = {EXECUTOR_FILE: executor_file(pipeline, settings)} if native else {}
    ports = {"http": TABLE_PORT, **(DRIVER_PORTS if native else {})}
    runs = (
        _application(pipeline, settings, text, api)
        if api and asked.runner == "sparkApplication"
        else _stateful_set(pipeline, settings, [text, *more.values()])
    )
    children = [
        config.config_map(pipeline, name, Component.TABLE, text, more),
        services.service(pipeline, Component.TABLE, name, ports, is_headless=True),
        runs,
    ]
    if asked.service_account_name is None:
        children.append(services.service_account(pipeline, Component.TABLE, name))
    if has_executors(pipeline) and settings.install.spark_role:
        # It lets the driver make pods for its executors.
        metadata = model.metadata(pipeline, name, Component.TABLE)
        role = settings.install.spark_role
        children.append(
            services.role_binding(pipeline, "RoleBinding", role, account(pipeline), metadata)
        )
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
    if has_own_claim(pipeline):
        spec |= services.own_claims(pipeline, Component.TABLE, VOLUME, volume)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": model.metadata(pipeline, name, Component.TABLE),
        "spec": spec,
    }


def _plan(pipeline: LogPipeline, settings: ChildSettings, texts: list[str]) -> pods.Pods:
    native, name = is_native(pipeline), names.table(pipeline)
    files = [config.FILE, *([EXECUTOR_FILE] if native else [])]
    mounted = config.volume(pipeline, name, credentials.TABLE, files)
    return pods.Pods(
        component=Component.TABLE,
        field="spec.table.image",
        options=pipeline.spec.table,
        container=_driver_container(pipeline, settings),
        volumes=[mounted, SCRATCH_VOLUME, *volumes(pipeline)],
        security=pods.RESTRICTED_POD,
        service_account=name,
        resources=resources(pipeline),
        grace_s=GRACE_S,
        config_hash=config.hash_of(*texts, mounted),
        has_token=native,
    )


def _driver_container(pipeline: LogPipeline, settings: ChildSettings) -> pods.Container:
    native = is_native(pipeline)
    ports = {"http": TABLE_PORT, **(DRIVER_PORTS if native else {})}
    return pods.Container(
        args=arguments(TABLE_PORT),
        env=[
            pods.from_field("POD_NAME", "metadata.name"),
            *environment(pipeline),
            *(_spark_environment(pipeline, settings) if native else []),
        ],
        ports=[{"name": name, "containerPort": number} for name, number in ports.items()],
        mounts=mounts(pipeline),
        probes=pods.component_probes(),
        security=pods.RESTRICTED_CONTAINER,
        tells_last_words=True,
    )


def _spark_environment(pipeline: LogPipeline, settings: ChildSettings) -> list[Manifest]:
    """Return the variables with which the driver makes executors that find it."""
    image = pipeline.spec.table.image or settings.install.image(Component.EXECUTOR)
    # The pod's own name is unique, and stays when the pod gets another address.
    host = f"$(POD_NAME).{names.table(pipeline)}.{pipeline.namespace}.svc"
    values = {
        "LOGPIPELINE_SPARK_MASTER": KUBERNETES,
        "LOGPIPELINE_SPARK_NAMESPACE": pipeline.namespace,
        "LOGPIPELINE_SPARK_IMAGE": image,
        "LOGPIPELINE_SPARK_SERVICE_ACCOUNT": account(pipeline),
        "LOGPIPELINE_SPARK_DRIVER_HOST": host,
        "LOGPIPELINE_SPARK_EXECUTOR_TEMPLATE": str(config.FOLDER / EXECUTOR_FILE),
    }
    return [{"name": name, "value": value} for name, value in values.items()]
