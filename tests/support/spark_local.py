"""One small Spark of this machine for all tests of a run: starting a JVM costs seconds."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_versions import session_settings

ENDS_WITHIN_S = 60


@cache
def local_spark() -> SparkSession:
    """Return the session, started with the first call; it ends with the process."""
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in session_settings().items():
        builder = builder.config(name, value)
    return builder.config("spark.sql.streaming.stopTimeout", "30s").getOrCreate()


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
