"""The collector's metrics, by partition: hosts and sources would be too many labels."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from prometheus_client import Counter

from logpipeline.observe.metrics import Family, Metrics
from logpipeline_collector.owned_partition import OwnedPartition

# What a partition's writer counts since it was opened, with the help text of the metric.
WRITER_COUNTERS = {
    "lines": "Lines written to files",
    "bytes": "Bytes written to files",
    "duplicates": "Messages whose bytes were all there already",
    "cut_bytes": "Bytes of messages that were there already, and were cut",
    "late_ranges": "Ranges that came after later ones, and were written late",
    "contradicted_bytes": "Bytes written that another message contradicts",
    "forgotten_sources": "Sources forgotten, in whole or in part, because a host had too much",
    "unknown_chains": "Generations that name a predecessor that was never seen",
}


@dataclass(eq=False)
class CollectorMetrics:
    """All metrics of the collector."""

    metrics: Metrics = field(default_factory=lambda: Metrics("collector"))
    _counted: dict[tuple[int, str], int] = field(default_factory=dict)
    _by_partition: list[Family[Counter]] = field(default_factory=list)

    def __post_init__(self) -> None:
        by_partition = ("partition",)
        counter, gauge = self.metrics.counter, self.metrics.gauge
        self.commits = self._of_partition("commits", "Commits that the group knows of")
        self.commit_seconds = self.metrics.histogram(
            "commit_seconds", "From the first write to disk to the record in the state bucket"
        )
        self.dead_letters = counter(
            "dead_letters",
            "Messages that could not be used, or that readers gave up",
            ("partition", "reason", "kept"),
        )
        self.snapshots = counter(
            "snapshots", "Snapshots of the sources' positions", ("partition", "outcome")
        )
        self.missed = self._of_partition(
            "missed_messages", "Messages that left the stream before we read them"
        )
        self.rollbacks = gauge(
            "rollbacks", "How often the stream went back behind what was read", by_partition
        )
        self.epoch = gauge("epoch", "The epoch in which we own the partition", by_partition)
        self.takeovers = counter("takeovers", "Partitions that we took", ("partition", "source"))
        self.releases = self._of_partition("releases", "Partitions that we gave up")
        self.fenced = self._of_partition("fenced", "Partitions that we lost to another owner")
        self.reopened = self._of_partition("reopened", "Times that a stream had to be opened again")
        self.warnings = self._of_partition(
            "recovery_warnings", "Folder and state bucket contradicted each other"
        )
        self.gone_folders = self._of_partition(
            "gone_folders", "Partitions whose files were gone with our volume"
        )
        self.lag_messages = gauge("lag_messages", "Messages still to read", by_partition)
        self.lag_seconds = gauge("lag_seconds", "Age of the last message read", by_partition)
        self.lag_bytes = gauge("lag_bytes", "Bytes still to read, as estimated", by_partition)
        self.uncommitted = gauge("uncommitted_bytes", "Bytes written, not committed", by_partition)
        self.missing = gauge("missing_bytes", "Bytes in holes that may still fill", by_partition)
        self.lost = gauge("lost_bytes", "Bytes that shippers named as lost", by_partition)
        # The gauges go on where another collector takes the partition; these are for alerts.
        self.rolled_back = self._of_partition(
            "rolled_back", "How often the stream went back while we owned it"
        )
        self.newly_lost = self._of_partition(
            "newly_lost_bytes", "Bytes named as lost since we took the partition"
        )
        self.newly_damaged = self._of_partition(
            "newly_damaged_bytes",
            "Committed bytes found to be taken away since we opened the partition's files",
        )
        self.damaged = gauge(
            "damaged_bytes", "Committed bytes that the disk, or a program, took away", by_partition
        )
        self.removed = counter(
            "removed_bytes",
            "Bytes of rotated files that retention removed; disk: before their age, for room",
            ("partition", "reason"),
        )
        self._writer_counters = {
            name: self._of_partition(name, text) for name, text in WRITER_COUNTERS.items()
        }

    def _of_partition(self, name: str, help_text: str) -> Family[Counter]:
        """Return a new counter of each partition; `opened` shows it."""
        made = self.metrics.counter(name, help_text, ("partition",))
        self._by_partition.append(made)
        return made

    def dead_letter(self, partition: int, reason: str, is_kept: bool) -> None:
        """Count one message that became a dead letter."""
        self.dead_letters.labels(partition, reason, "yes" if is_kept else "no").inc()

    def committed(self, owned: OwnedPartition, seconds: float) -> None:
        """Note a commit of *owned*, and what its writer has counted since the last one."""
        self.commits.labels(owned.partition).inc()
        self.commit_seconds.labels().observe(seconds)
        self.rollbacks.labels(owned.partition).set(owned.rollbacks)
        self.missing.labels(owned.partition).set(owned.writer.missing_bytes)
        self.lost.labels(owned.partition).set(owned.writer.lost_bytes)
        self._count(self.newly_lost, owned.partition, "newly lost", owned.newly_lost_bytes)
        self._count(self.rolled_back, owned.partition, "rolled back", owned.new_rollbacks)
        for name, family in self._writer_counters.items():
            value = int(getattr(owned.writer, name))
            self._count(family, owned.partition, name, value)

    def _count(
        self, family: Family[Counter], partition: int, name: str, value: int, *labels: str
    ) -> None:
        grown = max(0, value - self._counted.get((partition, name), 0))
        family.labels(partition, *labels).inc(grown)
        self._counted[partition, name] = value

    def opened(self, partition: int) -> None:
        """Forget what was counted while the partition was owned before, and show its counts: one
        that is there before it grows is never taken for an old one.
        """
        for key in [key for key in self._counted if key[0] == partition]:
            del self._counted[key]
        for family in self._by_partition:
            family.labels(partition)

    def look(self, owned: OwnedPartition) -> None:
        """Set the metrics of how far *owned* is behind."""
        self._count(self.missed, owned.partition, "missed", owned.missed.count)
        damaged = owned.writer.newly_damaged_bytes
        self._count(self.newly_damaged, owned.partition, "newly damaged", damaged)
        for reason, value in owned.writer.removed.bytes.items():
            self._count(self.removed, owned.partition, f"removed {reason}", value, reason)
        self.lag_messages.labels(owned.partition).set(owned.lag.pending)
        self.lag_seconds.labels(owned.partition).set(lag_seconds(owned))
        self.lag_bytes.labels(owned.partition).set(owned.lag.bytes)
        self.uncommitted.labels(owned.partition).set(owned.writer.dirty_bytes)
        self.damaged.labels(owned.partition).set(owned.writer.damaged_bytes)

    def gone(self, partition: int) -> None:
        """Remove the metrics that exist only for an owned partition."""
        for family in (
            self.epoch,
            self.lag_messages,
            self.lag_seconds,
            self.lag_bytes,
            self.uncommitted,
            self.missing,
            self.lost,
            self.damaged,
            self.rollbacks,
        ):
            family.forget(partition)


def lag_seconds(owned: OwnedPartition) -> float:
    """Return the age of the last message that was read, 0 where all was read and committed."""
    if (owned.lag.pending == 0 and owned.is_clean) or not owned.lag.time_ns:
        return 0.0
    return max(0.0, time.time() - owned.lag.time_ns / 1e9)
