"""Spark reads its own table by name: Delta's library knows the log that was kept without it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from logpipeline_spark.table.storage import LocalStorage
from logpipeline_spark.table.upkeep import Limits
from spark_versions import need_jars
from tables.jobs import Table
from tables.local_spark import local_spark
from tables.made import BEGIN, Key, batch, counted_batch, keys, opened, upkeep
from tables.streams import running_streams

OVER = BEGIN + timedelta(days=1)


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    need_jars("delta")
    return local_spark()


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "table")


def keys_of(spark: SparkSession, storage: LocalStorage, where: str = "true") -> list[Key]:
    """Read the table as somebody does who knows only Delta."""
    found = spark.read.format("delta").load(f"{storage.url}/lines").where(where)
    return sorted(
        tuple(row) for row in found.select("stream", "incarnation", "seq", "idx").collect()
    )


def test_spark_reads_the_log(spark: SparkSession, storage: LocalStorage) -> None:
    """After batches, compaction and retention; what folders and times say is known to it."""
    table, keeper = opened(storage), upkeep(storage)
    batch(table, storage, "0", 1, 40)
    batch(table, storage, "1", 41, 150)
    assert keys_of(spark, storage) == keys(1, 150)
    assert keys_of(spark, storage, "dt = '2026-11-21' and hour = '11'") == keys(61, 120)
    assert keys_of(spark, storage, "ts >= '2026-11-21 12:00:00'") == keys(121, 150)

    keeper.compact(OVER)
    assert keys_of(spark, storage) == keys(1, 150)
    keeper.retain(BEGIN + timedelta(hours=2), Limits(age=timedelta(hours=1)))
    keeper.clean(OVER)

    assert keys_of(spark, storage) == keys(61, 150)


def test_a_table_has_a_name_and_a_past(spark: SparkSession, storage: LocalStorage) -> None:
    """`spark.table` reads it, its history tells of each batch, and former versions are there."""
    table = opened(storage)
    counted_batch(table, storage, 1, 40)
    counted_batch(table, storage, 41, 60)
    upkeep(storage).compact(OVER)
    spark.sql(f"CREATE TABLE named USING delta LOCATION 'file:{storage.url}/lines'")
    spark.sql(f"CREATE TABLE minutes USING delta LOCATION 'file:{storage.url}/rollup/minute'")
    try:
        assert spark.table("named").count() == 120
        assert spark.sql("SELECT sum(lines) FROM minutes").collect()[0][0] == 120
        history = spark.sql("DESCRIBE HISTORY named").collect()
        assert {row.operation for row in history} == {"CREATE TABLE", "WRITE", "OPTIMIZE"}
        assert spark.sql("SELECT count(*) FROM named VERSION AS OF 2").collect()[0][0] == 80
    finally:
        spark.sql("DROP TABLE named")
        spark.sql("DROP TABLE minutes")


def test_what_the_job_keeps_is_a_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    """Over runs each line is there once."""
    with running_streams(tmp_path / "nats") as streams:
        table = Table(streams, tmp_path / "table")
        for text in ("one", "two", "three"):
            streams.send("node-b", text)
            table.keep(spark)
        found = spark.read.format("delta").load(f"{table.settings.path}/lines")

        assert sorted(row.line for row in found.collect()) == ["one", "three", "two"]
