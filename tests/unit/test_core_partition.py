"""The partition function and the sharing of partitions must never change: other languages compute
the same.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.partition import PartitionRange, fnv1a_32, partition_of, split

# RFC 9923 and the authors' own test suite.
FNV_VECTORS = [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)]

# From the Go shipper, with 10 partitions.
HOST_VECTORS = [
    ("web1.example.net", 5),
    ("web2.example.net", 0),
    ("node-a", 7),
    ("node-b", 6),
    ("localhost", 8),
    ("ip-10-0-0-12.eu-west-1.compute.internal", 0),
    ("gke-prod-pool-1-3f2a9c7e-x1z2", 8),
    ("kind-control-plane", 8),
    ("kind-worker", 4),
    ("kind-worker2", 2),
    ("minikube", 1),
    ("Node-A", 9),
    ("node-a.example.com", 6),
    ("k3d-agent-0", 8),
    ("é.example", 7),
]


@pytest.mark.parametrize(("data", "value"), FNV_VECTORS)
def test_the_hash_has_its_published_values(data: bytes, value: int) -> None:
    """32-bit FNV-1a, as in Go's hash/fnv."""
    assert fnv1a_32(data) == value


def test_the_hash_of_a_host_is_that_of_the_go_shipper() -> None:
    """The two hashes that the Go code printed."""
    assert fnv1a_32(b"web1.example.net") == 2117403425
    assert fnv1a_32(b"node-a") == 79934867


@pytest.mark.parametrize(("host", "partition"), HOST_VECTORS)
def test_a_host_has_the_partition_of_the_go_shipper(host: str, partition: int) -> None:
    """The same host goes to the same partition, whoever ships it."""
    assert partition_of(host, 10) == partition


def test_no_partitions_mean_the_one_partition_zero() -> None:
    """fshipper's default."""
    assert partition_of("anything", 0) == 0


def test_a_negative_count_is_refused() -> None:
    """A modulo of a negative number would be a partition that nobody reads."""
    with pytest.raises(ValueError, match="0 or more"):
        partition_of("host", -1)


@given(partitions=st.integers(0, 1024), collectors=st.integers(1, 300))
def test_ranges_cover_every_partition_once_and_differ_by_at_most_one(
    partitions: int, collectors: int
) -> None:
    """Contiguous, covering, disjoint, fair."""
    ranges = split(partitions=partitions, collectors=collectors)

    assert [p for owned in ranges for p in owned.partitions()] == list(range(max(partitions, 1)))
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1
    assert len(ranges) == collectors


def test_nobody_to_share_among_gets_nothing() -> None:
    """A pipeline scaled to zero collectors."""
    assert split(partitions=10, collectors=0) == []


@pytest.mark.parametrize(("first", "end"), [(-1, 1), (3, 2)])
def test_an_impossible_range_is_refused(first: int, end: int) -> None:
    """Only a bug makes one."""
    with pytest.raises(ValueError, match="partition range"):
        PartitionRange(first, end)


@pytest.mark.parametrize(("first", "end", "text"), [(0, 0, "none"), (3, 4, "3"), (0, 5, "0-4")])
def test_a_range_reads_as_people_write_it(first: int, end: int, text: str) -> None:
    """As in the status of a pipeline."""
    assert str(PartitionRange(first, end)) == text
