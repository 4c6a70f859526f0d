"""The Spark that runs a job's tasks. It starts when there are tasks and ends after a long time
without any, so that a table without new lines costs next to nothing.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from logpipeline_spark.errors import Refused, sentence_of
from logpipeline_spark.job import task
from logpipeline_spark.job.task import Done, Task, Work
from logpipeline_spark.requirements import missing

MIB = 2**20
# A worker that is killed (for memory, say) fails its task. On one machine Spark would give up at
# the first failure.
TASK_TRIES = 4
# Python does the work. The JVM runs too little code for its optimizing compiler to pay off.
JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
WORKERS = "logpipeline_spark.job.worker_daemon"
# In the image it lies at the same path for the driver and for executors.
LOG4J = Path(__file__).with_name("log4j2.properties")

log = logging.getLogger(__name__)

# A start takes some five seconds of CPU: with a line now and then, that is less than one percent.
REST_AFTER_S = 600.0
# A JVM that does not end within this time is killed.
JVM_ENDS_WITHIN_S = 30.0


def session(
    name: str,
    *,
    folder: Path,
    master: str | None = "local[*]",
    memory_bytes: int = 2**30,
    more: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a running Spark that keeps its files in *folder*, with *more* of its options. Without
    a *master* it is the one to which this process was submitted.

    Raises:
        Refused: there is no Java.
    """
    if sentence := missing():
        raise Refused(sentence)
    folder.mkdir(parents=True, exist_ok=True)
    log4j = f"-Dlog4j2.configurationFile={LOG4J.as_uri()}"
    # Workers use the Python environment of this process.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    is_here = master is not None and master.startswith("local")
    if is_here:
        # The machine's host name may have no address.
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
        # A Spark for this machine alone does not listen on the network.
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
    """Return *master* with a number of tries for each task, where Spark runs on this machine."""
    found = re.fullmatch(r"local\[([^],]+)\]", master)
    return f"local[{found[1]},{TASK_TRIES}]" if found else master


class Engine:
    """Runs tasks on a Spark that *start* starts. If it *rests*, it ends Spark after `REST_AFTER_S`
    without tasks and starts it again with the next task; else Spark runs as long as the job.
    """

    def __init__(self, start: Callable[[], SparkSession], *, rests: bool = False) -> None:
        self._start = start
        self._rests = rests
        self._spark: SparkSession | None = None
        self._used_s = 0.0

    def begin(self) -> None:
        """Check that tasks can run here.

        Raises:
            Refused: there is no Java, or Spark cannot be started.
        """
        if not self._rests:
            self._started()
        elif sentence := missing():
            raise Refused(sentence)

    @property
    def parallelism(self) -> int:
        """The number of tasks that run at once.

        Raises:
            Refused: Spark cannot be started.
        """
        return self._started().sparkContext.defaultParallelism

    def run(self, work: Work, tasks: Sequence[Task]) -> list[Done]:
        """Return the results of *tasks*, in any order; Spark repeats those whose executor died.

        Raises:
            Refused: a task failed, or Spark cannot be started.
        """
        if not tasks:
            return []
        ranges = self._started().sparkContext.parallelize(tasks, len(tasks))
        try:
            return list(ranges.map(partial(_done, work)).collect())
        except (Py4JError, PySparkException) as error:
            # The text is a trace of hundreds of lines, of use only to find a defect of logpipeline.
            log.debug("tasks failed", exc_info=error)
            raise Refused(sentence_of(error)) from None
        finally:
            self._used_s = time.monotonic()

    def rest(self) -> None:
        """End a Spark without tasks for long, if this engine rests."""
        is_idle = time.monotonic() - self._used_s >= REST_AFTER_S
        if self._rests and self._spark is not None and is_idle:
            log.info("no new lines: Spark ends, and starts again with the next ones")
            self.end()

    def end(self) -> None:
        """End Spark, if it runs, and the JVM that it started."""
        spark, self._spark = self._spark, None
        if spark is not None:
            _end_jvm(spark)

    def _started(self) -> SparkSession:
        if self._spark is None:
            try:
                self._spark = self._start()
            except PySparkException as error:
                log.debug("Spark did not start", exc_info=error)
                raise Refused(
                    f"Spark could not be started: {sentence_of(error)}. The messages of Java are "
                    "in this job's log."
                ) from None
            self._used_s = time.monotonic()
        return self._spark


def _done(work: Work, each: Task) -> Done:
    """Run a task in an executor's Python process."""
    context = TaskContext.get()
    assert context is not None, "only Spark's tasks come here"
    return task.run(work, each, context.attemptNumber())


def _end_jvm(spark: SparkSession) -> None:
    # PySpark itself keeps a JVM until the process ends.
    gateway = SparkContext._gateway
    spark.stop()
    process = gateway.proc if gateway is not None else None
    # A JVM that spark-submit started ends with this process.
    if gateway is None or process is None:
        return
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    # The JVM ends when its standard input is closed.
    process.stdin.close()
    try:
        process.wait(JVM_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
