"""How the workers of one collector share its partitions: each takes a contiguous part of whatever
range the collector is given. They are one member with one folder; what tells them apart is only
who holds a partition's files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from logpipeline.partition import PartitionRange, split
from logpipeline_collector.archive.usage import Board
from logpipeline_collector.config import CollectorConfig

# A worker that may open fewer files would spend its time on opening them.
OPEN_FILES_MIN = 16


@dataclass(frozen=True, slots=True)
class Share:
    """Worker *index* of *count*. *incarnation* is the collector's, whose heartbeat speaks for all
    of them; *page* is the descriptor of the socket at which the collector asks the worker.
    """

    index: int
    count: int
    incarnation: str
    page: int

    def encode(self) -> str:
        """Return the share as text."""
        return f"{self.index}/{self.count}/{self.page}/{self.incarnation}"

    @staticmethod
    def decode(text: str) -> Share:
        """Return the share that `encode` wrote.

        Raises:
            ValueError: it is none.
        """
        index, count, page, incarnation = text.split("/", 3)
        return Share(int(index), int(count), incarnation, int(page))

    def of(self, owned: PartitionRange) -> PartitionRange:
        """Return our part of the collector's range: contiguous, and of a size that differs from the
        others' by at most one.
        """
        part = split(partitions=len(owned), collectors=self.count)[self.index] if owned else owned
        return PartitionRange(owned.first + part.first, owned.first + part.end) if owned else part

    def limited(self, config: CollectorConfig) -> CollectorConfig:
        """Return *config* with our part of the limits that are the whole collector's."""
        files = max(config.archive.open_files_max // self.count, OPEN_FILES_MIN)
        return replace(
            config,
            pull_budget_bytes=config.pull_budget_bytes // self.count,
            archive=replace(config.archive, open_files_max=files),
        )

    def board(self, config: CollectorConfig) -> Board:
        """Return where the workers tell each other how much they keep."""
        return Board(board_path(config), index=self.index, count=self.count)


def board_path(config: CollectorConfig) -> Path:
    """Return where the workers of a folder tell each other how much they keep."""
    return config.state_path(0).parent / f"{config.member}.usage"
