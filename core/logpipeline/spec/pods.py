"""What a resource may say about the pods of a component; ignored on one machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from logpipeline.spec.fields import spec


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOptions:
    """Settings of a component's pods, in Kubernetes' own terms."""

    image: str | None = spec(
        "Container image; by default the one of this version.", default=None, max_length=512
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = spec(
        "When the image is pulled.", default=None
    )
    image_pull_secrets: tuple[dict[str, str], ...] = spec(
        "Secrets that the image is pulled with.", factory=tuple, max_items=16
    )
    resources: dict[str, Any] | None = spec("Requests and limits of the container.", default=None)
    node_selector: dict[str, str] = spec("Labels that a node must have.", factory=dict)
    tolerations: tuple[dict[str, Any], ...] = spec(
        "Taints of nodes that the pods tolerate.", factory=tuple, max_items=64
    )
    affinity: dict[str, Any] | None = spec(
        "Which nodes and pods they are drawn to or kept from.", default=None
    )
    topology_spread_constraints: tuple[dict[str, Any], ...] = spec(
        "How the pods are spread over zones and nodes.", factory=tuple, max_items=16
    )
    priority_class_name: str | None = spec(
        "Priority class of the pods.", default=None, max_length=253
    )
    pod_labels: dict[str, str] = spec("Further labels of the pods.", factory=dict)
    pod_annotations: dict[str, str] = spec("Further annotations of the pods.", factory=dict)
    env: tuple[dict[str, Any], ...] = spec(
        "Further environment variables; of a name that the operator sets, the operator's holds.",
        factory=tuple, max_items=128,
    )  # fmt: skip
    service_account_name: str | None = spec(
        "ServiceAccount of the pods; by default one is made.",
        default=None, min_length=1, max_length=253,
    )  # fmt: skip
    termination_grace_period_seconds: int | None = spec(
        "Seconds that a pod has to stop in.", default=None, minimum=0
    )
