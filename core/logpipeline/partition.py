"""The partition of a host. Shippers in other languages compute the same number, so it
must never change.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NewType

Partition = NewType("Partition", int)

FNV_OFFSET_BASIS_32 = 0x811C9DC5
FNV_PRIME_32 = 0x01000193

# Kubernetes' largest supported cluster has 5,000 nodes; a stream message costs two look-ups at
# most.
HOSTS_CACHED_MAX = 8192


def fnv1a_32(data: bytes) -> int:
    """Return the 32-bit FNV-1a hash of *data* (RFC 9923; the same as Go's ``hash/fnv`` New32a)."""
    value = FNV_OFFSET_BASIS_32
    for byte in data:
        value = ((value ^ byte) * FNV_PRIME_32) & 0xFFFFFFFF
    return value


@lru_cache(maxsize=HOSTS_CACHED_MAX)
def partition_of(host: str, partitions: int) -> Partition:
    """Return the partition of *host*: ``fnv1a_32(host as UTF-8) % partitions``; 0 partitions mean
    partition 0.

    Raises:
        ValueError: *partitions* is negative.
    """
    if partitions < 0:
        raise ValueError(f"partitions must be 0 or more, not {partitions}")
    if partitions == 0:
        return Partition(0)
    return Partition(fnv1a_32(host.encode("utf-8", "surrogatepass")) % partitions)


@dataclass(frozen=True, slots=True, order=True)
class PartitionRange:
    """Partitions from *first* up to, but without, *end*; an empty range has first == end."""

    first: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.end:
            raise ValueError(f"negative or inverted partition range: {self.first}..{self.end}")

    def __contains__(self, partition: object) -> bool:
        return isinstance(partition, int) and self.first <= partition < self.end

    def __len__(self) -> int:
        return self.end - self.first

    def __str__(self) -> str:
        if not len(self):
            return "none"
        return str(self.first) if len(self) == 1 else f"{self.first}-{self.end - 1}"

    def partitions(self) -> list[Partition]:
        """Return the partitions of the range in rising order."""
        return [Partition(number) for number in range(self.first, self.end)]


def split(*, partitions: int, collectors: int) -> list[PartitionRange]:
    """Share *partitions* among *collectors*: contiguous, covering, disjoint, sizes differing by at
    most one.

    0 partitions are the one partition 0. Surplus collectors get an empty range.
    """
    count = max(partitions, 1)
    if collectors <= 0:
        return []
    return [
        PartitionRange(count * index // collectors, count * (index + 1) // collectors)
        for index in range(collectors)
    ]
