"""Declarations of the resource's fields, with their limits, and of rules between fields.

The parser and the CRD are both made from these declarations, so that they cannot disagree.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

Unit = Literal["bytes", "duration"]
METADATA_KEY = "logpipeline"


@dataclass(frozen=True, slots=True)
class Former:
    """A field that there was; a resource that still has it is refused with *message*."""

    name: str
    message: str
    # An integer that says nothing: API servers wrote it as the default into what they store.
    default: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The limits of a value, beyond its type; for a list, those of each entry."""

    description: str
    unit: Unit | None = None
    minimum: int | None = None
    maximum: int | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    example: str | None = None
    is_time: bool = False
    min_items: int | None = None
    max_items: int | None = None
    # What may not occur twice in a list: this field of its entries, or ("") the entries themselves.
    unique_by: str | None = None
    # Only the operator reads it: pods get a copy without it, so that a change restarts none.
    is_for_operator: bool = False
    # What it has taken the place of.
    former: Former | None = None


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


def is_required(field: dataclasses.Field[Any]) -> bool:
    """Return whether *field* has no default."""
    return field.default is field.default_factory is dataclasses.MISSING


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a *field* that has one."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def yaml_name(field: dataclasses.Field[Any]) -> str:
    """Return the field's name in YAML: camelCase, without the unit that Python's name ends with."""
    name = field.name
    if rule_of(field).unit == "duration":
        name = name.removesuffix("_ns")
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def matches(pattern: str, text: str) -> bool:
    """Return whether *text* has a match of *pattern*, as the API server's Go sees it."""
    return _compiled(pattern).search(text) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    # Python's `$` also matches before a last newline, and its classes know more than ASCII.
    go = pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern
    return re.compile(go, re.ASCII)


@dataclass(frozen=True, slots=True)
class CrossRule:
    """A rule between fields of a *kind*; a mistake is reported at the field *path*, if any."""

    id: str
    kind: type[Any]
    path: str
    cel: str
    message: str
    holds: Callable[[Any], bool]


def nanoseconds_cel(text: str) -> str:
    """Return the CEL for the nanoseconds that the CEL *text*, a time span, stands for, as a double.

    CEL's own durations know no days. Made of substrings and numbers: the API server takes what a
    regular expression finds, and a number made a text, for unbounded, and refuses the cost.
    """
    week, day = f"{text}.indexOf('w')", f"{text}.indexOf('d')"
    weeks = f"double('0' + {text}.substring(0, {week} < 0 ? 0 : {week}))"
    days = f"double('0' + {text}.substring({week} + 1, {day} < 0 ? {week} + 1 : {day}))"
    rest = f"duration('0s' + {text}.substring(({day} < 0 ? {week} : {day}) + 1))"
    return f"({weeks} * 604800e9 + {days} * 86400e9 + double(int({rest})))"


def quantity_cel(value: str) -> str:
    """Return the CEL for the size that the CEL *value*, a number or a text, holds."""
    return f"quantity(string({value}))"
