"""The files of a partition for tests: batches of one source, and what stands in its files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from logpipeline.records import Reached, StreamPosition
from logpipeline.wire import Batch
from logpipeline_collector.config import FilesConfig
from logpipeline_collector.files.output import Descriptors
from logpipeline_collector.files.partition import FileStorage
from logpipeline_collector.partition_writer import PartitionWriter, PendingCommit

NS = 1795255200_000000000
PLACE = "h/_files/var/log/app.log"


def config_of(folder: Path, **changes: Any) -> FilesConfig:
    """Return a configuration under which files are raw, and neither rotated nor removed."""
    config = FilesConfig(
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


def opened(
    folder: Path,
    *,
    partition: int = 3,
    descriptors: Descriptors | None = None,
    **changes: Any,
) -> PartitionWriter:
    """Open *partition* of *folder*."""
    storage = FileStorage(config_of(folder, **changes), descriptors)
    return PartitionWriter(storage.open(partition))


class Writer:
    """Writes the lines of one file, and commits."""

    def __init__(self, partition: PartitionWriter, *, start: int = 0, sequence: int = 0) -> None:
        self.partition = partition
        self.start = start
        self.sequence = sequence
        self.committed = sequence

    def take(
        self,
        data: bytes,
        *,
        source: str = "/var/log/app.log",
        host: str = "h",
        generation: str = "0" * 16,
        starts_inside_line: bool = False,
        ends_inside_line: bool = False,
    ) -> None:
        """Take the next message, which holds *data*."""
        self.sequence += 1
        batch = Batch(
            source=source,
            generation=generation,
            start=self.start,
            end=self.start + len(data),
            lines=data.count(b"\n"),
            format="plain",
            starts_inside_line=starts_inside_line,
            ends_inside_line=ends_inside_line,
        )
        self.partition.take(host, batch, data, sequence=self.sequence, time_ns=NS)
        self.start += len(data)

    def prepare(self) -> PendingCommit:
        """Prepare a commit of what was taken."""
        return self.partition.prepare(
            Reached(position(self.sequence), 0),
            epoch=1,
            since=Reached(position(self.committed), 0),
        )

    def commit(self, *, is_confirmed: bool = True) -> None:
        """Commit what was taken."""
        pending = self.prepare()
        self.partition.write(pending)
        if is_confirmed:
            self.partition.confirm(pending)
        self.committed = self.sequence


def position(sequence: int) -> StreamPosition:
    """Return the position of *sequence*."""
    return StreamPosition("2026-11-21T10:00:00Z", sequence, sequence)


class FailingDescriptors(Descriptors):
    """A fake for what no disk does on demand: *write_errno* fails a write after two bytes,
    *sync_errno* fails to make a file durable; *free* is what the disk has left, and what it has.
    """

    def __init__(self, limit: int = 64) -> None:
        super().__init__(limit)
        self.write_errno = 0
        self.sync_errno = 0
        self.free: tuple[int, int] | None = None

    def write(self, descriptor: int, data: bytes | memoryview, offset: int) -> int:
        """Write, or a little of it."""
        if not self.write_errno:
            return super().write(descriptor, data, offset)
        super().write(descriptor, data[:2], offset)
        raise OSError(self.write_errno, os.strerror(self.write_errno))

    def sync(self, descriptor: int) -> None:
        """Make durable, or not."""
        if self.sync_errno:
            raise OSError(self.sync_errno, os.strerror(self.sync_errno))
        super().sync(descriptor)

    def free_bytes(self, root: Path) -> tuple[int, int]:
        """Return what the disk, or the test, says."""
        return self.free or super().free_bytes(root)


def contents(folder: Path, place: str = PLACE) -> bytes:
    """Return what stands in the file at *place*, empty where there is none."""
    path = folder / "logs" / place
    return path.read_bytes() if path.exists() else b""
