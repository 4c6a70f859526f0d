"""Metrics belong to one component, and their number is bounded whatever the labels are."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from logpipeline.observe.metrics import LABEL_CHARACTERS_MAX, OVERFLOW, Metrics


def test_components_of_one_process_do_not_share_numbers() -> None:
    """Two components count for themselves, even under the same name."""
    one, other = Metrics("shipper"), Metrics("shipper")

    one.counter("lines", "Lines sent.").labels().inc(3)
    other.counter("lines", "Lines sent.").labels().inc(4)

    assert one.value("lines_total") == 3
    assert other.value("lines_total") == 4


def test_every_kind_of_metric_is_exposed_under_our_name() -> None:
    """Prometheus finds counters, gauges, histograms and watched values."""
    metrics = Metrics("collector")
    metrics.counter("commits", "Commits.", ["partition"]).labels(3).inc()
    metrics.gauge("lag_bytes", "Lag.").labels().set(7)
    metrics.histogram("commit_seconds", "Time of a commit.").labels().observe(0.2)
    metrics.watch("files", "Open files.", lambda: 12)

    families = text_string_to_metric_families(metrics.exposition().decode())
    samples = {sample.name: sample.value for family in families for sample in family.samples}

    assert metrics.value("commits_total", partition="3") == 1
    assert samples["logpipeline_collector_lag_bytes"] == 7
    assert samples["logpipeline_collector_commit_seconds_count"] == 1
    assert samples["logpipeline_collector_files"] == 12
    assert samples["process_resident_memory_bytes"] > 0


def test_labels_beyond_the_limit_are_counted_together() -> None:
    """A flood of label values makes no series without end, and loses no count."""
    metrics = Metrics("collector", series_max=3)
    family = metrics.counter("dead", "Dead letters.", ["reason", "host"])

    for number in range(1000):
        family.labels("bad", f"host-{number}").inc()
    family.labels("bad", "host-0").inc()

    assert metrics.value("dead_total", reason="bad", host="host-0") == 2
    assert metrics.value("dead_total", reason=OVERFLOW, host=OVERFLOW) == 997
    assert metrics.exposition().count(b"logpipeline_collector_dead_total{") == 4


def test_what_is_gone_makes_room() -> None:
    """The series of something that left disappears, and the next one gets a place of its own."""
    metrics = Metrics("collector", series_max=1)
    family = metrics.gauge("lag", "Lag.", ["partition"])
    family.labels(1).set(5)
    family.labels(2).set(6)

    family.forget(1)
    family.forget("never seen")
    family.labels(3).set(7)

    assert metrics.value("lag", partition="1") is None
    assert metrics.value("lag", partition="3") == 7


@pytest.mark.parametrize("hostile", ["\udcff", 'a"b\n} 1', "x" * 10_000, "\x00"])
def test_a_hostile_label_leaves_the_page_readable(hostile: str) -> None:
    """One file with a strange name does not take every other number away."""
    metrics = Metrics("shipper")
    metrics.gauge("lag", "Lag.", ["source"]).labels(hostile).set(1)

    families = text_string_to_metric_families(metrics.exposition().decode())
    samples = [sample for family in families for sample in family.samples]

    (found,) = [sample for sample in samples if sample.name == "logpipeline_shipper_lag"]
    assert len(found.labels["source"]) <= LABEL_CHARACTERS_MAX


def test_a_wrong_number_of_labels_is_an_error() -> None:
    """A slip in our own code is found where it is made."""
    family = Metrics("shipper").gauge("lag", "Lag.", ["source"])

    with pytest.raises(ValueError, match="labels are"):
        family.labels("a", "b")
