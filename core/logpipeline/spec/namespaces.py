"""Namespaces by their labels, as everywhere in Kubernetes: who selects some of them, and how what
two people select is put together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from logpipeline.spec.crossrule import CrossRule
from logpipeline.spec.fields import matches, spec

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
    """What holds of one label."""

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
    """Return what selects the objects that *first* and *second* select; None selects all."""
    found = [each for each in (first, second) if each is not None]
    if len(found) < 2:
        return found[0] if found else None
    told = dict.fromkeys(part for each in found for part in _requirements(each))
    return LabelSelector(match_expressions=tuple(told))


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
