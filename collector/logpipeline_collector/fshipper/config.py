"""What a reader in fshipper's way is told, and its limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from logpipeline.nats.connection import NatsOptions
from logpipeline_collector.fshipper.naming import Pattern

MIB = 1024 * 1024
# Lines that wait for the disk; what comes beyond is dropped and counted, as nobody resends it.
BUFFER_BYTES_MAX = 64 * MIB
# What a line takes beside its bytes, at least.
LINE_OVERHEAD_BYTES = 120
OPEN_FILES_MAX = 256
# Subjects are anybody's to publish on: so many hosts make files, more are refused.
HOSTS_MAX = 100_000
# Consumers whose deliveries are counted: one a partition, and those made anew.
CONSUMERS_MAX = 10_000
SYNC_INTERVAL_S = 1.0
# Lines are written together that come within this time.
LINGER_S = 0.01
RETRY_S = 1.0
KEPT_S = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderConfig:
    """Lines of *partitions* below *subject* go into *directory*; with *target* they come by push
    consumers that deliver to ``<target>.p<N>``, else as they are published.
    """

    nats: NatsOptions
    subject: str
    directory: Path
    pattern: Pattern
    partitions: tuple[int, ...] = (0,)
    target: str = ""
    buffer_bytes_max: int = BUFFER_BYTES_MAX
    open_files_max: int = OPEN_FILES_MAX
    http_host: str = "127.0.0.1"
    http_port: int | None = None

    def subscriptions(self) -> list[str]:
        """Return the subjects that are listened to."""
        if self.target:
            return [f"{self.target}.p{number}" for number in self.partitions]
        return [f"{self.subject}.p{number}.>" for number in self.partitions]
