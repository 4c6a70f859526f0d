"""What a rule between fields is, and what is written in CEL often enough to be written once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CrossRule:
    """What holds between fields of a *kind*; a mistake is told at the field *path*, if any."""

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
