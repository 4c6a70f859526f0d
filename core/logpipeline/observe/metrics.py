"""Numbers for Prometheus, kept apart for each component and bounded in their count of series.

Labels come from outside: hosts, sources, reasons. Without a limit a busy cluster, or a stranger,
would make series until the process or its Prometheus is out of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics import MetricWrapperBase

# One series for each of the 1,024 partitions that may be, with some room.
SERIES_MAX = 2000
LABEL_CHARACTERS_MAX = 256
OVERFLOW = "other"
CONTENT_TYPE = CONTENT_TYPE_LATEST

# Seconds, from a line that was just written to one that waited for a night.
LATENCY_BUCKETS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600, 3600)

# They would double the count of series, and no dashboard uses them.
disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations

Metric = TypeVar("Metric", bound=MetricWrapperBase)


class Family(Generic[Metric]):
    """One metric with all its series; when there are too many, new ones are counted together."""

    def __init__(self, metric: Metric, labels: Sequence[str], series_max: int) -> None:
        self._metric = metric
        self._labels = tuple(labels)
        self._series: dict[tuple[str, ...], Metric] = {}
        self._series_max = series_max

    def labels(self, *values: object) -> Metric:
        """Return the series of *values*, in the order of the labels; the only one without any."""
        key = tuple(_label(value) for value in values)
        if len(key) != len(self._labels):
            raise ValueError(f"labels are {self._labels}, and the values given {key}")
        if not key:
            return self._metric
        series = self._series.get(key)
        if series is not None:
            return series
        if len(self._series) >= self._series_max:
            return self._metric.labels(*[OVERFLOW] * len(key))
        made = self._metric.labels(*key)
        self._series[key] = made
        return made

    def forget(self, *values: object) -> None:
        """Drop the series of *values*, whose thing is gone, and so make room for another."""
        key = tuple(_label(value) for value in values)
        if self._series.pop(key, None) is not None:
            self._metric.remove(*key)


class Metrics:
    """The metrics of one component, named `logpipeline_<component>_…`."""

    content_type = CONTENT_TYPE

    def __init__(self, component: str, *, series_max: int = SERIES_MAX) -> None:
        self._registry = CollectorRegistry()
        self._prefix = f"logpipeline_{component}_"
        self._series_max = series_max
        ProcessCollector(registry=self._registry)

    def counter(self, name: str, help: str, labels: Sequence[str] = ()) -> Family[Counter]:
        """Return a number that only grows; its name ends in `_total` when it is read."""
        made = Counter(self._prefix + name, help, labels, registry=self._registry)
        return Family(made, labels, self._series_max)

    def gauge(self, name: str, help: str, labels: Sequence[str] = ()) -> Family[Gauge]:
        """Return a number that goes up and down."""
        made = Gauge(self._prefix + name, help, labels, registry=self._registry)
        return Family(made, labels, self._series_max)

    def watch(self, name: str, help: str, read: Callable[[], float]) -> None:
        """Offer a number that is computed only when the metrics are read."""
        Gauge(self._prefix + name, help, registry=self._registry).set_function(read)

    def histogram(
        self,
        name: str,
        help: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = LATENCY_BUCKETS_S,
    ) -> Family[Histogram]:
        """Return a distribution, of seconds unless *buckets* say otherwise."""
        made = Histogram(
            self._prefix + name, help, labels, registry=self._registry, buckets=buckets
        )
        return Family(made, labels, self._series_max)

    def value(self, name: str, /, **labels: str) -> float | None:
        """Return the present value of *name*, given with its suffix and without our prefix."""
        return self._registry.get_sample_value(self._prefix + name, labels)

    def exposition(self) -> bytes:
        """Return every number in Prometheus' text format."""
        return generate_latest(self._registry)


def _label(value: object) -> str:
    # A host or path may hold bytes that are no text; one of them must not break the whole page.
    text = str(value).encode(errors="backslashreplace").decode()
    return text[:LABEL_CHARACTERS_MAX]
