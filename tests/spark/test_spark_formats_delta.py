"""What is committed is what Delta's library reads, through compaction, retention and crashes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from logpipeline_spark.errors import Refused
from logpipeline_spark.formats.delta import Delta
from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.table.commit import Range
from logpipeline_spark.table.compact import Sizes, due
from logpipeline_spark.table.local import LocalStorage
from logpipeline_spark.table.names import FileName
from logpipeline_spark.table.reading import files, tables
from logpipeline_spark.table.retain import Limits
from logpipeline_spark.table.table import Table
from logpipeline_spark.table.write import write_range
from spark_jobs import Archive
from spark_local import local_spark
from spark_streams import running_streams
from spark_versions import IS_42, need_jars
from tables_made import BEGIN, LIFE, OWNER, STREAM, Key, batch, keys, lines, opened

Test = TypeVar("Test", bound=Callable[..., None])
OVER = BEGIN + timedelta(days=1)


def needs_42(test: Test) -> Test:
    """Run *test* where Delta is; another run of the same tests has the other Spark."""
    reason = "Delta's library is there for Spark 4.2 alone"
    pytest.mark.skipif(not IS_42, reason=reason)(test)
    pytest.mark.optional_elsewhere(reason)(test)
    return test


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    if IS_42:
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


def keys_by_manifest(storage: LocalStorage) -> list[Key]:
    schema = pa.schema([LINES.field(name) for name in ("stream", "incarnation", "seq", "idx")])
    found = pa.concat_tables(tables(storage, files(storage), schema))
    return sorted(tuple(row.values()) for row in found.to_pylist())


@needs_42
@pytest.mark.spark42
@pytest.mark.timeout(300)
def test_the_log_follows_the_table(spark: SparkSession, storage: LocalStorage) -> None:
    """After batches, compaction and retention both have the same rows, and no file is missing."""
    delta = Delta(spark, storage.url)
    assert delta.paths() == set()
    table = opened(storage, format=delta)
    batch(table, storage, "0", 1, 40)
    batch(table, storage, "1", 41, 150)
    assert keys_of(spark, storage) == keys_by_manifest(storage) == keys(1, 150)
    assert keys_of(spark, storage, "dt = '2026-11-21' and hour = '11'") == keys(61, 120)
    assert keys_of(spark, storage, "ts >= '2026-11-21 12:00:00'") == keys(121, 150)

    table.compact(OVER)
    assert delta.paths() == {entry.path for entry in files(storage)}
    assert keys_of(spark, storage) == keys(1, 150)
    table.retain(BEGIN + timedelta(hours=2), Limits(age=timedelta(hours=1)))

    assert keys_of(spark, storage) == keys_by_manifest(storage) == keys(61, 150)


@needs_42
@pytest.mark.spark42
@pytest.mark.timeout(300)
def test_a_commit_that_is_repeated_does_nothing_and_a_lost_one_is_made_good(
    spark: SparkSession, storage: LocalStorage
) -> None:
    """Delta knows the number of our commit; a start registers what a crash kept from it."""
    delta = Delta(spark, storage.url)
    table = opened(storage, format=delta)
    batch(table, storage, "0", 1, 40)
    delta.commit(files(storage), [], number=table.snapshot.number, schema=LINES)
    assert keys_of(spark, storage) == keys(1, 40)
    table.close()

    unregistered = opened(storage)
    batch(unregistered, storage, "1", 41, 70)
    unregistered.compact(OVER)
    unregistered.close()
    opened(storage, format=delta).close()

    assert delta.paths() == {entry.path for entry in files(storage)}
    assert keys_of(spark, storage) == keys(1, 70)


@needs_42
@pytest.mark.spark42
@pytest.mark.timeout(300)
def test_a_file_that_is_not_shown_yet_is_read_where_it_is(
    spark: SparkSession, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a compaction and its showing, the log names files outside of the table's folder."""
    delta = Delta(spark, storage.url)
    table = opened(storage, format=delta)
    batch(table, storage, "0", 1, 40)
    batch(table, storage, "1", 41, 50)
    monkeypatch.setattr(table, "_show", lambda: None)
    table.compact(OVER)

    assert due(table.snapshot, OVER, Sizes()) == []
    assert all(path.startswith("_table/waiting/") for path in delta.paths())
    assert keys_of(spark, storage) == keys(1, 50)


@needs_42
@pytest.mark.spark42
@pytest.mark.timeout(300)
def test_a_new_column_is_a_new_column_there(spark: SparkSession, storage: LocalStorage) -> None:
    """Files without it read as null."""
    delta = Delta(spark, storage.url)
    older = pa.schema([field for field in LINES if field.name != "piece"])
    table = Table.open(storage, OWNER, holder="test", schema=older, format=delta)
    rows = lines(1, 3).drop_columns(["piece"])
    added = write_range(storage, [rows], FileName(STREAM, LIFE, 1, 3))
    table.commit_batch("0", {STREAM: Range(LIFE, 1, 3)}, added)
    table.close()
    after = opened(storage, format=delta)
    batch(after, storage, "1", 4, 6)

    assert keys_of(spark, storage, "piece is null") == keys(1, 6)


@needs_42
@pytest.mark.spark42
@pytest.mark.timeout(300)
def test_what_the_job_keeps_is_a_delta_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over runs, and over a crash between our commit and Delta's: each line is there once."""

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with running_streams(tmp_path / "nats") as streams:
        archive = Archive(streams, tmp_path / "archive", format="delta")
        streams.send("node-a", "one")
        archive.keep(spark)
        streams.send("node-b", "two")
        with monkeypatch.context() as patched:
            patched.setattr(Delta, "commit", dies)
            with pytest.raises(KeyboardInterrupt):
                archive.keep(spark)
        streams.send("node-b", "three")
        archive.keep(spark)
        found = spark.read.format("delta").load(f"{archive.settings.path}/lines")

        assert sorted(row.line for row in found.collect()) == ["one", "three", "two"]


@pytest.mark.optional_elsewhere("here Delta's library is there")
@pytest.mark.skipif(IS_42, reason="here Delta's library is there")
@pytest.mark.timeout(120)
def test_a_spark_without_delta_is_told(spark: SparkSession, storage: LocalStorage) -> None:
    """One sentence says which package, and which Spark."""
    with pytest.raises(Refused, match=r"add io\.delta:delta-spark"):
        Delta(spark, storage.url).paths()
