"""What a resource may say about the pods of a component; ignored on one machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from logpipeline.spec.fields import spec


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOptions:
    """Settings of a component's pods, in Kubernetes' own terms."""

    image: str | None = spec("Container image.", default=None, max_length=512)
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = spec(
        "When to pull it.", default=None
    )
    image_pull_secrets: tuple[dict[str, str], ...] = spec(
        "Secrets to pull it with.", factory=tuple, max_items=16
    )
    resources: Any = spec("Requests and limits.", default=None, is_open=True)
    node_selector: dict[str, str] = spec("Labels of nodes.", factory=dict)
    tolerations: tuple[Any, ...] = spec("Tolerations.", factory=tuple, max_items=64, is_open=True)
    affinity: Any = spec("Affinity.", default=None, is_open=True)
    topology_spread_constraints: tuple[Any, ...] = spec(
        "Spread.", factory=tuple, max_items=16, is_open=True
    )
    priority_class_name: str | None = spec("Priority class.", default=None)
    pod_labels: dict[str, str] = spec("Further labels.", factory=dict)
    pod_annotations: dict[str, str] = spec("Further annotations.", factory=dict)
    env: tuple[Any, ...] = spec(
        "Further environment variables.", factory=tuple, max_items=128, is_open=True
    )
    termination_grace_period_seconds: int | None = spec("Time to stop in.", default=None, minimum=0)
