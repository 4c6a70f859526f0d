"""A Spark session as tables need it: times in UTC, quiet, and small where it may be."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from logpipeline_spark.errors import Refused
from logpipeline_spark.needs import missing

MIB = 2**20
# A worker that was killed, for memory say, fails its task: on one machine Spark would give up with
# the first one.
TASK_TRIES = 4
# Python does the work: what a JVM spends on compiling its own code to the last is never earned.
JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
WORKERS = "logpipeline_spark.running.workers"
# In the image it lies at the same path for the driver and for executors.
LOG4J = Path(__file__).with_name("log4j2.properties")


def session(
    name: str,
    *,
    folder: Path,
    master: str | None = "local[*]",
    memory_bytes: int = 2**30,
    more: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a running Spark, whose files are in *folder*, with *more* of its options; without a
    *master* it is the one that this process was submitted to.

    Raises:
        Refused: there is no Java.
    """
    if sentence := missing():
        raise Refused(sentence)
    folder.mkdir(parents=True, exist_ok=True)
    log4j = f"-Dlog4j2.configurationFile={LOG4J.as_uri()}"
    # The workers that read are those of this very environment.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    is_here = master is not None and master.startswith("local")
    if is_here:
        # A machine whose name leads to no address has a Spark as well.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    options = {
        "spark.driver.memory": f"{memory_bytes // MIB}m",
        "spark.driver.extraJavaOptions": f"{log4j} {JAVA}",
        "spark.executor.extraJavaOptions": f"{log4j} {JAVA}",
        "spark.python.daemon.module": WORKERS,
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # One machine's own Spark is nobody else's business.
        **({"spark.driver.host": "127.0.0.1"} if is_here else {}),
        **(more or {}),
    }
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(_patient(master))
    for option, value in options.items():
        builder = builder.config(option, value)
    return builder.getOrCreate()


def _patient(master: str) -> str:
    """Return *master*, and that a task is tried again where it is this machine's."""
    found = re.fullmatch(r"local\[([^],]+)\]", master)
    return f"local[{found[1]},{TASK_TRIES}]" if found else master
