"""The entry point of the image. It runs `logpipeline`, or a Spark driver or executor if Spark
starts the pod. Spark says which in the first argument, and passes the rest in environment
variables.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")
# The arguments of the executor's backend, by the variables in which Spark's scheduler passes them.
_ARGUMENTS = (
    ("--driver-url", "SPARK_DRIVER_URL"),
    ("--executor-id", "SPARK_EXECUTOR_ID"),
    ("--cores", "SPARK_EXECUTOR_CORES"),
    ("--app-id", "SPARK_APPLICATION_ID"),
    ("--hostname", "SPARK_EXECUTOR_POD_IP"),
    ("--resourceProfileId", "SPARK_RESOURCE_PROFILE_ID"),
    ("--podName", "SPARK_EXECUTOR_POD_NAME"),
)


def command(arguments: Sequence[str], environment: Mapping[str, str], home: Path) -> list[str]:
    """Return the command to run for *arguments*; *home* is Spark's folder.

    Raises:
        KeyError: Spark's scheduler did not set a variable that an executor needs.
    """
    match list(arguments):
        case ["executor", *_]:
            return _executor(environment, home)
        case ["driver", *rest]:
            address = environment["SPARK_DRIVER_BIND_ADDRESS"]
            return [
                str(home / "bin" / "spark-submit"),
                "--conf", f"spark.driver.bindAddress={address}",
                "--deploy-mode", "client",
                *rest,
            ]  # fmt: skip
        case rest:
            return [str(Path(sys.executable).with_name("logpipeline")), *rest]


def _executor(environment: Mapping[str, str], home: Path) -> list[str]:
    options = {
        int(found[1]): value
        for name, value in environment.items()
        if (found := _OPTION.fullmatch(name))
    }
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    return [
        f"{environment['JAVA_HOME']}/bin/java" if environment.get("JAVA_HOME") else "java",
        *(value for _, value in sorted(options.items())),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp", _class_path(environment, home),
        BACKEND,
        *(word for option, name in _ARGUMENTS for word in (option, environment[name])),
    ]  # fmt: skip


def _class_path(environment: Mapping[str, str], home: Path) -> str:
    # The driver's settings come as a ConfigMap in this folder.
    parts = [environment.get("SPARK_CONF_DIR"), environment.get("SPARK_CLASSPATH")]
    return os.pathsep.join([*(part for part in parts if part), str(home / "jars" / "*")])


def main() -> None:
    """Replace this process by the requested program."""
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home)}
    found = command(sys.argv[1:], environment, home)
    os.execvpe(found[0], found, environment)


if __name__ == "__main__":
    main()
