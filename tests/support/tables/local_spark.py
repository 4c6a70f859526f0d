"""One small Spark of this machine for all tests of a run: starting a JVM costs seconds."""

from __future__ import annotations

import atexit
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_versions import session_settings

# A bound of what hangs: beside other tests each batch may take ten seconds.
ENDS_WITHIN_S = 200


@cache
def local_spark() -> SparkSession:
    """Return the session, started with the first call; it ends with the process, and no test may
    stop it: in one process there is one, whoever asks for it.
    """
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in session_settings().items():
        builder = builder.config(name, value)
    builder = builder.config("spark.sql.warehouse.dir", str(_folder() / "warehouse"))
    builder = builder.config("spark.local.dir", str(_folder() / "scratch"))
    return builder.config("spark.sql.streaming.stopTimeout", "30s").getOrCreate()


@cache
def _folder() -> Path:
    """Return a folder of this process, which is removed at its end."""
    folder = Path(mkdtemp(prefix="spark-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def read(options: dict[str, str]) -> DataFrame:
    """Return what is there now as a table."""
    return local_spark().read.format("jetstream").options(**options).load()


def run_available(options: dict[str, str], folder: Path) -> StreamingQuery:
    """Append to the Parquet files in *folder* what is there now and was not read before; return
    the query, which has ended.
    """
    query = start(options, folder, availableNow=True)
    assert query.awaitTermination(ENDS_WITHIN_S)
    return query


def start(options: dict[str, str], folder: Path, **trigger: Any) -> StreamingQuery:
    """Start a query that appends to the Parquet files in *folder*."""
    frame = local_spark().readStream.format("jetstream").options(**options).load()
    writer = frame.writeStream.format("parquet").option("path", str(folder / "table"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()


def lines_in(folder: Path) -> list[str]:
    """Return the lines that Spark finds in *folder*, sorted."""
    if not (folder / "table").exists():
        return []
    frame = local_spark().read.schema("line string").parquet(str(folder / "table"))
    return sorted(row.line for row in frame.collect())
