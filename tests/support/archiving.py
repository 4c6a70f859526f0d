"""A partition's archive for tests: batches of one source, and what stands in its files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from logpipeline.records import StreamPosition
from logpipeline.wire import Batch
from logpipeline_collector.archive.config import ArchiveConfig
from logpipeline_collector.archive.descriptors import Descriptors
from logpipeline_collector.archive.partition import PartitionArchive

NS = 1795255200_000000000
PLACE = "h/_files/var/log/app.log"


def config_of(folder: Path, **changes: Any) -> ArchiveConfig:
    """Return an archive that keeps lines raw, and neither rotates nor removes."""
    config = ArchiveConfig(
        folder=folder,
        group="main",
        path="{host}/{namespace}/{pod}/{container}.log",
        file_path="{host}/_files/{path}",
        output="raw",
        rotate_bytes=1 << 40,
        rotate_age_s=1e9,
        compression="none",
        retention_age_s=1e9,
        retention_bytes=None,
        min_free_percent=0,
        open_files_max=64,
    )
    return replace(config, **changes)


def opened(folder: Path, **changes: Any) -> PartitionArchive:
    """Open partition 3 of *folder*."""
    config = config_of(folder, **changes)
    return PartitionArchive.open(config, 3, Descriptors(config.open_files_max))


class Writer:
    """Gives an archive the lines of one file, and commits."""

    def __init__(self, archive: PartitionArchive, *, start: int = 0, sequence: int = 0) -> None:
        self.archive = archive
        self.start = start
        self.sequence = sequence
        self.committed = sequence

    def take(
        self,
        data: bytes,
        *,
        source: str = "/var/log/app.log",
        host: str = "h",
        starts_inside_line: bool = False,
    ) -> None:
        """Take the next message, which holds *data*."""
        self.sequence += 1
        batch = Batch(
            source=source,
            generation="0" * 16,
            start=self.start,
            end=self.start + len(data),
            lines=data.count(b"\n"),
            format="plain",
            starts_inside_line=starts_inside_line,
        )
        self.archive.take(host, batch, data, sequence=self.sequence, time_ns=NS)
        self.start += len(data)

    def commit(self, *, is_confirmed: bool = True) -> None:
        """Commit what was taken."""
        pending = self.archive.prepare(
            position(self.sequence), epoch=1, rollbacks=0, since=position(self.committed)
        )
        self.archive.write(pending)
        if is_confirmed:
            self.archive.confirm(pending)
        self.committed = self.sequence


def position(sequence: int) -> StreamPosition:
    """Return the position of *sequence*."""
    return StreamPosition("2026-11-21T10:00:00Z", sequence, sequence)


def contents(folder: Path, place: str = PLACE) -> bytes:
    """Return what stands in the file at *place*, empty where there is none."""
    path = folder / "logs" / place
    return path.read_bytes() if path.exists() else b""
