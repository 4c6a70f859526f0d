"""The configuration of a shipper, in one frozen value, so that no other module reads options."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from logpipeline.nats.connection import NatsOptions
from logpipeline.redaction import Redactor
from logpipeline.spec import LogPipeline
from logpipeline.spec.components import LocalShipper
from logpipeline.spec.streams import Redaction
from logpipeline_shipper.files.chain import ReadFrom
from logpipeline_shipper.files.listing import HostSources
from logpipeline_shipper.files.source_filter import Rules
from logpipeline_shipper.kubernetes.client import Access

Compression = Literal["zstd", "none"]

KIB = 1024
MIB = 1024 * KIB
NS = 1_000_000_000
# Just under nats-server's default max_payload of 1 MiB, headers included.
LINE_BYTES_MAX = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """The rules by which lines are combined to messages.

    With *message* ``line`` each message is one line without headers, as fshipper sends it.
    """

    bytes_max: int = 512 * KIB
    line_bytes_max: int = LINE_BYTES_MAX
    linger_s: float = 0.02
    compression: Compression = "zstd"
    message: Literal["batch", "line"] = "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShipperConfig:
    """One shipper: where it reads, where it sends, and its limits.

    With an empty *control_root* there are no collectors that report their progress. Without a
    checkpoint, collectors are asked what they have, for *recall_s* at a first start, when there may
    be no collectors yet, and for *recall_lost_s* if the checkpoint was lost. A checkpoint of a
    pipeline other than *pipeline_uid*, which had the same data folder, is set aside. With
    *kubernetes*, the API server is asked for the pods of the node *node*, or only for those in the
    namespace *pods_of*, if that is given. *namespaces_file* names the namespaces to read, if these
    may change. With *read_out_s* nothing more is written to the files once the shipper is asked to
    stop: it first ships all of their bytes, for so long at most.
    """

    nats: NatsOptions
    subject_root: str
    control_root: str
    partitions: int
    hosts: tuple[HostSources, ...]
    data: Path
    rules: Rules = field(default_factory=Rules)
    kubernetes: Access | None = None
    node: str = ""
    pods_of: str = ""
    namespaces_file: Path | None = None
    read_from: ReadFrom = "beginning"
    batch: BatchOptions = field(default_factory=BatchOptions)
    in_flight_bytes_max: int = 16 * MIB
    open_files_max: int = 1024
    idle_close_s: float = 5.0
    deleted_bytes_max: int = 256 * MIB
    deleted_age_s: float = 3600.0
    rescan_s: float = 2.0
    quarantine_bytes_max: int = 64 * MIB
    ack_timeout_s: float = 5.0
    drain_s: float = 5.0
    recall_s: float = 5.0
    recall_lost_s: float = 60.0
    read_out_s: float = 0.0
    cluster: str = ""
    pipeline_uid: str = ""
    redaction: Redaction = field(default_factory=Redaction)
    http_host: str = "127.0.0.1"
    http_port: int | None = None


def from_pipeline(
    pipeline: LogPipeline,
    *,
    shipper: str,
    data: Path,
    nats: NatsOptions,
    host: str | None = None,
    kubernetes: Access | None = None,
    namespaces_file: Path | None = None,
    http_host: str = "127.0.0.1",
    http_port: int | None = None,
) -> ShipperConfig:
    """Return the configuration of the local shipper named *shipper*; *host* replaces its host.

    With *kubernetes* the host is a node.

    Raises:
        KeyError: the resource has no such shipper.
    """
    spec = pipeline.spec
    local = {each.name: each for each in spec.local.shippers}[shipper]
    name = host or host_of(local)
    # With a selector by labels, no namespace is known until the file names them.
    first = {"Own": frozenset({pipeline.namespace}), "Selector": frozenset[str]()}
    namespaces = first.get(spec.shippers.pod_namespaces or "All")
    return ShipperConfig(
        nats=nats,
        subject_root=pipeline.names.subject,
        control_root=pipeline.names.control_subject,
        partitions=spec.partitions,
        hosts=hosts_of(pipeline, local, name),
        data=data,
        rules=Rules(
            namespace=pipeline.namespace,
            only=namespaces,
            pipeline=pipeline.name,
            matches=spec.shippers.match,
            labels=spec.shippers.labels,
            ack=spec.batch.ack,
        ),
        kubernetes=kubernetes,
        node=name if kubernetes is not None else "",
        pods_of=pipeline.namespace if spec.shippers.pod_namespaces == "Own" else "",
        namespaces_file=namespaces_file,
        read_from=spec.shippers.read_from,
        batch=BatchOptions(
            bytes_max=spec.batch.max_bytes,
            line_bytes_max=spec.batch.max_line_bytes or LINE_BYTES_MAX,
            linger_s=spec.batch.linger_ns / NS,
            compression=spec.batch.compression,
            message=spec.batch.message,
        ),
        in_flight_bytes_max=spec.shippers.max_in_flight_bytes,
        open_files_max=spec.shippers.max_open_files,
        deleted_bytes_max=spec.shippers.deleted_files.max_bytes,
        deleted_age_s=spec.shippers.deleted_files.max_age_ns / NS,
        rescan_s=spec.shippers.rescan_ns / NS,
        cluster=spec.cluster,
        pipeline_uid=pipeline.uid,
        redaction=spec.redaction,
        http_host=http_host,
        http_port=http_port,
    )


def host_of(local: LocalShipper) -> str:
    """Return the host whose logs *local* ships, unless another one is given."""
    return local.host or socket.gethostname()


def redactor_of(redaction: Redaction) -> Redactor:
    """Return what masks lines as *redaction* says."""
    return Redactor(redaction.presets, redaction.expressions, redaction.mask)


def hosts_of(pipeline: LogPipeline, local: LocalShipper, host: str) -> tuple[HostSources, ...]:
    """Return the places where the shipper *local* of *pipeline* finds the logs of *host*."""
    pods = local.pods if pipeline.spec.shippers.container_logs else None
    folders = HostSources(
        host=host,
        pods_dir=Path(pods) if pods else None,
        hosts_below=Path(local.hosts_below) if local.hosts_below else None,
    )
    files = tuple(
        HostSources(host=host, include=patterns.include, exclude=patterns.exclude, ack=patterns.ack)
        for patterns in local.files
    )
    return (folders, *files) if pods or local.hosts_below else files
