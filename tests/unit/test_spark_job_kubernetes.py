"""What Spark is told so that executors run in pods, and what the image runs in a pod of Spark's."""

from __future__ import annotations

from pathlib import Path

import pytest

from logpipeline.spec.table import Executors
from logpipeline_spark.errors import Refused
from logpipeline_spark.job import entrypoint, kubernetes

GIB = 2**30
ENVIRONMENT = {
    "LOGPIPELINE_SPARK_MASTER": "k8s://https://kubernetes.default.svc",
    "LOGPIPELINE_SPARK_NAMESPACE": "logs",
    "LOGPIPELINE_SPARK_IMAGE": "table:1",
    "LOGPIPELINE_SPARK_SERVICE_ACCOUNT": "main-table-executor",
    "LOGPIPELINE_SPARK_DRIVER_HOST": "main-table-0.main-table.logs.svc",
    "LOGPIPELINE_SPARK_EXECUTOR_TEMPLATE": "/etc/logpipeline/executor.yaml",
    "POD_NAME": "main-table-0",
}
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@main:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
    "SPARK_EXECUTOR_POD_NAME": "main-table-0-exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_JAVA_OPT_10": "-Dten=10",
    "SPARK_JAVA_OPT_2": "-Dtwo=2",
    "SPARK_CONF_DIR": "/opt/spark/conf",
}
HOME = Path("/spark")


def test_executors_are_pods_of_the_drivers_namespace_image_and_account() -> None:
    """The scheduler is told all that it needs to make pods that belong to the driver's."""
    place = kubernetes.place_of(ENVIRONMENT)

    assert place is not None
    found = kubernetes.options(place, Executors(instances=3, cores=2, memory=2 * GIB))
    assert (
        found.items()
        >= {
            "spark.executor.instances": "3",
            "spark.executor.cores": "2",
            "spark.executor.memory": "2048m",
            "spark.kubernetes.namespace": "logs",
            "spark.kubernetes.container.image": "table:1",
            "spark.kubernetes.driver.pod.name": "main-table-0",
            "spark.kubernetes.authenticate.executor.serviceAccountName": "main-table-executor",
            "spark.kubernetes.executor.podTemplateFile": "/etc/logpipeline/executor.yaml",
            "spark.driver.host": "main-table-0.main-table.logs.svc",
        }.items()
    )


def test_each_task_of_an_executor_has_memory_for_its_python() -> None:
    """What is beside the JVM grows with the tasks that run at once."""
    place = kubernetes.place_of(ENVIRONMENT)
    assert place is not None

    one, four = (
        kubernetes.options(place, Executors(instances=1, cores=cores))[
            "spark.executor.memoryOverhead"
        ]
        for cores in (1, 4)
    )

    assert (one, four) == ("1152m", "3456m")


def test_a_users_limits_of_an_executor_are_its_pods_limits() -> None:
    """A limit of memory is the JVM's and what is beside it, together."""
    place = kubernetes.place_of(ENVIRONMENT)
    assert place is not None
    resources = {"requests": {"cpu": "500m"}, "limits": {"cpu": "2", "memory": "3Gi"}}

    found = kubernetes.options(place, Executors(instances=1, memory=GIB, resources=resources))

    assert found["spark.executor.memoryOverhead"] == "2048m"
    assert found["spark.kubernetes.executor.request.cores"] == "500m"
    assert found["spark.kubernetes.executor.limit.cores"] == "2"


def test_without_a_master_in_kubernetes_all_is_done_here() -> None:
    """The same program on one machine asks nobody for pods."""
    assert kubernetes.place_of({}) is None
    assert kubernetes.place_of({"LOGPIPELINE_SPARK_MASTER": "local[4]"}) is None


@pytest.mark.parametrize("name", sorted(ENVIRONMENT.keys() - {kubernetes.MASTER}))
def test_a_place_that_is_said_in_part_is_refused(name: str) -> None:
    """The sentence names what is not said."""
    with pytest.raises(Refused, match=f"{name} is not set"):
        kubernetes.place_of({key: value for key, value in ENVIRONMENT.items() if key != name})


def test_an_executors_pod_becomes_the_backend_of_its_scheduler() -> None:
    """Options of Java keep the order in which the scheduler numbered them."""
    found = entrypoint.command(["executor"], EXECUTOR, HOME)

    assert found[:5] == ["java", "-Dtwo=2", "-Dten=10", "-Xms1024m", "-Xmx1024m"]
    assert found[5:8] == ["-cp", "/opt/spark/conf:/spark/jars/*", entrypoint.BACKEND]
    said = dict(zip(found[8::2], found[9::2], strict=True))
    assert said["--driver-url"] == EXECUTOR["SPARK_DRIVER_URL"]
    assert said["--podName"] == "main-table-0-exec-3"
    assert len(said) == 7


def test_a_drivers_pod_submits_what_it_was_given_in_its_own_process() -> None:
    """An operator for Spark makes the driver's pod, and the driver runs there."""
    environment = {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.8"}
    words = ["driver", "--class", "org.apache.spark.deploy.PythonRunner", "local:///run.py"]

    found = entrypoint.command(words, environment, HOME)

    assert found[0] == "/spark/bin/spark-submit"
    assert found[1:5] == ["--conf", "spark.driver.bindAddress=10.0.0.8", "--deploy-mode", "client"]
    assert found[5:] == words[1:]


def test_anything_else_is_our_own_program() -> None:
    """The operator's pods run the image as all others."""
    found = entrypoint.command(["table", "run", "-f", "x"], {}, HOME)

    assert Path(found[0]).name == "logpipeline"
    assert found[1:] == ["table", "run", "-f", "x"]
