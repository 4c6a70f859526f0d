"""Records that were made of another process's JSON: their fields have the declared types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pytest

from logpipeline.checksum import Checksum
from logpipeline.declared_types import checked


class Pair(NamedTuple):
    """A named tuple in a record."""

    first: int
    second: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """A field of each kind."""

    number: int = 1
    share: float = 0.5
    flag: bool = True
    text: str = ""
    kind: Literal["a", "b"] = "a"
    sum: Checksum | None = None
    pair: Pair | None = None
    rows: tuple[Pair, ...] = ()
    hole: tuple[str, int] = ("", 0)
    by_name: Mapping[str, Pair] | None = None
    names: list[str] | None = None
    anything: Any = None


@pytest.mark.parametrize(
    "record",
    [
        Record(),
        Record(share=1, sum=Checksum(1), pair=Pair(1, "a"), rows=(Pair(1),), hole=("a", 1)),
        Record(by_name={"a": Pair(1)}, names=["a"], anything=object(), kind="b"),
        Pair(1),
    ],
)
def test_a_record_of_the_declared_types_is_returned(record: object) -> None:
    """Itself; a whole number is a fraction as well."""
    assert checked(record) is record


@pytest.mark.parametrize(
    "fields",
    [
        {"number": 1.0}, {"number": True}, {"number": "1"}, {"number": None}, {"share": "1"},
        {"share": True}, {"flag": 1}, {"text": b""}, {"text": None}, {"kind": "c"}, {"kind": []},
        {"sum": "1"}, {"pair": (1, "")}, {"pair": Pair("1")}, {"rows": [Pair(1)]},  # type: ignore[arg-type]
        {"rows": (Pair(1), 1)}, {"hole": ("a",)}, {"hole": (1, "a")}, {"hole": ("a", 1, 1)},
        {"by_name": {1: Pair(1)}}, {"by_name": {"a": 1}}, {"by_name": []}, {"names": ["a", 1]},
    ],
)  # fmt: skip
def test_a_record_of_another_type_is_refused(fields: dict[str, Any]) -> None:
    """At any depth."""
    with pytest.raises(TypeError, match=next(iter(fields))):
        checked(Record(**fields))
