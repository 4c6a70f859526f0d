"""The metrics of the operator."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from logpipeline.observe.metrics import Family, Metrics


class OperatorMetrics(Metrics):
    """Metrics of reconciliations and of the pipelines."""

    looks: Family[Counter]
    look_seconds: Family[Histogram]
    writes: Family[Counter]
    ready: Family[Gauge]
    lag_bytes: Family[Gauge]
    table_missed: Family[Gauge]
    checked: Family[Gauge]
    waiting: Family[Gauge]
    certificate_ends: Family[Gauge]

    def __init__(self) -> None:
        super().__init__("operator")
        self.looks = self.counter("looks", "Reconciliations of pipelines", ["result"])
        self.look_seconds = self.histogram(
            "look_seconds", "Time of one reconciliation of a pipeline"
        )
        self.writes = self.counter("writes", "Objects written to Kubernetes", ["what"])
        labels = ["namespace", "name"]
        self.ready = self.gauge("pipeline_ready", "Whether a pipeline works (1) or not (0)", labels)
        self.lag_bytes = self.gauge(
            "pipeline_lag_bytes", "Bytes that are stored and not yet written to files", labels
        )
        self.table_missed = self.gauge(
            "pipeline_table_missed_messages",
            "Messages that were deleted of full streams before they were in the table",
            labels,
        )
        self.checked = self.gauge(
            "pipeline_checked_timestamp_seconds",
            "When a reconciliation of a pipeline last ended",
            labels,
        )
        self.waiting = self.gauge(
            "pipelines_of_others", "Watched pipelines that another operator owns", ["operator"]
        )
        self.certificate_ends = self.gauge(
            "certificate_ends_timestamp_seconds",
            "When the first certificate of a managed server ends",
            labels,
        )

    def forget_pipeline(self, namespace: str, name: str) -> None:
        """Drop the metrics of a pipeline that is gone."""
        self.ready.forget(namespace, name)
        self.lag_bytes.forget(namespace, name)
        self.table_missed.forget(namespace, name)
        self.checked.forget(namespace, name)
        self.certificate_ends.forget(namespace, name)
