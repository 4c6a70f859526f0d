"""JSON that another process wrote: a record in a bucket, a message, a file, an answer.

Whoever may write such a text may write any text, so all that is wrong with it has to be one error.
The standard library's parser has two: a text that is nested too deeply is a `RecursionError`, which
is no `ValueError` and ends the task that reads it. It also takes what is no JSON (NaN) and numbers
that fail later, at a place where nothing is expected to fail: `int(1e999)` is an `OverflowError`.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

# Sequences, sizes and times have at most 64 bits.
INTEGER_MAX = 2**64 - 1
# An integer that may be larger: 20 digits in a row where a number can begin. A checked
# integer costs as much as reading ten, so they are checked only where there is such a one; digits
# in a string, as in an id, are behind a letter, a digit or a quote.
_LONG_INTEGER = re.compile(r"(?:^|[\[:,\s-])[0-9]{20}")


def parse(text: str | bytes | bytearray) -> Any:
    """Return the value of the JSON *text*, bytes being UTF-8.

    Its numbers are finite, and its integers have at most 64 bits beside
    their sign. Strings may hold lone surrogates
    (as escapes): so programs write bytes that are no UTF-8.

    Raises:
        ValueError: it is not JSON, or has other numbers, or is nested too deeply.
    """
    if not isinstance(text, str):
        text = str(text, "utf-8")
    decoder = _CHECKING if _LONG_INTEGER.search(text) else _DECODER
    try:
        return decoder.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def dump(value: Any, *, sort_keys: bool = False) -> str:
    """Return *value* as JSON without spaces, in ASCII: for what a part of a pipeline stores, and
    has to be able to read.

    Raises:
        ValueError: `parse` would refuse it.
    """
    text = (_SORTING if sort_keys else _ENCODER).encode(value)
    if _LONG_INTEGER.search(text):
        parse(text)
    return text


def no_constant(word: str) -> float:
    """Refuse NaN and its like.

    Raises:
        ValueError: always.
    """
    raise ValueError(f"{word} is not JSON")


def finite(text: str) -> float:
    """Return the number in *text*.

    Raises:
        ValueError: it is too large for a double.
    """
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"a number is too large: {text[:40]}")
    return number


def _integer(text: str) -> int:
    # The length first: converting takes time that grows with the square of it.
    if len(text) <= len(str(-INTEGER_MAX)) and abs(number := int(text)) <= INTEGER_MAX:
        return number
    raise ValueError(f"an integer has more than 64 bits: {text[:40]}")


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_SORTING = json.JSONEncoder(separators=(",", ":"), allow_nan=False, sort_keys=True)
_DECODER = json.JSONDecoder(parse_constant=no_constant, parse_float=finite)
_CHECKING = json.JSONDecoder(parse_constant=no_constant, parse_float=finite, parse_int=_integer)
