"""Times in the forms that `logpipeline.timestamps` knows, a column at a time. Many lines have the
same minute: the calendar and the zone are asked once for each minute, and the rest is arithmetic on
columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logpipeline.timestamps import (
    AGAIN_AHEAD_US,
    AHEAD_US_MAX,
    EARLIEST_US,
    EPOCH,
    MICROS_MAX,
    SECOND_US,
    UNIT_ENDS,
    UNITS,
    UNITS_US,
    WEEK_US,
    Calendar,
    Epoch,
    Minute,
    UnknownZone,
    epoch,
    forms,
    minute_us,
)
from logpipeline_spark.errors import Refused
from logpipeline_spark.lines.schema import TIME

Numbers = npt.NDArray[np.int64]
Facts = npt.NDArray[np.bool_]

_MICROS = np.array(UNITS_US)


@dataclass(frozen=True, slots=True)
class Instants:
    """Microseconds since 1970 of some texts; without *are_found* they mean nothing."""

    micros: Numbers
    are_found: Facts

    @property
    def column(self) -> pa.Array:
        """The times as a column, null if there is none."""
        return pa.array(self.micros, mask=~self.are_found).view(TIME)


def instants(texts: pa.Array, near_us: Numbers, *, format: str, zone: str) -> Instants:
    """Return the plausible times in *texts*, which the server stored at *near_us*. *format* is one
    of `spec.columns.TimeFormat`, or a pattern with `%`.
    """
    found = Instants(np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_))
    for search in _searches(format):
        rows = np.flatnonzero(~found.are_found)
        if not len(rows):
            break
        left = texts if len(rows) == len(texts) else texts.take(pa.array(rows))
        micros, are_good = search(left, near_us[rows], zone)
        are_good &= _believable(micros, near_us[rows])
        found.micros[rows[are_good]] = micros[are_good]
        found.are_found[rows[are_good]] = True
    return found


def of_numbers(values: pa.Array, near_us: Numbers, *, format: str) -> Instants:
    """Return the plausible times of *values* (double), as seconds or fractions of them."""
    doubles = values.fill_null(0).to_numpy(zero_copy_only=False)
    micros = _of_doubles(doubles, epoch(format))
    return Instants(micros, _believable(micros, near_us))


def _of_doubles(values: npt.NDArray[np.float64], form: Epoch) -> Numbers:
    numbers = np.nan_to_num(values)
    unit: int | npt.NDArray[np.intp] = np.searchsorted(UNIT_ENDS, np.abs(numbers))
    if form.unit is not None:
        unit = UNITS.index(form.unit)
    rounded = np.round(numbers * _MICROS[unit])
    micros: Numbers = np.clip(rounded, -MICROS_MAX, MICROS_MAX).astype(np.int64)
    return micros


def _believable(micros: Numbers, near_us: Numbers) -> Facts:
    return (micros >= EARLIEST_US) & (micros <= near_us + AHEAD_US_MAX)


_Search = Callable[[pa.Array, Numbers, str], tuple[Numbers, Facts]]


@lru_cache(maxsize=64)
def _searches(format: str) -> tuple[_Search, ...]:
    return tuple(
        _by_calendar(form) if isinstance(form, Calendar) else _by_epoch(form)
        for form in forms(format)
    )


def _by_calendar(form: Calendar) -> _Search:
    names, keys, has_year = form.names, form.minute_names, form.has_year

    def minute(text: str | None, zone: str) -> Minute | None:
        if text is None:
            return None
        values = text.split("\n")
        week = None if has_year else int(values.pop())
        try:
            return minute_us(keys, tuple(values), week, zone)
        except UnknownZone as error:
            raise Refused(f"table.zone: {error}") from None

    def search(texts: pa.Array, near_us: Numbers, zone: str) -> tuple[Numbers, Facts]:
        found = pc.extract_regex(texts, form.expression)
        is_found: Facts = found.is_valid().to_numpy(zero_copy_only=False)
        if not is_found.any():
            return np.zeros(len(texts), np.int64), is_found
        parts = [found.field(name) for name in keys]
        if not has_year:
            # The year that brings the time nearest to the server's.
            parts.append(pc.cast(pa.array(near_us // WEEK_US), pa.string()))
        stamps = pc.binary_join_element_wise(*parts, "\n").dictionary_encode()
        minutes = [minute(text, zone) for text in stamps.dictionary.to_pylist()]
        begins = np.array([_NO_MINUTE if each is None else each for each in minutes], np.int64)
        first, again = begins[stamps.indices.fill_null(0).to_numpy(zero_copy_only=False)].T
        micros = np.where(again <= near_us + AGAIN_AHEAD_US, again, first)
        is_found &= micros != _NO_TIME
        seconds = _number(found.field("S"), is_found) if "S" in names else 0
        is_found &= np.less_equal(seconds, 60)
        micros = micros + seconds * np.int64(SECOND_US)
        return micros + (_fraction(found.field("f"), is_found) if "f" in names else 0), is_found

    return search


_NO_TIME = int(np.iinfo(np.int64).min) // 2
_NO_MINUTE = Minute(_NO_TIME, _NO_TIME)


def _by_epoch(form: Epoch) -> _Search:
    def search(texts: pa.Array, near_us: Numbers, zone: str) -> tuple[Numbers, Facts]:
        found = pc.extract_regex(texts, EPOCH)
        is_found: Facts = found.is_valid().to_numpy(zero_copy_only=False)
        digits = pc.if_else(found.is_valid(), found.field("e"), "0")
        return _of_doubles(digits.cast(pa.float64()).to_numpy(), form), is_found

    return search


def _number(digits: pa.Array, is_found: Facts) -> Numbers:
    is_given = pc.and_(pa.array(is_found), pc.not_equal(digits, ""))
    numbers: Numbers = pc.if_else(is_given, digits, "0").fill_null("0").cast(pa.int64()).to_numpy()
    return numbers


def _fraction(digits: pa.Array, is_found: Facts) -> Numbers:
    six = pc.utf8_slice_codeunits(pc.utf8_rpad(digits, 6, padding="0"), 0, 6)
    return _number(six, is_found)
