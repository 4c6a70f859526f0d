"""Fills the columns that people declare: what lines say, and the time that they are of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logpipeline.spec.columns import LineField, ParseRule, TimeRule
from logpipeline_spark.lines import values
from logpipeline_spark.lines.columns import FIELDS, NO_RULE, PARSED, Columns, schema_of
from logpipeline_spark.lines.documents import LINES_AT_ONCE, documents, is_shallow, texts
from logpipeline_spark.lines.instants import HEAD_BYTES_MAX, Instants, instants, of_numbers
from logpipeline_spark.lines.schema import LINES, TIME

Numbers = npt.NDArray[np.int64]
Facts = npt.NDArray[np.bool_]
Filled = dict[str, pa.Array]

_CONVERT: dict[str, values.Convert] = {
    "string": values.strings,
    "int": values.ints,
    "float": values.floats,
    "bool": values.bools,
}


def declared(
    lines: pa.Array, rules: Numbers, are_pieces: Facts, near_us: Numbers, columns: Columns
) -> Filled:
    """Return the columns of `schema_of` *columns* beyond `LINES`, of *lines* (text).

    *rules* are the rule of each, or NO_RULE; *are_pieces* says which are not whole, and therefore
    of no format; the server had them at *near_us*.
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
    """Return the times that *lines* name themselves, by the first of the rules that finds one; in
    *filled* are their declared columns.
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
    # A head may end within a character, of which a search takes no notice.
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
        field.name: values.column(said, field.key, _convert(field, near_us, zone))
        for field in rule.fields
    }
    try:
        filled[FIELDS] = pa.array(texts(said), pa.string())
    except TypeError:
        # One is too deep to be written. Not read at all, it can fill no column by half.
        are_shallow = pa.array([is_shallow(each) for each in said])
        return _filled(pc.if_else(are_shallow, lines, ""), rule, near_us, zone)
    filled[PARSED] = pa.array([each is not None for each in found], pa.bool_())
    return filled


def _convert(field: LineField, near_us: Numbers, zone: str) -> values.Convert:
    if field.type != "timestamp":
        return _CONVERT[field.type]
    return partial(_timestamps, near_us=near_us, zone=zone)


def _timestamps(given: list[Any], *, near_us: Numbers, zone: str) -> tuple[pa.Array, list[int]]:
    """Return *given* as times: texts in any format that `auto` knows, and numbers."""
    micros, are_found = np.zeros(len(given), np.int64), np.zeros(len(given), np.bool_)
    for fits, kind, read in _READERS:
        rows = np.flatnonzero([fits(value) for value in given])
        if len(rows):
            times = read(pa.array([given[row] for row in rows.tolist()], kind), near_us[rows], zone)
            micros[rows], are_found[rows] = times.micros, times.are_found
    misfits = [row for row in np.flatnonzero(~are_found).tolist() if given[row] is not None]
    return Instants(micros, are_found).column, misfits


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= HEAD_BYTES_MAX


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _read_texts(texts: pa.Array, near_us: Numbers, zone: str) -> Instants:
    return instants(texts, near_us, format="auto", zone=zone)


def _read_numbers(numbers: pa.Array, near_us: Numbers, zone: str) -> Instants:
    return of_numbers(numbers, near_us, format="auto")


_Reader = Callable[[pa.Array, Numbers, str], Instants]
_READERS: tuple[tuple[Callable[[Any], bool], pa.DataType, _Reader], ...] = (
    (_is_text, pa.string(), _read_texts),
    (_is_number, pa.float64(), _read_numbers),
)
