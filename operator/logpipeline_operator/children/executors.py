"""The pods of Spark's executors: Spark makes them from a template that it finds beside the driver's
configuration, and adds what it needs.
"""

from __future__ import annotations

from dataclasses import replace

import yaml

from logpipeline.spec import LogPipeline
from logpipeline_operator.children import config, names, nats_auth, pods, table
from logpipeline_operator.children.model import (
    SPARK_BLOCKS_PORT,
    ChildSettings,
    Component,
    Manifest,
)

FILE = "executor.yaml"
# What one did not finish, another does.
GRACE_S = 10


def has_executors(pipeline: LogPipeline) -> bool:
    """Return whether the table's pod is a driver that makes pods for its executors."""
    table = pipeline.spec.table
    return bool(table.enabled) and table.runner != "embedded" and table.executors.instances > 0


def is_native(pipeline: LogPipeline) -> bool:
    """Return whether that driver is our own pod, and not another operator's."""
    return has_executors(pipeline) and pipeline.spec.table.runner == "native"


def template(pipeline: LogPipeline, settings: ChildSettings) -> Manifest:
    """Return the template of executors: they see configuration, credentials and table where the
    driver does. Image, processors and memory are Spark's business, by what it is told.

    Raises:
        NoImage: neither the resource nor the operator names one.
    """
    options = pipeline.spec.table
    mounted = config.volume(pipeline, names.table(pipeline), nats_auth.TABLE)
    plan = pods.Pods(
        component=Component.EXECUTOR,
        field="spec.table.image",
        options=replace(options, resources=options.executors.resources),
        container=_container(pipeline),
        volumes=[mounted, table.SCRATCH_VOLUME, *table.volumes(pipeline)],
        security=pods.RESTRICTED_POD,
        # A bucket may know us by our account. Its right to make pods is the driver's: no token
        # comes with it here.
        service_account=names.table(pipeline),
        resources={},
        grace_s=GRACE_S,
        config_hash=config.hash_of(mounted),
        is_spread=True,
    )
    return pods.template(pipeline, plan, settings)


def render(pipeline: LogPipeline, settings: ChildSettings) -> str:
    """Return the template as the file that Spark reads."""
    pod = {"apiVersion": "v1", "kind": "Pod", **template(pipeline, settings)}
    return yaml.safe_dump(pod, sort_keys=True, allow_unicode=True, width=100)


def _container(pipeline: LogPipeline) -> pods.Container:
    return pods.Container(
        args=[],
        env=table.environment(pipeline),
        ports=[{"name": "blocks", "containerPort": SPARK_BLOCKS_PORT}],
        mounts=table.mounts(pipeline),
        probes={},
        security=pods.RESTRICTED_CONTAINER,
    )
