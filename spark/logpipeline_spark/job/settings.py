"""The settings of a table's job, taken from a resource."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from logpipeline.nats.options import NatsOptions
from logpipeline.spec import LogPipeline
from logpipeline.spec.table import Executors
from logpipeline_spark.lines.schema import NONE, Columns
from logpipeline_spark.source.offsets import EARLIEST, Place

NS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """All settings of a job. Spark keeps its files in *folder*, which belongs to this job alone.
    The job reports its progress at *key*; without a key it reports nothing. The pipeline's own
    table is at *own_path*, which may differ from *path*. A stream that the table does not have yet
    is read from *begin* on. Times are seconds.
    """

    pipeline: str
    path: str
    folder: Path
    nats: NatsOptions
    streams: tuple[str, ...]
    subject: str
    partitions: int
    bucket: str
    key: str
    holder: str
    own_path: str = ""
    begin: Place = EARLIEST
    format: Literal["delta", "iceberg"] = "delta"
    catalog: dict[str, str] = field(default_factory=dict)
    is_scheduled: bool = False
    stops_on_loss: bool = False
    every_s: float = 10.0
    max_bytes: int = 256 * 2**20
    has_rollups: bool = True
    columns: Columns = NONE
    is_compacting: bool = True
    target_bytes: int = 256 * 2**20
    has_words: bool = False
    retain_s: float | None = None
    retain_bytes: int | None = None
    master: str = "local[*]"
    driver_memory_bytes: int = 2**30
    executors: Executors = field(default_factory=Executors)
    endpoint: str | None = None
    region: str | None = None


def settings_of(
    pipeline: LogPipeline,
    *,
    key: str,
    path: str,
    folder: Path,
    nats: NatsOptions,
    master: str = "local[*]",
) -> JobSettings:
    """Return the settings of *pipeline*'s table, which reports its progress at *key*. A table
    without a path of its own lies at *path*. Spark keeps its files in *folder*.
    """
    spec, names = pipeline.spec, pipeline.names
    table = spec.table
    return JobSettings(
        pipeline=f"{pipeline.namespace}/{pipeline.name}",
        path=table.path or path,
        own_path=table.path or path,
        folder=folder,
        nats=nats,
        streams=tuple(names.stream(number) for number in range(pipeline.stream_count)),
        subject=names.subject,
        partitions=pipeline.stream_subjects.partitions,
        bucket=names.state_bucket,
        key=key,
        # A job that starts again in its folder need not wait until its former self is given up.
        holder=f"{pipeline.namespace}/{pipeline.name} on {socket.gethostname()} in {folder}",
        format=table.format,
        catalog=dict(table.catalog),
        is_scheduled=table.trigger == "schedule",
        every_s=table.interval_ns / NS,
        max_bytes=table.max_bytes_per_batch,
        has_rollups=table.rollups.enabled,
        columns=Columns.of(table),
        is_compacting=table.compaction.enabled,
        target_bytes=table.compaction.target_bytes,
        has_words=table.compaction.words,
        retain_s=None if table.retention.max_age_ns is None
        else table.retention.max_age_ns / NS,
        retain_bytes=table.retention.max_bytes,
        master=master,
        driver_memory_bytes=table.driver_memory,
        executors=table.executors,
        endpoint=table.s3.endpoint,
        region=table.s3.region,
    )  # fmt: skip
