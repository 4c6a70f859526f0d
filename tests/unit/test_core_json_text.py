"""JSON of other processes: one error for all that is wrong, and no number that fails later."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline import json_text

NUMBERS = st.integers(-json_text.INTEGER_MAX, json_text.INTEGER_MAX) | st.floats(
    allow_nan=False, allow_infinity=False
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES, st.none() | st.just((",", ":")))
def test_what_json_writes_is_read_back(value: object, separators: tuple[str, str] | None) -> None:
    """Also lone surrogates, which stand for bytes that are no UTF-8, as text and as bytes."""
    text = json.dumps(value, separators=separators)

    assert json_text.parse(text) == value
    assert json_text.parse(text.encode()) == value


@given(VALUES, st.booleans())
def test_what_is_stored_is_read_back(value: object, sort_keys: bool) -> None:
    """In ASCII, and in one line."""
    text = json_text.dump(value, sort_keys=sort_keys)

    assert json_text.parse(text) == value
    assert text.isascii()
    assert text.isprintable()


@pytest.mark.parametrize(
    "value", [2**64, [1, -(2**64)], {"a": 10**400}, math.nan, [math.inf]], ids=repr
)
def test_what_could_not_be_read_is_not_stored(value: object) -> None:
    """Its writer fails, and what was stored before stays."""
    with pytest.raises(ValueError):  # noqa: PT011  the standard library has its own words
        json_text.dump(value)


@pytest.mark.parametrize(
    "text",
    [
        "", "nothing", "{", '{"a":1}x', "\ufeff{}", b"\xff", b'"\xed\xa0\x80"',
        "NaN", "[Infinity]", '{"a":-Infinity}', "1e999", "[-1e999]",
        str(2**64), str(-(2**64)), "[1, 18446744073709551616]", '{"a":18446744073709551616}',
        "9" * 5000, '{"a":[' + "9" * 100_000 + "]}",
        "[" * 100_000, "[" * 5000 + "]" * 5000, '{"a":' * 5000 + "1" + "}" * 5000,
    ],
    ids=lambda text: repr(text[:12]),
)  # fmt: skip
def test_anything_else_is_a_value_error(text: str | bytes) -> None:
    """No `RecursionError` ends the task that reads, and no number is too large for its use."""
    with pytest.raises(ValueError):  # noqa: PT011  the standard library has its own words
        json_text.parse(text)


@pytest.mark.parametrize("number", [-json_text.INTEGER_MAX, -1, 0, 2**63, json_text.INTEGER_MAX])
def test_all_integers_of_64_bits_are_read(number: int) -> None:
    """Sequences are unsigned, and times may be before 1970."""
    assert json_text.parse(f'{{"a":[{number}],"b":{number}}}') == {"a": [number], "b": number}


@given(st.text(st.characters(categories=["Nd", "P", "S"]) | st.sampled_from("0123456789 ")))
def test_digits_in_strings_are_no_numbers(text: str) -> None:
    """However many there are."""
    digits = "1" * 30
    value = [f"{text}{digits}", f":{digits}", f", {digits}", digits]

    assert json_text.parse(json.dumps(value)) == value


@given(st.text(st.sampled_from('[]{}:,"\\u0123456789-+.eE \ntrufalsnNI')) | st.binary())
def test_a_text_is_read_as_json_reads_it_or_refused(text: str | bytes) -> None:
    """What is accepted has the value that the standard library gives it."""
    try:
        value = json_text.parse(text)
    except ValueError:
        return
    assert value == json.loads(text)
    assert not isinstance(value, float) or math.isfinite(value)
