"""The limits of reading: memory, descriptors, times. Each default has a reason."""

from __future__ import annotations

from dataclasses import dataclass, field

from logpipeline_shipper.files.open_file import DescriptorBudget
from logpipeline_shipper.files.reader import Recent


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """Limits of one shipper; *descriptors* and *recent* are shared by all its chains."""

    # One message. From 64 KiB to 256 KiB throughput is the same; more is better for a server that
    # syncs each message.
    batch_bytes: int = 512 * 1024
    # Just under nats-server's default payload of 1 MiB, headers included.
    line_bytes: int = 1_000_000
    # A file that has a newer one is written to no more, mostly; a busy one more often than this.
    idle_close_s: float = 10.0
    # Deleted files that are kept open fill the disk invisibly: as much as kubelet keeps of ten
    # containers.
    deleted_bytes: int = 512 * 1024 * 1024
    deleted_age_s: float = 3600.0
    # A renamed file grows until its program opens the new one: wait at least for one rescan.
    grace_s: float = 2.0
    # A program with a write buffer continues in the middle of a line, maybe in a renamed file.
    unfinished_s: float = 60.0
    descriptors: DescriptorBudget = field(default_factory=DescriptorBudget)
    recent: Recent = field(default_factory=Recent)

    @property
    def window_bytes(self) -> int:
        """Return how many bytes a read asks for at first."""
        return min(self.batch_bytes, self.line_bytes)
