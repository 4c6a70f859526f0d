"""The classes that a starting Spark loads, kept as Java maps them into memory: the many short jobs
of tests start with a third less CPU time. The file lies in the virtual environment, whose libraries
it is made of; where it is lacking or does not fit, Java loads classes as ever.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark import SparkContext

from logpipeline_spark.job.spark import JAVA, session

KEPT = Path(sys.prefix) / "spark-classes.jsa"
# Read by each Java that is started.
VARIABLE = "JDK_JAVA_OPTIONS"
WRITTEN_WITHIN_S = 300


def options() -> str:
    """Return the options that make a Java use what is kept; it says nothing where that does not
    fit.
    """
    return f"-XX:SharedArchiveFile={KEPT} -Xlog:disable" if KEPT.exists() else ""


def keep() -> None:
    """Start a Spark as a job does, have it do a task, and keep what it loaded."""
    new = KEPT.with_suffix(f".{os.getpid()}")
    java = {"spark.driver.extraJavaOptions": f"{JAVA} -XX:ArchiveClassesAtExit={new} -Xlog:disable"}
    with TemporaryDirectory() as folder:
        spark = session("classes", folder=Path(folder), master="local[2]", more=java)
        assert spark.sparkContext.parallelize([1, 2], 2).map(str).collect() == ["1", "2"]
        gateway = SparkContext._gateway
        assert gateway is not None
        spark.stop()
        gateway.shutdown()
        # Java ends with its standard input, and writes what it loaded before it does.
        gateway.proc.stdin.close()
        gateway.proc.wait(WRITTEN_WITHIN_S)
    new.replace(KEPT)
