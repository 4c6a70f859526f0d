"""The table's job as a SparkApplication: an operator for Spark runs driver and executors.

Both kinds take templates of pods, and so get the very pods that the other runners have. The name
has a hash of what is asked for: a change is another application, whichever operator runs it.
"""

from __future__ import annotations

from collections.abc import Mapping

from logpipeline.spec import LogPipeline
from logpipeline_operator.children import config, executors, model, names, nats_auth, pods, table
from logpipeline_operator.children.model import (
    TABLE_PORT,
    ChildSettings,
    Component,
    Manifest,
    given,
)

KIND = "SparkApplication"
APACHE = "spark.apache.org/v1"
KUBEFLOW = "sparkoperator.k8s.io/v1beta2"
# Where a cluster has both, the project's own one.
APIS = (APACHE, KUBEFLOW)
# As the table's image has it; operators choose by it how to submit.
SPARK_VERSION = "4.2.1"
# In the table's image: what a driver that was submitted runs, with the words of the command.
MAIN = "local:///opt/logpipeline/driver.py"
GRACE_S = 60
HASH_CHARS = 8
MIB = 2**20
# Apache's operator gives up after three restarts, unless it forgets them in between.
RESTARTS_MAX = 1_000_000
RESTART_BACKOFF_MS = 10_000
RESTART_FORGET_MS = 600_000


def build(pipeline: LogPipeline, settings: ChildSettings, text: str) -> Manifest:
    """Return the application for the operator that the cluster has; *text* is what its job reads.

    Raises:
        NoImage: neither the resource nor the operator names one.
    """
    driver = driver_template(pipeline, settings, text)
    workers = executors.template(pipeline, settings)
    specs = {APACHE: _apache, KUBEFLOW: _kubeflow}
    spec = specs[settings.spark_api](pipeline, driver, workers)
    name = f"{names.table(pipeline)}-{config.hash_of(spec)[:HASH_CHARS]}"
    return {
        "apiVersion": settings.spark_api,
        "kind": KIND,
        "metadata": model.metadata(pipeline, name, Component.TABLE),
        "spec": spec,
    }


def driver_template(pipeline: LogPipeline, settings: ChildSettings, text: str) -> Manifest:
    """Return the driver's pod, without its command, which Spark adds."""
    mounted = config.volume(pipeline, names.table(pipeline), nats_auth.TABLE)
    container = pods.Container(
        args=[],
        env=[
            pods.from_field("POD_NAME", "metadata.name"),
            *table.environment(pipeline),
            {"name": "LOGPIPELINE_SPARK_SUBMITTED", "value": "true"},
        ],
        ports=[{"name": "http", "containerPort": TABLE_PORT}],
        mounts=table.mounts(pipeline),
        probes=pods.component_probes(),
        security=pods.RESTRICTED_CONTAINER,
        tells_last_words=True,
    )
    plan = pods.Pods(
        component=Component.TABLE,
        field="spec.table.image",
        options=pipeline.spec.table,
        container=container,
        volumes=[mounted, table.SCRATCH_VOLUME, *table.volumes(pipeline)],
        security=pods.RESTRICTED_POD,
        service_account=names.table(pipeline),
        resources=table.resources(pipeline),
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
        "spark.kubernetes.authenticate.driver.serviceAccountName": _account(driver),
        "spark.kubernetes.authenticate.executor.serviceAccountName": _account(driver),
    }
    return {
        "runtimeVersions": {"sparkVersion": SPARK_VERSION},
        "deploymentMode": "ClusterMode",
        "pyFiles": MAIN,
        "driverArgs": table.arguments(TABLE_PORT),
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
        "arguments": table.arguments(TABLE_PORT),
        "sparkConf": _conf(pipeline, driver),
        "restartPolicy": {"type": "Always"},
        "driver": {
            "memory": _memory(asked.driver_memory),
            "serviceAccount": _account(driver),
            "template": driver,
        },
        "executor": {
            "instances": asked.executors.instances,
            "cores": asked.executors.cores,
            "memory": _memory(asked.executors.memory),
            "serviceAccount": _account(driver),
            "template": workers,
        },
    }


def _conf(pipeline: LogPipeline, driver: Manifest) -> dict[str, str]:
    """Return what both operators tell Spark. It sets the policy of pulls itself, whatever stands in
    templates.
    """
    pull = driver["spec"]["containers"][0].get("imagePullPolicy")
    return {
        # Executors have no claims, which the driver else looks for, without a right to.
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        # In the order of arrival, many small batches gain nothing from a page.
        "spark.ui.enabled": "false",
        **given({"spark.kubernetes.container.image.pullPolicy": pull}),
    }


def _image(template: Mapping[str, Manifest]) -> str:
    return str(template["spec"]["containers"][0]["image"])


def _account(template: Mapping[str, Manifest]) -> str:
    return str(template["spec"]["serviceAccountName"])


def _memory(size_bytes: int) -> str:
    return f"{size_bytes // MIB}m"
