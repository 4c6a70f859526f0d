"""Workers of one collector share its partitions, its limits and its page."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from logpipeline.observe.metrics import Metrics
from logpipeline.partition import PartitionRange
from logpipeline_collector.archive.usage import Board, Usage
from logpipeline_collector.pages import merged
from logpipeline_collector.sharing import Share


def share(index: int, count: int) -> Share:
    """Return worker *index* of *count*."""
    return Share(index, count, "folder-token", 5)


@given(first=st.integers(0, 1000), size=st.integers(0, 1024), count=st.integers(1, 64))
def test_workers_cover_a_range_once_and_differ_by_at_most_one(
    first: int, size: int, count: int
) -> None:
    """Contiguous, covering, disjoint, fair; none of them where the collector has none."""
    owned = PartitionRange(first, first + size)
    parts = [share(index, count).of(owned) for index in range(count)]

    assert [p for part in parts for p in part.partitions()] == owned.partitions()
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_share_reads_back() -> None:
    """As it travels to its process."""
    assert Share.decode(share(2, 3).encode()) == share(2, 3)


def test_workers_keep_to_the_folders_limit_together(tmp_path: Path) -> None:
    """Each knows what the others keep, and who has the oldest file."""
    one, two = (Usage(Board(tmp_path / "usage", index=n, count=2)) for n in range(2))
    one.report("p0", size=10, oldest_ns=500)
    two.report("p1", size=7, oldest_ns=300)
    two.report("p2", size=5, oldest_ns=None)

    assert (one.size, two.size) == (22, 22)
    assert (one.oldest_of_others("p0"), two.oldest_of_others("p2")) == (300, 300)
    two.forget("p1")
    assert (one.size, one.oldest_of_others("p0")) == (15, float("inf"))


def test_numbers_of_all_workers_stand_on_one_page_under_their_label() -> None:
    """Each family once, each series once; the collector's own have no such label."""
    pages = {}
    for worker in ("0", "1"):
        metrics = Metrics("collector")
        metrics.counter("commits", "Commits", ("partition",)).labels(f"{worker} {{}}").inc()
        metrics.histogram("commit_seconds", "Seconds").labels().observe(0.1)
        pages[worker] = metrics.exposition()
    lines = merged(Metrics("collector").exposition(), pages).decode().splitlines()

    assert lines.count("# TYPE logpipeline_collector_commits_total counter") == 1
    for worker in pages:
        label, number = f'worker="{worker}"', f'partition="{worker} {{}}"'
        assert f"logpipeline_collector_commits_total{{{label},{number}}} 1.0" in lines
        assert f"logpipeline_collector_commit_seconds_count{{{label}}} 1.0" in lines
    assert any(line.startswith("process_open_fds ") for line in lines)


def test_a_worker_that_does_not_answer_leaves_the_others_numbers() -> None:
    """Prometheus still sees them."""
    page = Metrics("collector").exposition()

    assert b'process_open_fds{worker="1"}' in merged(page, {"0": b"", "1": page})
