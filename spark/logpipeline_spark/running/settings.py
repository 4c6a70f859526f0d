"""What a resource says about its archive, as the job takes it."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from logpipeline.nats.options import NatsOptions
from logpipeline.spec import LogPipeline
from logpipeline.spec.archive import Executors
from logpipeline_spark.lines.columns import NONE, Columns

NS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """All that a job needs to know; *folder* is its own, for what Spark wants to keep while it
    runs. Times are seconds.
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
    retain_s: float | None = None
    retain_bytes: int | None = None
    master: str = "local[*]"
    driver_memory_bytes: int = 2**30
    executors: Executors = field(default_factory=Executors)
    endpoint: str | None = None
    region: str | None = None


def settings_of(
    pipeline: LogPipeline, *, key: str, folder: Path, nats: NatsOptions, master: str = "local[*]"
) -> JobSettings:
    """Return the settings of *pipeline*'s archive, which tells at *key* how far it is; a table
    without a path of its own lies in *folder*.
    """
    spec, names = pipeline.spec, pipeline.names
    archive = spec.archive
    return JobSettings(
        pipeline=f"{pipeline.namespace}/{pipeline.name}",
        path=archive.path or str(folder / "table"),
        folder=folder,
        nats=nats,
        streams=tuple(names.stream(number) for number in range(max(spec.partitions, 1))),
        subject=names.subject,
        partitions=spec.partitions,
        bucket=names.state_bucket,
        key=key,
        # One that is started again in its folder need not wait for itself to be given up.
        holder=f"{pipeline.namespace}/{pipeline.name} on {socket.gethostname()} in {folder}",
        format=archive.format,
        catalog=dict(archive.catalog),
        is_scheduled=archive.trigger == "schedule",
        every_s=archive.interval_ns / NS,
        max_bytes=archive.max_bytes_per_batch,
        has_rollups=archive.rollups.enabled,
        columns=Columns.of(archive),
        is_compacting=archive.compaction.enabled,
        target_bytes=archive.compaction.target_bytes,
        retain_s=None if archive.retention.max_age_ns is None
        else archive.retention.max_age_ns / NS,
        retain_bytes=archive.retention.max_bytes,
        master=master,
        driver_memory_bytes=archive.driver_memory,
        executors=archive.executors,
        endpoint=archive.s3.endpoint,
        region=archive.s3.region,
    )  # fmt: skip
