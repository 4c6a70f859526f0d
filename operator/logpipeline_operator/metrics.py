"""The metrics of the operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from logpipeline.observe.metrics import Family, Metrics
from logpipeline_operator.status import previous_status

PIPELINE_LABELS = ["namespace", "name"]


class OperatorMetrics(Metrics):
    """Metrics of reconciliations and of the pipelines."""

    looks: Family[Counter]
    look_seconds: Family[Histogram]
    writes: Family[Counter]
    ready: Family[Gauge]
    complete: Family[Gauge]
    lag_bytes: Family[Gauge]
    table_missed: Family[Gauge]
    readers_missed: Family[Gauge]
    collectors_ready: Family[Gauge]
    shippers_ready: Family[Gauge]
    checked: Family[Gauge]
    waiting: Family[Gauge]
    certificate_ends: Family[Gauge]
    namespaces_unlisted: Family[Gauge]

    def __init__(self) -> None:
        super().__init__("operator")
        self.looks = self.counter("looks", "Reconciliations of pipelines", ["result"])
        self.look_seconds = self.histogram(
            "look_seconds", "Time of one reconciliation of a pipeline"
        )
        self.writes = self.counter("writes", "Objects written to Kubernetes", ["what"])
        self._of_pipelines: list[Family[Gauge]] = []
        self.ready = self._of_pipeline("pipeline_ready", "Whether a pipeline works (1) or not (0)")
        self.complete = self._of_pipeline(
            "pipeline_complete", "Whether all is there (1), or lines were lost for good (0)"
        )
        self.lag_bytes = self._of_pipeline(
            "pipeline_lag_bytes", "Bytes that are stored and not yet written to files"
        )
        self.table_missed = self._of_pipeline(
            "pipeline_table_missed_messages",
            "Messages that were deleted of full streams before they were in the table",
        )
        self.readers_missed = self._of_pipeline(
            "pipeline_readers_missed_messages",
            "Messages that were deleted of full streams before readers of `consume` got to them",
        )
        self.collectors_ready = self._of_pipeline(
            "pipeline_collectors_ready", "Collectors of a pipeline that are ready"
        )
        self.shippers_ready = self._of_pipeline(
            "pipeline_shippers_ready", "Shippers of a pipeline's DaemonSet that are ready"
        )
        self.checked = self._of_pipeline(
            "pipeline_checked_timestamp_seconds", "When a reconciliation of a pipeline last ended"
        )
        self.waiting = self.gauge(
            "pipelines_of_others", "Watched pipelines that another operator owns", ["operator"]
        )
        self.namespaces_unlisted = self.gauge(
            "namespaces_unlisted", "Watched namespaces whose pipelines could not be listed"
        )
        self.certificate_ends = self._of_pipeline(
            "certificate_ends_timestamp_seconds",
            "When the first certificate of a managed server ends",
        )

    def show(self, namespace: str, name: str, status: Mapping[str, Any]) -> None:
        """Serve what the *status* of a pipeline says now."""
        place = namespace, name
        is_ready = previous_status.condition(status, "Ready").get("status") == "True"
        self.ready.labels(*place).set(1.0 if is_ready else 0.0)
        is_complete = previous_status.condition(status, "Complete").get("status")
        if is_complete in ("True", "False"):
            self.complete.labels(*place).set(1.0 if is_complete == "True" else 0.0)
        self.collectors_ready.labels(*place).set(status["collectors"]["readyReplicas"])
        self.shippers_ready.labels(*place).set(status["shippers"]["readyPods"])

    def forget_pipeline(self, namespace: str, name: str) -> None:
        """Drop the metrics of a pipeline that is gone."""
        for family in self._of_pipelines:
            family.forget(namespace, name)

    def _of_pipeline(self, name: str, help_text: str) -> Family[Gauge]:
        """Return a new metric of each pipeline; `forget_pipeline` drops its values."""
        family = self.gauge(name, help_text, PIPELINE_LABELS)
        self._of_pipelines.append(family)
        return family
