"""The cases: the same results from a text file, in the usual way of Spark, and from streams, in the
way of the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession, functions

from logpipeline.nats.options import NatsOptions
from logpipeline_spark.job.service import Job
from logpipeline_spark.job.settings import JobSettings
from logpipeline_spark.job.spark import Engine
from logpipeline_spark.lines import arrow
from logpipeline_spark.lines.arrow import tables_of
from logpipeline_spark.lines.layout import layout
from logpipeline_spark.lines.messages import groups
from logpipeline_spark.source import planning
from logpipeline_spark.source.client import Client
from logpipeline_spark.source.offsets import EARLIEST
from logpipeline_spark.source.options import SourceOptions
from logpipeline_spark.source.ranges import RangeTask, read_task
from logpipeline_spark.table.counts import MINUTES, added, by_minute, counted
from spark_lines import BUCKET, PARTITIONS, ROOT, streams

CRI = r"^(\S{16})\S* (?:stdout|stderr) [FP] (.*)$"
LEVEL = r"level=(\w+)"
BATCH_BYTES_MAX = 1 << 30


def text_to_parquet(spark: SparkSession, source: Path, place: Path) -> None:
    """Spark reads lines and writes them, in the simplest way."""
    lines = spark.read.text(str(source))
    lines.write.option("compression", "zstd").parquet(str(place))


def text_to_counts(spark: SparkSession, source: Path, place: Path) -> None:
    """Spark counts lines per minute and level, with regular expressions on text."""
    lines = spark.read.text(str(source))
    levels = lines.select(
        functions.regexp_extract("value", CRI, 1).alias("minute"),
        functions.regexp_extract("value", CRI, 2).alias("line"),
    )
    counts = (
        levels.withColumn("level", functions.lower(functions.regexp_extract("line", LEVEL, 1)))
        .groupBy("minute", "level")
        .agg(
            functions.count("*").alias("lines"),
            functions.sum(functions.octet_length("line")).alias("bytes"),
        )
    )
    counts.write.option("compression", "zstd").parquet(str(place))


def job(spark: SparkSession, url: str, place: Path, *, has_rollups: bool) -> None:
    """The job keeps a table with all columns, until everything that waits is in it."""
    settings = JobSettings(
        pipeline="default/bench",
        path=str(place),
        folder=place.with_suffix(".job"),
        nats=NatsOptions(servers=(url,)),
        streams=streams(),
        subject=ROOT,
        partitions=PARTITIONS,
        bucket=BUCKET,
        key=place.name,
        holder=place.name,
        is_scheduled=True,
        has_rollups=has_rollups,
    )
    Job(settings, Engine(lambda: spark)).run()


def line_alone(spark: SparkSession, url: str, place: Path) -> None:
    """The way of the job with only the column of a text file: the whole line, as the runtime wrote
    it.
    """
    place.mkdir()
    _run(spark, url, partial(_write_line, place))


def counts_alone(spark: SparkSession, url: str, place: Path) -> None:
    """Counts per minute, made in the tasks, without a table of lines."""
    place.mkdir()
    parts = _run(spark, url, _count)
    pq.write_table(added(parts, MINUTES), place / "counts.parquet", compression="zstd")


def _run(
    spark: SparkSession, url: str, what: Callable[[SourceOptions, RangeTask], Any]
) -> list[Any]:
    options = SourceOptions(
        nats=NatsOptions(servers=(url,)), streams=streams(), partitions=PARTITIONS, subject=ROOT
    )
    with Client(options) as client:
        seen = planning.states(client, options)
        begins = planning.start(client, options, EARLIEST, seen)
        lasts = {name: state.last for name, state in seen.items()}
        ends = planning.ends(client, begins, seen, lasts, BATCH_BYTES_MAX)
        parts = planning.tasks(options, ends, spark.sparkContext.defaultParallelism)
    ranges = spark.sparkContext.parallelize(parts, len(parts))
    return list(ranges.map(partial(what, options)).collect())


def _write_line(place: Path, options: SourceOptions, part: RangeTask) -> int:
    schema = pa.schema([("line", pa.string())])
    name = f"{part.stream}-{part.first}-{part.last}.parquet"
    rows = 0
    with pq.ParquetWriter(
        place / name, schema, compression="zstd", use_dictionary=False, write_statistics=False
    ) as writer:
        for table in _lines(options, part, schema):
            writer.write_table(table)
            rows += table.num_rows
    return rows


def _lines(options: SourceOptions, part: RangeTask, schema: pa.Schema) -> Iterator[pa.Table]:
    for messages in read_task(options, part):
        for group in groups(messages, part.origin(options)):
            found = layout(group)
            lines, _ = arrow.strings(arrow.slices(found.buffer, found.starts, found.ends))
            yield pa.table([lines], schema=schema)


def _count(options: SourceOptions, part: RangeTask) -> pa.Table:
    origin = part.origin(options)
    counts = [
        by_minute(counted(table))
        for messages in read_task(options, part)
        for group in groups(messages, origin)
        for table in tables_of(group, origin)
    ]
    return added(counts, MINUTES)
