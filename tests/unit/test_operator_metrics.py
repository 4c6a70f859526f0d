"""What the operator serves of each pipeline is what its status says."""

from __future__ import annotations

from typing import Any

from logpipeline_operator.metrics import OperatorMetrics

PLACE = {"namespace": "logging", "name": "prod"}


def status(**conditions: str) -> dict[str, Any]:
    """A status with *conditions*."""
    return {
        "conditions": [{"type": kind, "status": value} for kind, value in conditions.items()],
        "collectors": {"readyReplicas": 2},
        "shippers": {"readyPods": 3},
    }


def test_a_lost_volume_is_served_and_what_is_not_known_is_not() -> None:
    """An alert on it covers each cause that the condition has."""
    metrics = OperatorMetrics()
    seen = []
    for complete in ("True", "False", "Unknown"):
        metrics.show("logging", "prod", status(Ready="True", Complete=complete))
        seen.append(metrics.value("pipeline_complete", **PLACE))

    # JetStream that does not answer makes nothing whole.
    assert seen == [1, 0, 0]


def test_what_runs_is_served_and_goes_with_its_pipeline() -> None:
    """An alert compares it with what Prometheus has of the pods themselves."""
    metrics = OperatorMetrics()
    metrics.show("logging", "prod", status(Ready="True"))

    assert metrics.value("pipeline_ready", **PLACE) == 1
    assert metrics.value("pipeline_collectors_ready", **PLACE) == 2
    assert metrics.value("pipeline_shippers_ready", **PLACE) == 3
    metrics.forget_pipeline("logging", "prod")
    assert metrics.value("pipeline_collectors_ready", **PLACE) is None
