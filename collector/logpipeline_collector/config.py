"""The configuration of one collector process: its streams, its folder, its limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from logpipeline.nats.connection import NatsOptions
from logpipeline.subjects import ControlSubjects, Names, Subjects

if TYPE_CHECKING:
    from logpipeline.spec import LogPipeline

DeliverPolicy = Literal["all", "new", "byStartTime"]
EmptyVolumePolicy = Literal["Reread", "Continue"]

COMMIT_INTERVAL_S = 0.2
COMMIT_BYTES = 16 * 1024 * 1024
TAKEOVER_AFTER_S = 10.0
SNAPSHOT_EVERY_S = 5.0
# Bytes that servers have sent and we have not taken yet, over all partitions.
PULL_BUDGET_BYTES = 32 * 1024 * 1024
# Kubernetes kills the process after 30 s by default.
STOP_DEADLINE_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesConfig:
    """One collector's folder and the shape of its files. Sizes in bytes, ages in seconds."""

    folder: Path
    group: str
    path: str
    file_path: str
    output: Literal["raw", "cri", "json"]
    rotate_bytes: int
    rotate_age_s: float
    compression: Literal["gzip", "zstd", "none"]
    retention_age_s: float
    retention_bytes: int | None
    min_free_percent: int
    open_files_max: int
    cluster: str = ""

    @property
    def logs(self) -> Path:
        """The folder of the output files."""
        return self.folder / "logs"

    def state(self, partition: int) -> Path:
        """The file that holds the state of the files of *partition*."""
        return self.folder / "state" / self.group / f"p{partition}.sqlite"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorConfig:
    """A collector named *member* of *group*; *files* describes its folder and its files.

    The stream of a partition is that of *names*; where that holds all partitions, each is read by
    its subjects, *foreign* of which are as in `Subjects.of_stream`. *http_port* None serves no
    metrics, 0 takes a free port.
    """

    nats: NatsOptions
    subjects: Subjects
    control: ControlSubjects
    names: Names
    state_bucket: str
    snapshot_stream: str
    snapshot_root: str
    dead_letter_root: str
    dead_letter_stream: str
    group: str
    member: str
    files: FilesConfig
    foreign: int = 0
    commit_interval_s: float = COMMIT_INTERVAL_S
    commit_bytes: int = COMMIT_BYTES
    takeover_after_s: float = TAKEOVER_AFTER_S
    snapshot_every_s: float = SNAPSHOT_EVERY_S
    pull_budget_bytes: int = PULL_BUDGET_BYTES
    stop_deadline_s: float = STOP_DEADLINE_S
    http_host: str = "127.0.0.1"
    http_port: int | None = None
    # Where the group begins in a partition that it has never owned.
    deliver_policy: DeliverPolicy = "all"
    opt_start_time: str | None = None
    # Whether messages are read again whose lines were in a folder that is gone.
    on_empty_volume: EmptyVolumePolicy = "Reread"

    @property
    def partitions(self) -> int:
        """Number of partitions; 0 in the resource means the one partition 0."""
        return max(self.subjects.partitions, 1)

    def stream_of(self, partition: int) -> str:
        """Return the name of the stream of *partition*."""
        return self.names.stream(partition)

    def filter_of(self, partition: int) -> tuple[str, ...]:
        """Return the subjects by which *partition* is read; none where its stream holds no
        other.
        """
        if not self.names.is_single:
            return ()
        return tuple(self.subjects.of_stream(partition, foreign=self.foreign))

    def snapshot_subject(self, partition: int) -> str:
        """Return the subject of our group's snapshots of *partition*."""
        return f"{self.snapshot_root}.{self.group}.p{partition}"

    def marks_path(self, partition: int) -> Path:
        """Return the file of the marks of the partition's stream in our folder."""
        return self.files.folder / "state" / self.group / f"p{partition}.marks"


def from_pipeline(
    pipeline: LogPipeline,
    *,
    member: str,
    data: Path,
    nats: NatsOptions,
    http_host: str = "127.0.0.1",
    http_port: int | None = None,
) -> CollectorConfig:
    """Return the configuration of the collector *member* of *pipeline*, with the folder *data*."""
    names, collectors = pipeline.names, pipeline.spec.collectors
    return CollectorConfig(
        nats=nats,
        subjects=pipeline.subjects,
        control=ControlSubjects(names.control_subject),
        names=names,
        state_bucket=names.state_bucket,
        snapshot_stream=names.snapshot_stream,
        snapshot_root=names.snapshot_subject,
        dead_letter_root=names.dead_letter_subject,
        dead_letter_stream=names.dead_letter_stream,
        group=collectors.group,
        member=member,
        files=_files(pipeline, data),
        foreign=pipeline.spec.stream.foreign_partitions,
        commit_interval_s=collectors.commit.interval_ns / 1e9,
        commit_bytes=collectors.commit.max_bytes,
        takeover_after_s=collectors.takeover_after_ns / 1e9,
        snapshot_every_s=collectors.snapshot_every_ns / 1e9,
        http_host=http_host,
        http_port=http_port,
        deliver_policy=collectors.deliver_policy,
        opt_start_time=collectors.opt_start_time,
        on_empty_volume=collectors.on_empty_volume,
    )


def _files(pipeline: LogPipeline, data: Path) -> FilesConfig:
    collectors = pipeline.spec.collectors
    return FilesConfig(
        folder=data,
        group=collectors.group,
        path=collectors.path,
        file_path=collectors.file_path,
        output=collectors.output,
        rotate_bytes=collectors.rotation.max_bytes,
        rotate_age_s=collectors.rotation.max_age_ns / 1e9,
        compression=collectors.compression,
        retention_age_s=collectors.retention.max_age_ns / 1e9,
        retention_bytes=collectors.retention.max_bytes,
        min_free_percent=collectors.retention.min_free_percent,
        open_files_max=collectors.max_open_files,
        cluster=pipeline.spec.cluster,
    )
