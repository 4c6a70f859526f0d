"""Spark's options for a driver in a pod that asks Kubernetes for executors in pods.

The operator describes the driver's pod in environment variables; a user who runs the driver by hand
can set them as well.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from logpipeline.quantity import parse_bytes
from logpipeline.spec.api import GROUP
from logpipeline.spec.table import Executors
from logpipeline_spark.errors import Refused

MIB = 2**20
MASTER = "LOGPIPELINE_SPARK_MASTER"
# Something else, such as an operator for Spark, has chosen master and memory already.
SUBMITTED = "LOGPIPELINE_SPARK_SUBMITTED"
DRIVER_PORT = 7078
BLOCKS_PORT = 7079
# The driver's pod of an executor; its name stays when the container starts again.
DRIVER_LABEL = f"{GROUP}/spark-driver"
_NEEDED = {
    "namespace": "LOGPIPELINE_SPARK_NAMESPACE",
    "image": "LOGPIPELINE_SPARK_IMAGE",
    "account": "LOGPIPELINE_SPARK_SERVICE_ACCOUNT",
    "driver_pod": "POD_NAME",
    "driver_host": "LOGPIPELINE_SPARK_DRIVER_HOST",
    "template": "LOGPIPELINE_SPARK_EXECUTOR_TEMPLATE",
}
# Memory beside the JVM's heap: Java's own needs, and a Python process for each concurrent task that
# reads, sorts and writes.
JVM_OVERHEAD_BYTES = 384 * MIB
TASK_OVERHEAD_BYTES = 768 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a driver in Kubernetes, and the parts of its executors."""

    master: str
    namespace: str
    image: str
    account: str
    driver_pod: str
    driver_host: str
    template: str


def place_of(environment: Mapping[str, str]) -> Place | None:
    """Return the driver's place as *environment* describes it; None if it runs in no pod.

    Raises:
        Refused: only a part of it is set.
    """
    master = environment.get(MASTER, "")
    if not master.startswith("k8s://"):
        return None
    if lacking := [name for name in _NEEDED.values() if not environment.get(name)]:
        raise Refused(f"{MASTER} is {master}, but {', '.join(lacking)} is not set: set it too")
    return Place(master=master, **{field: environment[name] for field, name in _NEEDED.items()})


def options(place: Place, executors: Executors) -> dict[str, str]:
    """Return Spark's options for *executors* in pods."""
    kubernetes, cores = "spark.kubernetes", str(executors.cores)
    asked = executors.resources or {}
    requests, limits = asked.get("requests") or {}, asked.get("limits") or {}
    found = {
        "spark.executor.instances": str(executors.instances),
        "spark.executor.cores": cores,
        "spark.executor.memory": f"{executors.memory // MIB}m",
        "spark.executor.memoryOverhead": f"{_overhead(executors, limits) // MIB}m",
        f"{kubernetes}.executor.request.cores": str(requests.get("cpu", cores)),
        f"{kubernetes}.namespace": place.namespace,
        f"{kubernetes}.container.image": place.image,
        f"{kubernetes}.driver.pod.name": place.driver_pod,
        f"{kubernetes}.authenticate.executor.serviceAccountName": place.account,
        f"{kubernetes}.executor.podTemplateFile": place.template,
        f"{kubernetes}.executor.label.{DRIVER_LABEL}": place.driver_pod,
        # A driver that starts again in its pod must not use the names of earlier executors, which
        # still exist.
        f"{kubernetes}.executor.podNamePrefix": f"{place.driver_pod}-{secrets.token_hex(3)}",
        f"{kubernetes}.executor.deleteOnTermination": "true",
        # Executors use the driver's host name; else Spark would give them the address that it binds
        # to.
        f"{kubernetes}.executor.useDriverPodIP": "false",
        "spark.driver.host": place.driver_host,
        # Spark makes no volume claims and Services here, and may not list them.
        f"{kubernetes}.driver.service.deleteOnTermination": "false",
        f"{kubernetes}.driver.ownPersistentVolumeClaim": "false",
        f"{kubernetes}.driver.reusePersistentVolumeClaim": "false",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.driver.port": str(DRIVER_PORT),
        "spark.blockManager.port": str(BLOCKS_PORT),
        # A batch runs on the executors that are there; without any it waits.
        "spark.scheduler.minRegisteredResourcesRatio": "0",
    }
    if "cpu" in limits:
        found[f"{kubernetes}.executor.limit.cores"] = str(limits["cpu"])
    return found


def _overhead(executors: Executors, limits: Mapping[str, object]) -> int:
    if "memory" in limits:
        return max(JVM_OVERHEAD_BYTES, parse_bytes(str(limits["memory"])) - executors.memory)
    return JVM_OVERHEAD_BYTES + executors.cores * TASK_OVERHEAD_BYTES


def sweep(spark: SparkSession, place: Place) -> None:
    """Delete the executors of an earlier driver in this pod that was killed: they ended with it,
    and Kubernetes keeps them as long as the pod lives.
    """
    jvm: Any = spark.sparkContext._jvm
    labels = jvm.java.util.HashMap()
    labels.put(DRIVER_LABEL, place.driver_pod)
    with closing(jvm.io.fabric8.kubernetes.client.KubernetesClientBuilder().build()) as client:
        former = client.pods().inNamespace(place.namespace).withLabels(labels)
        former.withoutLabel("spark-app-selector", spark.sparkContext.applicationId).delete()


def is_submitted() -> bool:
    """Return whether spark-submit started this driver, and chose where Spark runs."""
    return bool(os.environ.get(SUBMITTED))


def here() -> Place | None:
    """Return the place of this process.

    Raises:
        Refused: only a part of it is set.
    """
    return place_of(os.environ)
