"""The parts that all partitions of one collector process share."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from logpipeline.nats.bucket import Bucket
from logpipeline.nats.connection import Connection
from logpipeline.nats.jetstream import JetStream
from logpipeline.nats.pull import PULLS_OUTSTANDING
from logpipeline_collector.config import CollectorConfig
from logpipeline_collector.epochs import EpochRecords
from logpipeline_collector.folder import Folder
from logpipeline_collector.intake import Intake
from logpipeline_collector.membership import Membership
from logpipeline_collector.metrics import CollectorMetrics
from logpipeline_collector.owned_partition import Committer, OwnedPartition
from logpipeline_collector.partition_writer import PartitionWriter
from logpipeline_collector.sink import Storage
from logpipeline_collector.snapshots import SnapshotStore
from logpipeline_collector.stream_reader import ConsumerName


@dataclass(eq=False, kw_only=True)
class Context:
    """See the module."""

    config: CollectorConfig
    connection: Connection
    js: JetStream
    bucket: Bucket
    folder: Folder
    epochs: EpochRecords
    membership: Membership
    intake: Intake
    committer: Committer
    executor: ThreadPoolExecutor
    storage: Storage
    metrics: CollectorMetrics
    committed_to: Callable[[OwnedPartition, float], None]
    wanted_count: Callable[[], int]
    _opened: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def open_partition(self, partition: int) -> PartitionWriter:
        """Open the partition in our storage.

        Raises:
            SinkBusy: another process has it open.
        """
        self.metrics.opened(partition)
        return PartitionWriter(self.storage.open(partition))

    def snapshots(self, partition: int) -> SnapshotStore:
        """Return the store of the partition's snapshots."""
        return SnapshotStore(
            self.js,
            stream=self.config.snapshot_stream,
            subject=self.config.snapshot_subject(partition),
            partition=partition,
        )

    def next_consumer(self, partition: int, epoch: int) -> ConsumerName:
        """Return a name that was not used before for a consumer of *partition*."""
        of = partition if self.config.names.is_single else None
        return ConsumerName(self.config.group, epoch, next(self._opened), of)

    @property
    def pull_bytes(self) -> int:
        """Bytes of one pull: its share of the pull budget."""
        return self.config.pull_budget_bytes // max(self.wanted_count(), 1) // PULLS_OUTSTANDING
