"""Options of the pods of a component; ignored on one machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from logpipeline.spec.declaration import CrossRule, matches, spec

# A name of a label, with or without a domain before it, and a value of one.
KEY = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
VALUE = r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"
KEY_CHARS_MAX = 317
VALUE_CHARS_MAX = 63
Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]
_WITH_VALUES = ("In", "NotIn")
_SIGNS = {"In": "in", "NotIn": "notin"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRequirement:
    """A condition on one label."""

    key: str = spec(
        "The label's name.",
        min_length=1, max_length=KEY_CHARS_MAX, pattern=KEY, example="example.net/team",
    )  # fmt: skip
    operator: Operator = spec("What holds of it.")
    values: tuple[str, ...] = spec(
        "Of In and NotIn: the values that are meant.",
        factory=tuple, max_items=64, max_length=VALUE_CHARS_MAX, pattern=VALUE, example="blue",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSelector:
    """Objects by their labels; all that it says has to hold."""

    match_labels: dict[str, str] = spec("With all of these labels.", factory=dict)
    match_expressions: tuple[LabelRequirement, ...] = spec(
        "What holds of further labels.", factory=tuple, max_items=128
    )


def both(first: LabelSelector | None, second: LabelSelector | None) -> LabelSelector | None:
    """Return the selector of the objects that *first* and *second* select; None selects all."""
    found = [each for each in (first, second) if each is not None]
    if len(found) < 2:
        return found[0] if found else None
    unique = dict.fromkeys(part for each in found for part in _requirements(each))
    return LabelSelector(match_expressions=tuple(unique))


def query_of(selector: LabelSelector) -> str:
    """Return *selector* as a request to the API server has it."""
    return ",".join(_words(each) for each in _requirements(selector))


def _requirements(selector: LabelSelector) -> tuple[LabelRequirement, ...]:
    labels = sorted(selector.match_labels.items())
    return (
        *(LabelRequirement(key=key, operator="In", values=(value,)) for key, value in labels),
        *selector.match_expressions,
    )


def _words(requirement: LabelRequirement) -> str:
    key, operator = requirement.key, requirement.operator
    if operator in _WITH_VALUES:
        return f"{key} {_SIGNS[operator]} ({','.join(requirement.values)})"
    return key if operator == "Exists" else f"!{key}"


def _are_labels(labels: dict[str, Any]) -> bool:
    return all(
        len(key) <= KEY_CHARS_MAX and matches(KEY, key) and matches(VALUE, str(value))
        for key, value in labels.items()
    )


NAMESPACE_RULES = (
    CrossRule(
        "selector-says-something",
        LabelSelector,
        "",
        "(has(self.matchLabels) && self.matchLabels.size() > 0) || "
        "(has(self.matchExpressions) && self.matchExpressions.size() > 0)",
        "selects nothing: give matchLabels or matchExpressions",
        lambda selector: bool(selector.match_labels or selector.match_expressions),
    ),
    CrossRule(
        "labels-are-labels",
        LabelSelector,
        "matchLabels",
        # The patterns are for the parser: the API server bounds the cost of looking for them.
        f"!has(self.matchLabels) || self.matchLabels.all(k, k.size() <= {KEY_CHARS_MAX} && "
        f"self.matchLabels[k].size() <= {VALUE_CHARS_MAX})",
        "needs names and values of labels, such as example.net/team: blue",
        lambda selector: _are_labels(selector.match_labels),
    ),
    CrossRule(
        "values-with-in",
        LabelRequirement,
        "values",
        f"(self.operator in {list(_WITH_VALUES)}) == (has(self.values) && self.values.size() > 0)",
        "are needed by In and NotIn, and have no meaning with Exists and DoesNotExist",
        lambda requirement: (requirement.operator in _WITH_VALUES) == bool(requirement.values),
    ),
)


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
