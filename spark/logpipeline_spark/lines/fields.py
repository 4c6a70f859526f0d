"""The columns that a user declares, filled from JSON, logfmt or the groups of an expression."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from logpipeline.line_fields import (
    Document,
    pairs,
    remove,
    to_bool,
    to_float,
    to_int,
    value_at,
)
from logpipeline.spec.table import LineField, ParseRule, TimeRule
from logpipeline.timestamps import HEAD_BYTES_MAX
from logpipeline_spark.lines.schema import FIELDS, LINES, NO_RULE, PARSED, TIME, Columns, schema_of
from logpipeline_spark.lines.timestamps import Instants, instants, of_numbers

NULL = type(None)
# 18 digits always fit; a number of 19 is parsed by itself.
_INT_TEXT = r"^[+-]?[0-9]{1,18}$"
_FLOAT_TEXT = r"^[+-]?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,2})?$"
Convert = Callable[[list[Any]], tuple[pa.Array, list[int]]]

# Dictionaries of so many lines stay in the processor's cache: a trial with four times as many took
# a quarter longer.
LINES_AT_ONCE = 256
# Separates two lines, so that one cannot pass for two, nor two for one: no writer of a line knows
# it.
_BETWEEN = secrets.randbits(62)
_SEPARATOR = f",{_BETWEEN},"
_OPENERS = pa.array([b"{", b" ", b"\t"])

# A pair of logfmt. Without backslashes: in a plain value they stand for themselves, unlike in JSON.
_PAIR = r'([^\s="\\]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s"\\]*))(?:\s+|$)'
_PAIRS = r'^(?:[^\s="\\]+=(?:"(?:[^"\\]|\\.)*"|[^\s"\\]*)(?:\s+|$))+$'
_MEMBER = r',"\1":"\2\3"'
_NEWLINE = orjson.Fragment(b"\n")

Numbers = npt.NDArray[np.int64]
Facts = npt.NDArray[np.bool_]
Filled = dict[str, pa.Array]


def column(documents: Sequence[Document], key: str, convert: Convert) -> pa.Array:
    """Take the values at *key* out of *documents* as a column; values that do not fit
    stay there.
    """
    if "." not in key:
        values = [document.pop(key, None) for document in documents]
        found, misfits = convert(values)
        for row in misfits:
            documents[row][key] = values[row]
        return found
    found, misfits = convert([value_at(document, key) for document in documents])
    left = set(misfits)
    for row, document in enumerate(documents):
        if row not in left:
            remove(document, key)
    return found


def strings(values: list[Any]) -> tuple[pa.Array, list[int]]:
    """Return *values* as text; other values in their JSON form."""
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
            return _each(values, to_int, pa.int64())
    if kinds <= {str, NULL}:
        return _of_texts(values, _INT_TEXT, pa.int64(), to_int)
    return _each(values, to_int, pa.int64())


def floats(values: list[Any]) -> tuple[pa.Array, list[int]]:
    """Return *values* as double: numbers, and texts of such."""
    kinds = set(map(type, values))
    if kinds <= {float, NULL}:
        return pa.array(values, pa.float64()), []
    if kinds <= {str, NULL}:
        return _of_texts(values, _FLOAT_TEXT, pa.float64(), to_float)
    return _each(values, to_float, pa.float64())


def bools(values: list[Any]) -> tuple[pa.Array, list[int]]:
    """Return *values* as bool: booleans, and their texts."""
    if set(map(type, values)) <= {bool, NULL}:
        return pa.array(values, pa.bool_()), []
    return _each(values, to_bool, pa.bool_())


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


# Many lines are read at a time. orjson reads a list of them in one call; no reader of Arrow's keeps
# undeclared fields, or continues after a bad line.
def documents(lines: pa.Array, rule: ParseRule) -> list[Document | None]:
    """Return the fields of each of *lines* (text), and None for lines that do not have the rule's
    format. Meant for LINES_AT_ONCE lines.
    """
    if rule.format == "json":
        starts = pc.binary_slice(lines.cast(pa.binary()), 0, 1)
        return _chosen(lines, pc.is_in(starts, _OPENERS), _of_json)
    if rule.format == "logfmt":
        return _chosen(lines, pc.match_substring_regex(lines, '^[^\\s="]+='), _of_logfmt)
    assert rule.pattern is not None
    return _of_groups(lines, rule.pattern)


def texts(documents: list[Document]) -> list[str | None]:
    """Return the rest of *documents* as JSON, None if nothing is left.

    Raises:
        TypeError: one is too deep; see `is_shallow`.
    """
    # The text of an object has no newline, so that one separates two of them.
    parts: list[Any] = [_NEWLINE] * (2 * len(documents))
    parts[0::2] = documents
    found = orjson.dumps(parts)[1:-1].decode().split(",\n,")
    found[-1] = found[-1].removesuffix(",\n")
    return [None if text == "{}" else text for text in found]


def text_of(value: Any) -> str:
    """Return *value* as JSON.

    Raises:
        TypeError: it is too deep.
    """
    return orjson.dumps(value).decode()


def is_shallow(document: Document) -> bool:
    """Return whether *document* can be written: orjson reads 1,024 levels and writes 254."""
    try:
        text_of([document])
    except TypeError:
        return False
    return True


def _chosen(
    lines: pa.Array, is_candidate: pa.Array, read: Callable[[pa.Array], list[Document | None]]
) -> list[Document | None]:
    """Return the result of *read* for candidates, and None for all others."""
    if pc.all(is_candidate).as_py():
        return read(lines)
    found = iter(read(lines.filter(is_candidate)))
    return [next(found) if is_one else None for is_one in is_candidate.to_pylist()]


def _of_json(lines: pa.Array) -> list[Document | None]:
    return _objects(lines, lines, _object)


def _of_logfmt(lines: pa.Array) -> list[Document | None]:
    is_plain = pc.match_substring_regex(lines, _PAIRS)
    members = pc.replace_substring_regex(pc.if_else(is_plain, lines, ""), _PAIR, _MEMBER)
    objects = pc.binary_join_element_wise("{", pc.utf8_ltrim(members, ","), "}", "")
    return _objects(pc.if_else(is_plain, objects, ""), lines, pairs)


def _of_groups(lines: pa.Array, pattern: str) -> list[Document | None]:
    found = pc.extract_regex(lines, pattern)
    names = [field.name for field in found.type]
    columns = [found.field(name).to_pylist() for name in names]
    # A group without a match cannot be told from an empty one.
    return [
        {name: value for name, value in zip(names, row, strict=True) if value} if is_found else None
        for is_found, *row in zip(found.is_valid().to_pylist(), *columns, strict=True)
    ]


def _objects(
    objects: pa.Array, lines: pa.Array, careful: Callable[[str], Document | None]
) -> list[Document | None]:
    """Return *objects* (JSON) in the place of *lines*, read at once. If one of them is not an
    object, return the results of *careful* for each line.
    """
    if not len(objects):
        return []
    whole = pa.ListArray.from_arrays(pa.array([0, len(objects)], pa.int32()), objects)
    try:
        found = orjson.loads(f"[{pc.binary_join(whole, _SEPARATOR)[0].as_py()}]")
    except orjson.JSONDecodeError:
        found = []
    rows: list[Document | None] = found[0::2]
    # Else a line of two values would pass if it is the last one.
    count = len(objects)
    is_aligned = len(found) == 2 * count - 1 and found[1::2].count(_BETWEEN) == count - 1
    if is_aligned and set(map(type, rows)) == {dict}:
        return rows
    return [careful(line) for line in lines.to_pylist()]


def _object(line: str) -> Document | None:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


_CONVERT: dict[str, Convert] = {
    "string": strings,
    "int": ints,
    "float": floats,
    "bool": bools,
}


def declared(
    lines: pa.Array, rules: Numbers, are_pieces: Facts, near_us: Numbers, columns: Columns
) -> Filled:
    """Return the columns of `schema_of` *columns* after `LINES`, for *lines* (text).

    *rules* are the rule of each, or NO_RULE; *are_pieces* marks lines that are not whole, and
    therefore have no format; the server stored them at *near_us*.
    """
    if not columns.rules:
        return {}
    parts: list[Filled] = []
    places: list[Numbers] = []
    for number in np.unique(rules).tolist():
        rows = np.flatnonzero(rules == number)
        here = lines if len(rows) == len(lines) else lines.take(pa.array(rows))
        if number == NO_RULE:
            found: Filled = {}
        else:
            whole = pc.if_else(pa.array(are_pieces[rows]), "", here) if are_pieces.any() else here
            found = _by_rule(whole, columns.rules[number], near_us[rows], columns.zone)
        parts.append(found)
        places.append(rows)
    kinds = list(schema_of(columns))[len(LINES) :]
    if not parts:
        return {kind.name: pa.array([], kind.type) for kind in kinds}
    order = pa.array(np.argsort(np.concatenate(places), kind="stable"))
    filled = {}
    for kind in kinds:
        pieces = [
            found[kind.name] if kind.name in found else pa.nulls(len(rows), kind.type)
            for found, rows in zip(parts, places, strict=True)
        ]
        filled[kind.name] = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces).take(order)
    return filled


def event_times(
    lines: pa.Array, filled: Mapping[str, pa.Array], near_us: Numbers, columns: Columns
) -> Instants:
    """Return the times in *lines*, by the first of the rules that finds one; *filled* are their
    declared columns.
    """
    found = Instants(np.zeros(len(lines), np.int64), np.zeros(len(lines), np.bool_))
    for rule in columns.times:
        rows = np.flatnonzero(~found.are_found)
        if not len(rows):
            break
        column = lines if rule.field is None else filled[rule.field]
        left = column if len(rows) == len(column) else column.take(pa.array(rows))
        times = _times(left, near_us[rows], rule, columns.zone)
        chosen = rows[times.are_found]
        found.micros[chosen] = times.micros[times.are_found]
        found.are_found[chosen] = True
    return found


def _times(column: pa.Array, near_us: Numbers, rule: TimeRule, zone: str) -> Instants:
    if column.type == TIME:
        micros = column.cast(pa.int64())
        return Instants(micros.fill_null(0).to_numpy(), micros.is_valid().to_numpy(False))
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return of_numbers(column.cast(pa.float64(), safe=False), near_us, format=rule.format)
    if not pa.types.is_string(column.type):
        return Instants(np.zeros(len(column), np.int64), np.zeros(len(column), np.bool_))
    # A head may end within a character, which a search ignores.
    heads = pc.binary_slice(column.cast(pa.binary()), 0, HEAD_BYTES_MAX).view(pa.string())
    return instants(heads, near_us, format=rule.pattern or rule.format, zone=zone)


def _by_rule(lines: pa.Array, rule: ParseRule, near_us: Numbers, zone: str) -> Filled:
    parts = []
    for begin in range(0, len(lines), LINES_AT_ONCE):
        rows = slice(begin, begin + LINES_AT_ONCE)
        part = lines.slice(begin, LINES_AT_ONCE)
        parts.append(_filled(part, rule, near_us[rows], zone))
    return {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]}


def _filled(lines: pa.Array, rule: ParseRule, near_us: Numbers, zone: str) -> Filled:
    found = documents(lines, rule)
    said = [{} if each is None else each for each in found]
    filled = {
        field.name: column(said, field.key, _convert(field, near_us, zone)) for field in rule.fields
    }
    try:
        filled[FIELDS] = pa.array(texts(said), pa.string())
    except TypeError:
        # One is too deep to be written. It is not read at all, so that it cannot fill some columns
        # and not others.
        are_shallow = pa.array([is_shallow(each) for each in said])
        return _filled(pc.if_else(are_shallow, lines, ""), rule, near_us, zone)
    filled[PARSED] = pa.array([each is not None for each in found], pa.bool_())
    return filled


def _convert(field: LineField, near_us: Numbers, zone: str) -> Convert:
    if field.type != "timestamp":
        return _CONVERT[field.type]
    return partial(_timestamps, near_us=near_us, zone=zone)


def _timestamps(given: list[Any], *, near_us: Numbers, zone: str) -> tuple[pa.Array, list[int]]:
    """Return *given* as times: texts in any format of `auto`, and numbers."""
    micros, are_found = np.zeros(len(given), np.int64), np.zeros(len(given), np.bool_)
    for fits, as_column, read in _READERS:
        rows = np.flatnonzero([fits(value) for value in given])
        if len(rows):
            times = read(as_column([given[row] for row in rows.tolist()]), near_us[rows], zone)
            micros[rows], are_found[rows] = times.micros, times.are_found
    misfits = [row for row in np.flatnonzero(~are_found).tolist() if given[row] is not None]
    return Instants(micros, are_found).column, misfits


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= HEAD_BYTES_MAX


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _texts(values: list[Any]) -> pa.Array:
    return pa.array(values, pa.string())


def _numbers(values: list[Any]) -> pa.Array:
    # Arrow refuses integers that a double does not hold exactly.
    return pa.array([float(value) for value in values], pa.float64())


def _read_texts(texts: pa.Array, near_us: Numbers, zone: str) -> Instants:
    return instants(texts, near_us, format="auto", zone=zone)


def _read_numbers(numbers: pa.Array, near_us: Numbers, zone: str) -> Instants:
    return of_numbers(numbers, near_us, format="auto")


_Reader = Callable[[pa.Array, Numbers, str], Instants]

_Fits = Callable[[Any], bool]
_AsColumn = Callable[[list[Any]], pa.Array]
_READERS: tuple[tuple[_Fits, _AsColumn, _Reader], ...] = (
    (_is_text, _texts, _read_texts),
    (_is_number, _numbers, _read_numbers),
)
