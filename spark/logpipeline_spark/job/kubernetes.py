"""A driver in a pod, and executors in pods that it asks Kubernetes for: what Spark is told of it.

The operator says where we are by the environment; who runs the driver by hand can say it as well.
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
# Somebody else, an operator for Spark say, has chosen master and memory already.
SUBMITTED = "LOGPIPELINE_SPARK_SUBMITTED"
DRIVER_PORT = 7078
BLOCKS_PORT = 7079
# Whose executor a pod is: the name of a driver's pod, which stays when its container is new.
DRIVER_LABEL = f"{GROUP}/spark-driver"
_NEEDED = {
    "namespace": "LOGPIPELINE_SPARK_NAMESPACE",
    "image": "LOGPIPELINE_SPARK_IMAGE",
    "account": "LOGPIPELINE_SPARK_SERVICE_ACCOUNT",
    "driver_pod": "POD_NAME",
    "driver_host": "LOGPIPELINE_SPARK_DRIVER_HOST",
    "template": "LOGPIPELINE_SPARK_EXECUTOR_TEMPLATE",
}
# Beside the JVM's memory: what Java needs itself, and a Python that reads, sorts and writes for
# each task at once.
JVM_OVERHEAD_BYTES = 384 * MIB
TASK_OVERHEAD_BYTES = 768 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a driver is in Kubernetes, and what its executors are made of."""

    master: str
    namespace: str
    image: str
    account: str
    driver_pod: str
    driver_host: str
    template: str


def place_of(environment: Mapping[str, str]) -> Place | None:
    """Return where the driver is, as *environment* says it; None where it is nobody's pod.

    Raises:
        Refused: only a part of it is said.
    """
    master = environment.get(MASTER, "")
    if not master.startswith("k8s://"):
        return None
    if lacking := [name for name in _NEEDED.values() if not environment.get(name)]:
        raise Refused(f"{MASTER} is {master}, but {', '.join(lacking)} is not set: set it as well")
    return Place(master=master, **{field: environment[name] for field, name in _NEEDED.items()})


def options(place: Place, executors: Executors) -> dict[str, str]:
    """Return what Spark is told so that *executors* run in pods."""
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
        # One that is started again in its pod may not use names of before: they are still there.
        f"{kubernetes}.executor.podNamePrefix": f"{place.driver_pod}-{secrets.token_hex(3)}",
        f"{kubernetes}.executor.deleteOnTermination": "true",
        # By its name, and not by the address that it binds to, which Spark would else hand out.
        f"{kubernetes}.executor.useDriverPodIP": "false",
        "spark.driver.host": place.driver_host,
        # There are neither claims nor Services of Spark's own, nor a right to look for some.
        f"{kubernetes}.driver.service.deleteOnTermination": "false",
        f"{kubernetes}.driver.ownPersistentVolumeClaim": "false",
        f"{kubernetes}.driver.reusePersistentVolumeClaim": "false",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.driver.port": str(DRIVER_PORT),
        "spark.blockManager.port": str(BLOCKS_PORT),
        # A batch is done by who is there; without anybody it waits.
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
    """Delete the executors of a driver that was killed in this pod: they ended when it did, and
    nobody else takes them away for as long as the pod lives.
    """
    jvm: Any = spark.sparkContext._jvm
    labels = jvm.java.util.HashMap()
    labels.put(DRIVER_LABEL, place.driver_pod)
    with closing(jvm.io.fabric8.kubernetes.client.KubernetesClientBuilder().build()) as client:
        former = client.pods().inNamespace(place.namespace).withLabels(labels)
        former.withoutLabel("spark-app-selector", spark.sparkContext.applicationId).delete()


def is_submitted() -> bool:
    """Return whether this driver was started by spark-submit, which says where Spark runs."""
    return bool(os.environ.get(SUBMITTED))


def here() -> Place | None:
    """Return where we are.

    Raises:
        Refused: only a part of it is said.
    """
    return place_of(os.environ)
