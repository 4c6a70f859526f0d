"""A client of Spark Connect, in a process of its own: one has either this or a Spark of its own.

Words: the server's address, the options of the data source as JSON, and a folder for a checkpoint.
It prints what it found as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from logpipeline_spark.errors import sentence_of

COLUMNS = ("stream", "seq", "idx", "host", "line")
ENDS_WITHIN_S = 200
FOUND = "found"


def main(address: str, options: dict[str, str], checkpoint: str) -> dict[str, Any]:
    """Read the streams as a table and as a stream, and make a mistake."""
    spark = SparkSession.builder.remote(address).getOrCreate()
    try:
        read = spark.read.format("jetstream")
        table = read.options(**options).load().select(*COLUMNS).orderBy("stream", "seq", "idx")
        return {
            "table": [list(row) for row in table.collect()],
            "stream": _streamed(spark, options, checkpoint),
            "mistake": _mistake(read.options(**options, strem="LOGS").load()),
        }
    finally:
        spark.stop()


def _streamed(spark: SparkSession, options: dict[str, str], checkpoint: str) -> list[list[Any]]:
    """Return what `foreachBatch`, which runs beside the server, found."""

    def keep(frame: DataFrame, batch: int) -> None:
        frame.select(*COLUMNS).write.mode("append").parquet(f"{checkpoint}/{FOUND}")

    read = spark.readStream.format("jetstream").option("startingOffsets", "earliest")
    query = (
        read.options(**options)
        .load()
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", f"{checkpoint}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(ENDS_WITHIN_S)
    found = spark.read.parquet(f"{checkpoint}/{FOUND}").orderBy("stream", "seq", "idx")
    return [list(row) for row in found.collect()]


def _mistake(frame: DataFrame) -> str:
    try:
        frame.count()
    except PySparkException as error:
        return sentence_of(error)
    return ""


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3])))
