"""The numbers of a table's job for Prometheus."""

from __future__ import annotations

from logpipeline_spark.job.batch import Committed
from logpipeline_spark.job.service import JobNumbers


def test_missing_bytes_are_those_of_now() -> None:
    """And not a sum over batches, each of which says how many there are."""
    numbers = JobNumbers()

    for missing in (490, 490, 0):
        numbers.count(Committed(rows=1, has_more=False, missing_bytes=missing), 1)
        assert numbers.metrics.value("missing_bytes") == missing
