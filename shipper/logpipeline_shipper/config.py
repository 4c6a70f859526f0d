"""Everything that a shipper is told, in one frozen value, so that no other module reads options."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from logpipeline.nats.connection import NatsOptions
from logpipeline_shipper.files.sources import HostSources

Acknowledge = Literal["batch", "each", "none"]
Compression = Literal["zstd", "none"]

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """How lines are put together into messages.

    *acknowledge* `each` sends one line at a time and waits for it, `none` sends without waiting.
    """

    bytes_max: int = 512 * KIB
    # Just under nats-server's default max_payload of 1 MiB, headers included.
    line_bytes_max: int = 1_000_000
    linger_s: float = 0.02
    compression: Compression = "zstd"
    acknowledge: Acknowledge = "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShipperConfig:
    """One shipper: where it reads, where it sends, and its limits."""

    nats: NatsOptions
    subject_root: str
    control_root: str
    partitions: int
    hosts: tuple[HostSources, ...]
    data: Path
    read_from: Literal["beginning", "end"] = "beginning"
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
    cluster: str = ""
    http_host: str = "127.0.0.1"
    http_port: int | None = None
