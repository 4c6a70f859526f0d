"""What a collector counts for alerts begins at 0 with its partition, and is its own."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from logpipeline.records import StreamPosition
from logpipeline_collector.metrics import WRITER_COUNTERS, CollectorMetrics
from logpipeline_collector.owned_partition import OwnedPartition
from logpipeline_collector.sink import Removed
from logpipeline_collector.stream_position import Marks

ALERTS = Path(__file__).resolve().parents[2] / "deploy" / "alerts.yaml"
PREFIX = "logpipeline_collector_"
# What reasons there are is known with the first message.
BY_REASON = {"dead_letters_total"}


def owned_after(*, lost_bytes: int, rollbacks: int, damaged_bytes: int = 0) -> OwnedPartition:
    """A partition that was taken with this much in its record."""
    record = SimpleNamespace(
        epoch=1, refused=(), missed_messages=0, lost_bytes=lost_bytes, snapshot_at=0, begun=0
    )
    writer = SimpleNamespace(
        lost_bytes=lost_bytes,
        missing_bytes=0,
        dirty_bytes=0,
        damaged_bytes=damaged_bytes,
        newly_damaged_bytes=damaged_bytes,
        removed=Removed(),
        **dict.fromkeys(WRITER_COUNTERS, 0),
    )
    return OwnedPartition(
        partition=3,
        stream="LOGS_3",
        subjects=(),
        writer=cast("Any", writer),
        held=cast("Any", SimpleNamespace(record=record)),
        position=StreamPosition("then", 1, 1),
        rollbacks=rollbacks,
        marks=Marks(),
        assignment=lambda: 1,
        commit_bytes=1,
        committed_to=lambda *_: None,
        goes_on=lambda: True,
    )


def counted(metrics: CollectorMetrics) -> dict[str, float]:
    """The values of the counters of partition 3, with its other labels left out."""
    families = text_string_to_metric_families(metrics.metrics.exposition().decode())
    return {
        sample.name.removeprefix(PREFIX): sample.value
        for family in families
        for sample in family.samples
        if family.type == "counter" and sample.labels.get("partition") == "3"
    }


def test_what_alerts_count_is_there_before_it_grows() -> None:
    """From the first look at a partition on: what is counted next is news for Prometheus."""
    metrics = CollectorMetrics()
    metrics.opened(3)
    metrics.look(owned_after(lost_bytes=5, rollbacks=1))

    asked = set(re.findall(rf"GREW\({PREFIX}(\w+)", ALERTS.read_text()))
    assert len(asked) > 4
    assert {name: counted(metrics).get(name) for name in asked - BY_REASON} == dict.fromkeys(
        asked - BY_REASON, 0
    )


def test_what_a_predecessor_counted_is_no_news() -> None:
    """The gauges go on from it; the counters of this process begin at 0."""
    metrics = CollectorMetrics()
    owned = owned_after(lost_bytes=50, rollbacks=2)
    metrics.opened(3)
    metrics.committed(owned, 0.1)
    before = counted(metrics)
    cast("Any", owned.writer).lost_bytes = 57
    owned.rollbacks += 1
    metrics.committed(owned, 0.1)

    assert (before["newly_lost_bytes_total"], before["rolled_back_total"]) == (0, 0)
    after = counted(metrics)
    assert (after["newly_lost_bytes_total"], after["rolled_back_total"]) == (7, 1)
    assert metrics.metrics.value("lost_bytes", partition="3") == 57


@pytest.mark.parametrize("times", [1, 2])
def test_damage_that_the_opening_found_is_counted_once_for_each_opening(times: int) -> None:
    """A partition that comes again brings what its opening found again, and no more."""
    metrics = CollectorMetrics()
    for _ in range(times):
        metrics.opened(3)
        for _ in range(2):
            metrics.look(owned_after(lost_bytes=0, rollbacks=0, damaged_bytes=9))

    assert counted(metrics)["newly_damaged_bytes_total"] == 9 * times
