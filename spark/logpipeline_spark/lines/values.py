"""Values of lines as columns of a declared type. What does not fit is left where it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from logpipeline_spark.lines.documents import Document, text_of

NULL = type(None)
INT_MAX = 2**63 - 1
# 18 digits fit in any case; a number of 19 is looked at by itself.
_INT_TEXT = r"^[+-]?[0-9]{1,18}$"
_FLOAT_TEXT = r"^[+-]?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,2})?$"
_BOOLS = {"true": True, "false": False, "True": True, "False": False}
Convert = Callable[[list[Any]], tuple[pa.Array, list[int]]]


def column(documents: Sequence[Document], key: str, convert: Convert) -> pa.Array:
    """Take what stands at *key* out of *documents* as a column; what does not fit stays there."""
    if "." not in key:
        values = [document.pop(key, None) for document in documents]
        found, misfits = convert(values)
        for row in misfits:
            documents[row][key] = values[row]
        return found
    found, misfits = convert([_at(document, key) for document in documents])
    left = set(misfits)
    for row, document in enumerate(documents):
        if row not in left:
            _remove(document, key)
    return found


def strings(values: list[Any]) -> tuple[pa.Array, list[int]]:
    """Return *values* as text: what is none, as JSON has it."""
    if set(map(type, values)) <= {str, NULL}:
        return pa.array(values, pa.string()), []
    return _each(values, _string, pa.string())


def ints(values: list[Any]) -> tuple[pa.Array, list[int]]:
    """Return *values* as int64: whole numbers, and texts of such."""
    kinds = set(map(type, values))
    if kinds <= {int, NULL}:
        try:
            return pa.array(values, pa.int64()), []
        except (OverflowError, pa.ArrowInvalid):
            return _each(values, _int, pa.int64())
    if kinds <= {str, NULL}:
        return _of_texts(values, _INT_TEXT, pa.int64(), _int)
    return _each(values, _int, pa.int64())


def floats(values: list[Any]) -> tuple[pa.Array, list[int]]:
    """Return *values* as double: numbers, and texts of such."""
    kinds = set(map(type, values))
    if kinds <= {float, NULL}:
        return pa.array(values, pa.float64()), []
    if kinds <= {str, NULL}:
        return _of_texts(values, _FLOAT_TEXT, pa.float64(), _float)
    return _each(values, _float, pa.float64())


def bools(values: list[Any]) -> tuple[pa.Array, list[int]]:
    """Return *values* as bool: these, and their texts."""
    if set(map(type, values)) <= {bool, NULL}:
        return pa.array(values, pa.bool_()), []
    return _each(values, _bool, pa.bool_())


def _of_texts(
    values: list[Any], pattern: str, kind: pa.DataType, careful: Callable[[Any], Any]
) -> tuple[pa.Array, list[int]]:
    texts = pa.array(values, pa.string())
    if pc.all(pc.match_substring_regex(texts, pattern)).as_py():
        try:
            return pc.replace_substring_regex(texts, r"^\+", "").cast(kind), []
        except pa.ArrowInvalid:
            pass
    return _each(values, careful, kind)


def _each(
    values: list[Any], careful: Callable[[Any], Any], kind: pa.DataType
) -> tuple[pa.Array, list[int]]:
    found = [None if value is None else careful(value) for value in values]
    misfits = [
        row
        for row, (value, fitting) in enumerate(zip(values, found, strict=True))
        if fitting is None and value is not None
    ]
    return pa.array(found, kind), misfits


def _string(value: Any) -> str | None:
    try:
        return value if isinstance(value, str) else text_of(value)
    except TypeError:
        return None


def _int(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        value = int(value) if value.is_integer() else None
    elif isinstance(value, str):
        is_short = len(value) <= 20 and value.isascii() and value.lstrip("+-").isdigit()
        value = _parsed(int, value) if is_short else None
    return value if isinstance(value, int) and -INT_MAX - 1 <= value <= INT_MAX else None


def _float(value: Any) -> float | None:
    if isinstance(value, str):
        value = _parsed(float, value) if value[-1:].isdigit() or value[-1:] == "." else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    found = float(value)
    # A text may say a number that is none of this type.
    return found if abs(found) <= _FLOAT_MAX else None


_FLOAT_MAX = 1.7976931348623157e308


def _bool(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    return _BOOLS.get(value) if isinstance(value, str) else None


def _parsed(kind: type[int | float], text: str) -> int | float | None:
    try:
        # Python takes `1_000` for a number, which nothing else does.
        return None if "_" in text else kind(text)
    except ValueError:
        return None


def _at(document: Document, key: str) -> Any:
    """Return what stands at *key*, or else below its first part."""
    if key in document:
        return document[key]
    first, _, rest = key.partition(".")
    inner = document.get(first) if rest else None
    return _at(inner, rest) if isinstance(inner, dict) else None


def _remove(document: Document, key: str) -> None:
    """Take out what `_at` returns; parents that are left empty go with it."""
    if key in document:
        del document[key]
        return
    first, _, rest = key.partition(".")
    inner = document.get(first) if rest else None
    if isinstance(inner, dict):
        _remove(inner, rest)
        if not inner:
            del document[first]
