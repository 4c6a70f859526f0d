"""What the image runs: our own program; or a driver or an executor, when it is Spark that starts a
pod of it. Spark says so with the first argument, and what else there is to know by environment.
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
# What the backend wants to be told, by the variable in which Spark's scheduler says it.
_TOLD = (
    ("--driver-url", "SPARK_DRIVER_URL"),
    ("--executor-id", "SPARK_EXECUTOR_ID"),
    ("--cores", "SPARK_EXECUTOR_CORES"),
    ("--app-id", "SPARK_APPLICATION_ID"),
    ("--hostname", "SPARK_EXECUTOR_POD_IP"),
    ("--resourceProfileId", "SPARK_RESOURCE_PROFILE_ID"),
    ("--podName", "SPARK_EXECUTOR_POD_NAME"),
)


def command(arguments: Sequence[str], environment: Mapping[str, str], home: Path) -> list[str]:
    """Return what is to be run for *arguments*; *home* is where Spark is.

    Raises:
        KeyError: the scheduler of Spark did not say all that an executor needs.
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
        *(word for option, name in _TOLD for word in (option, environment[name])),
    ]  # fmt: skip


def _class_path(environment: Mapping[str, str], home: Path) -> str:
    # Settings of the driver's come as a ConfigMap in this folder.
    parts = [environment.get("SPARK_CONF_DIR"), environment.get("SPARK_CLASSPATH")]
    return os.pathsep.join([*(part for part in parts if part), str(home / "jars" / "*")])


def main() -> None:
    """Become the program that is asked for."""
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home)}
    found = command(sys.argv[1:], environment, home)
    os.execvpe(found[0], found, environment)


if __name__ == "__main__":
    main()
