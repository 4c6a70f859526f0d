"""A shipper that sends as fshipper does: one file, a line per message, without acknowledgements.

It is the shipper itself with other settings, so that it survives rotation and restarts in the same
way; only the messages are fshipper's.
"""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path

from logpipeline.nats.connection import NatsOptions
from logpipeline.subjects import check_host
from logpipeline_shipper.config import KIB, BatchOptions, ShipperConfig
from logpipeline_shipper.files.listing import HostSources
from logpipeline_shipper.files.source_filter import Rules

# So much is read at once; each line of it is a message.
READ_BYTES = 64 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class OneFile:
    """The arguments of fshipper's producer: *file* goes to ``<subject>.p<N>.<host>``."""

    file: Path
    subject: str
    partitions: int
    host: str


def config_of(
    what: OneFile,
    *,
    nats: NatsOptions,
    data: Path,
    read_out_s: float = 0.0,
    http_host: str = "127.0.0.1",
    http_port: int | None = None,
) -> ShipperConfig:
    """Return the shipper that follows one file.

    Raises:
        BadHost: the host cannot be part of a subject.
    """
    # Discovery follows no links; a user who names one means its target.
    path = os.path.realpath(what.file)
    return ShipperConfig(
        nats=nats,
        subject_root=what.subject,
        control_root="",
        partitions=what.partitions,
        hosts=(HostSources(host=check_host(what.host), include=(glob.escape(path),)),),
        data=data,
        rules=Rules(ack="none"),
        read_from="live",
        batch=BatchOptions(bytes_max=READ_BYTES, message="line"),
        read_out_s=read_out_s,
        http_host=http_host,
        http_port=http_port,
    )
