"""Times in the forms that programs write, a column at a time. Many lines have the same minute: the
calendar and the zone are asked once for each minute, and the rest is arithmetic on columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logpipeline_spark.errors import Refused
from logpipeline_spark.lines.schema import TIME

Numbers = npt.NDArray[np.int64]
Facts = npt.NDArray[np.bool_]

# A time is near the head of a line; in a web server's, after an address and a user.
HEAD_BYTES_MAX = 256
# A time is implausible before such logs existed, or if it is later than the server's by more than a
# clock and a zone may be wrong.
EARLIEST_US = 631_152_000_000_000  # 1990
AHEAD_US_MAX = 2 * 86_400_000_000

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = "(?P<b>" + "|".join(_MONTHS) + ")"
_CLOCK = "(?P<H>[0-9]{2}):(?P<M>[0-9]{2}):(?P<S>[0-9]{2})"
_FRACTION = "(?:[.,](?P<f>[0-9]{1,9}))?"
_ISO = (
    r"(?P<Y>[0-9]{4})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})[Tt ]" + _CLOCK + _FRACTION
    + r" ?(?P<z>[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?(?:[^0-9]|$)"
)  # fmt: skip
# Formats at the begin of a line come first: a later time may belong to the message.
_PATTERNS = {
    "rfc5424": r"^<[0-9]{1,3}>[0-9]{1,2} " + _ISO,
    "rfc3164": r"^(?:<[0-9]{1,3}>)?" + _MONTH + r" {1,2}(?P<d>[0-9]{1,2}) " + _CLOCK + _FRACTION,
    "klog": r"^[IWEF](?P<m>[0-9]{2})(?P<d>[0-9]{2}) " + _CLOCK + _FRACTION,
    "common": r"\[(?P<d>[0-9]{2})/" + _MONTH + "/(?P<Y>[0-9]{4}):" + _CLOCK
    + r"(?: (?P<z>[+-][0-9]{4}))?\]",
    "iso8601": "(?:^|[^0-9])" + _ISO,
}  # fmt: skip
_EPOCH = r"^(?P<e>[0-9]{9,19}(?:\.[0-9]{1,9})?)(?:[^0-9A-Za-z.]|$)"
_UNITS = ("epochS", "epochMs", "epochUs", "epochNs")
_MICROS = np.array([1e6, 1e3, 1.0, 1e-3])
# Up to here a number has this unit: the year 5138 of one is 1973 of the next.
_UNIT_ENDS = (10**11, 10**14, 10**17)
_DIRECTIVES = {
    "Y": "(?P<Y>[0-9]{4})",
    "y": "(?P<y>[0-9]{2})",
    "m": "(?P<m>[0-9]{1,2})",
    "d": " ?(?P<d>[0-9]{1,2})",
    "e": " ?(?P<d>[0-9]{1,2})",
    "j": "(?P<j>[0-9]{1,3})",
    "b": _MONTH,
    "B": _MONTH + "[a-z]*",
    "H": "(?P<H>[0-9]{1,2})",
    "I": "(?P<I>[0-9]{1,2})",
    "M": "(?P<M>[0-9]{2})",
    "S": "(?P<S>[0-9]{2})",
    "f": "(?P<f>[0-9]{1,9})",
    "p": "(?P<p>[AaPp][Mm])",
    "z": "(?P<z>[Zz]|[+-][0-9]{2}:?[0-9]{2})",
    "T": _CLOCK,
    "%": "%",
}


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
    micros = _of_doubles(values.fill_null(0).to_numpy(zero_copy_only=False), format)
    return Instants(micros, _believable(micros, near_us))


def _of_doubles(values: npt.NDArray[np.float64], format: str) -> Numbers:
    numbers = np.nan_to_num(values)
    unit: int | npt.NDArray[np.intp] = np.searchsorted(_UNIT_ENDS, np.abs(numbers))
    if format in _UNITS:
        unit = _UNITS.index(format)
    micros: Numbers = np.clip(np.round(numbers * _MICROS[unit]), -9e18, 9e18).astype(np.int64)
    return micros


def _believable(micros: Numbers, near_us: Numbers) -> Facts:
    return (micros >= EARLIEST_US) & (micros <= near_us + AHEAD_US_MAX)


_Search = Callable[[pa.Array, Numbers, str], tuple[Numbers, Facts]]


@lru_cache(maxsize=64)
def _searches(format: str) -> tuple[_Search, ...]:
    if "%" in format:
        return (_calendar(_expression(format)),)
    if format == "auto":
        return (*(_calendar(pattern) for pattern in _PATTERNS.values()), _epoch("auto"))
    if format in _UNITS:
        return (_epoch(format),)
    return (_calendar(_PATTERNS[format]),)


def _expression(pattern: str) -> str:
    parts = re.split(r"%(.)", pattern)
    return "".join(
        _DIRECTIVES[part] if number % 2 else re.escape(part) for number, part in enumerate(parts)
    )


def _calendar(pattern: str) -> _Search:
    names = tuple(re.compile(pattern).groupindex)
    keys = [name for name in names if name not in "Sf"]
    has_year = bool({"Y", "y"} & set(names))

    def search(texts: pa.Array, near_us: Numbers, zone: str) -> tuple[Numbers, Facts]:
        found = pc.extract_regex(texts, pattern)
        is_found: Facts = found.is_valid().to_numpy(zero_copy_only=False)
        if not is_found.any():
            return np.zeros(len(texts), np.int64), is_found
        parts = [found.field(name) for name in keys]
        if not has_year:
            # The year that brings the time nearest to the server's.
            parts.append(pc.cast(pa.array(near_us // (86_400_000_000 * 7)), pa.string()))
        stamps = pc.binary_join_element_wise(*parts, "\n").dictionary_encode()
        minutes = [_minute(keys, text, zone) for text in stamps.dictionary.to_pylist()]
        micros = np.array([_NO_TIME if each is None else each for each in minutes], np.int64)
        micros = micros[stamps.indices.fill_null(0).to_numpy(zero_copy_only=False)]
        is_found &= micros != _NO_TIME
        seconds = _number(found.field("S"), is_found) if "S" in names else 0
        is_found &= np.less_equal(seconds, 60)
        micros = micros + seconds * np.int64(1_000_000)
        return micros + (_fraction(found.field("f"), is_found) if "f" in names else 0), is_found

    return search


_NO_TIME = np.iinfo(np.int64).min // 2


def _epoch(format: str) -> _Search:
    def search(texts: pa.Array, near_us: Numbers, zone: str) -> tuple[Numbers, Facts]:
        found = pc.extract_regex(texts, _EPOCH)
        is_found: Facts = found.is_valid().to_numpy(zero_copy_only=False)
        digits = pc.if_else(found.is_valid(), found.field("e"), "0")
        return _of_doubles(digits.cast(pa.float64()).to_numpy(), format), is_found

    return search


def _number(digits: pa.Array, is_found: Facts) -> Numbers:
    is_given = pc.and_(pa.array(is_found), pc.not_equal(digits, ""))
    numbers: Numbers = pc.if_else(is_given, digits, "0").fill_null("0").cast(pa.int64()).to_numpy()
    return numbers


def _fraction(digits: pa.Array, is_found: Facts) -> Numbers:
    six = pc.utf8_slice_codeunits(pc.utf8_rpad(digits, 6, padding="0"), 0, 6)
    return _number(six, is_found)


def _minute(keys: Sequence[str], text: str | None, zone: str) -> int | None:
    """Return the microseconds since 1970 of a minute, by its parts. If they have no year, the week
    of the server's clock follows them.
    """
    if text is None:
        return None
    values = text.split("\n")
    said = dict(zip(keys, values, strict=False))
    try:
        if len(values) == len(keys):
            year = int(said["Y"]) if "Y" in said else _century(int(said["y"]))
            return _micros(said, year, zone)
        near_us = (int(values[-1]) * 7 + 3) * 86_400_000_000
        year = 1970 + near_us // 31_556_952_000_000
        found = [_or_none(said, each, zone) for each in (year - 1, year, year + 1)]
        return min(
            (at for at in found if at is not None), key=lambda at: abs(at - near_us), default=None
        )
    except (ValueError, OverflowError):
        return None


def _century(year: int) -> int:
    # The rule of strptime.
    return year + (1900 if year > 68 else 2000)


def _or_none(said: Mapping[str, str], year: int, zone: str) -> int | None:
    try:
        return _micros(said, year, zone)
    except (ValueError, OverflowError):
        # The 29th of February does not exist in most years.
        return None


def _micros(said: Mapping[str, str], year: int, zone: str) -> int:
    if "j" in said:
        day = datetime(year, 1, 1) + timedelta(days=int(said["j"]) - 1)
        if day.year != year:
            raise ValueError("no such day of the year")
    else:
        month = _MONTHS.index(said["b"]) + 1 if "b" in said else int(said["m"])
        day = datetime(year, month, int(said["d"]))
    hour = int(said["H"]) if "H" in said else _hour_of_12(int(said["I"]), said.get("p", ""))
    minute = day.replace(hour=hour, minute=int(said.get("M") or 0))
    at = minute.replace(tzinfo=_zone(said.get("z") or zone))
    return (at - _EPOCH_START) // timedelta(microseconds=1)


_EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)


def _hour_of_12(hour: int, half: str) -> int:
    if not 1 <= hour <= 12:
        raise ValueError("no such hour")
    return hour % 12 + (12 if half.lower() == "pm" else 0)


@lru_cache(maxsize=1024)
def _zone(name: str) -> tzinfo:
    if name in ("Z", "z", "UTC"):
        return UTC
    if name[0] in "+-":
        digits = name[1:].replace(":", "")
        hours, minutes = int(digits[:2]), int(digits[2:] or 0)
        if minutes > 59:
            raise ValueError("no such zone")
        distance = timedelta(hours=hours, minutes=minutes)
        return timezone(distance if name[0] == "+" else -distance)
    try:
        return ZoneInfo(name)
    except (OSError, LookupError):
        sentence = f"table.zone: {name} is not known here; install tzdata, or write it as +01:00"
        raise Refused(sentence) from None
