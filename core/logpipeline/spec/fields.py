"""How a field of the resource is declared: what it is for, and its limits."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

Unit = Literal["bytes", "duration"]
METADATA_KEY = "logpipeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a value must be, beyond its type."""

    description: str
    yaml_name: str = ""
    unit: Unit | None = None
    minimum: int | None = None
    maximum: int | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    max_items: int | None = None
    is_open: bool = False
    allow: tuple[int, ...] = ()


def spec(
    description: str,
    *,
    default: Any = dataclasses.MISSING,
    factory: Any = dataclasses.MISSING,
    **limits: Any,
) -> Any:
    """Declare a field; without *default* or *factory* it is required."""
    metadata = {METADATA_KEY: Rule(description=description, **limits)}
    if factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def rule_of(field: dataclasses.Field[Any]) -> Rule:
    """Return how *field* was declared."""
    rule = field.metadata[METADATA_KEY]
    assert isinstance(rule, Rule)
    return rule


def yaml_name(field: dataclasses.Field[Any]) -> str:
    """Return the field's name in YAML: camelCase, without the unit that Python's name ends with."""
    rule = rule_of(field)
    if rule.yaml_name:
        return rule.yaml_name
    name = field.name
    if rule.unit == "duration":
        name = name.removesuffix("_ns")
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
