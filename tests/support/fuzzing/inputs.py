"""Bytes for parsers: any, and such as are nearly right."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

from fuzzing.parsers import Parser

# What programs get wrong: other types, limits, and values that fail only when they are used.
JUNK: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64 - 1, 2**64, 10**400, 0.5, -0.0, 1e308, 1e999,
    float("nan"), "", "0", "a", "-1", "\0", "\ud800", "a" * 70_000, "0001-01-01",
    "9999-12-31T23:59:60Z",
    [], {}, [[]], [None], [0, 0], ["a", "b"], {"": ""}, {"a": None}, [[[[]]]],
]  # fmt: skip
VALUES = st.sampled_from(JUNK) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)  # fmt: skip
PIECES = [
    b"", b"\0", b"\xff", b"\r\n", b"\n", b" ", b":", b"-", b".", b"%", b"%ff", b"0", b"9" * 30,
    b"9" * 5000, b"[" * 3000, b'{"a":' * 3000, b"\xd9\xa3", b"\xf0\x9d\x9f\x97", b"~F~", b"&a",
    b"*a", b"!!",
]  # fmt: skip


def bytes_for(parser: Parser) -> st.SearchStrategy[bytes]:
    """Return a strategy for bytes that *parser* may be given."""
    near = st.sampled_from(parser.examples).flatmap(_changed)
    found = st.binary() | near
    return found | _changed_values(parser) if parser.is_json else found


@st.composite
def _changed(draw: st.DrawFn, example: bytes) -> bytes:
    raw = bytearray(example)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(raw)))
        end = draw(st.integers(start, min(len(raw), start + 12)))
        raw[start:end] = draw(st.sampled_from(PIECES) | st.binary(max_size=6))
    return bytes(raw)


@st.composite
def _changed_values(draw: st.DrawFn, parser: Parser) -> bytes:
    """One or two values of an example are others, or gone, or there twice."""
    examples = [each for each in parser.examples if each[:1] in (b"[", b"{")]
    value = json.loads(draw(st.sampled_from(examples)))
    for _ in range(draw(st.integers(1, 2))):
        value = _changed_value(draw, value)
    return json.dumps(value).encode()


def _changed_value(draw: st.DrawFn, value: Any) -> Any:
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 9)) == 0:
        return copy.deepcopy(draw(VALUES))
    key = draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
    match draw(st.sampled_from(["inside", "inside", "inside", "gone", "more"])):
        case "gone":
            del value[key]
        case "more":
            if isinstance(value, dict):
                value[draw(st.text(max_size=4))] = copy.deepcopy(draw(VALUES))
            else:
                value.append(copy.deepcopy(value[key]))
        case _:
            value[key] = _changed_value(draw, value[key])
    return value
