"""Times in the forms that programs write, by the names of `spec.table.time`. Readers look for them
in one line at a time, tables in columns (`logpipeline_spark.lines.timestamps`), both by what is
declared here.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

# Arrow's engine: the same expression finds the same, also in bytes that are no text.
import re2

# A time is near the head of a line; in a web server's, after an address and a user.
HEAD_BYTES_MAX = 256
# A time is implausible before such logs existed, or if it is later than the server's by more than a
# clock and a zone may be wrong.
EARLIEST_US = 631_152_000_000_000  # 1990
AHEAD_US_MAX = 2 * 86_400_000_000
SECOND_US = 1_000_000
# A line of the second pass of an hour that comes twice is stored behind its time, by a clock that
# may be wrong by so much.
AGAIN_AHEAD_US = 300 * SECOND_US
# The part of the server's time that decides the year of a time without one.
WEEK_US = 7 * 86_400_000_000

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

EPOCH = r"^(?P<e>[0-9]{9,19}(?:\.[0-9]{1,9})?)(?:[^0-9A-Za-z.]|$)"
UNITS = ("epochS", "epochMs", "epochUs", "epochNs")
# Microseconds of one of each unit.
UNITS_US = (1e6, 1e3, 1.0, 1e-3)
# Up to here a number has this unit: the year 5138 of one is 1973 of the next.
UNIT_ENDS = (10**11, 10**14, 10**17)
# Beyond all times, and within 64 bits.
MICROS_MAX = 9e18


class UnknownZone(LookupError):
    """A time zone that the database of this machine does not have."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """A form with a date and a clock: an *expression* of RE2 whose groups have the names of
    strptime's directives.
    """

    expression: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the groups, in their order."""
        return tuple(re.compile(self.expression).groupindex)

    @property
    def minute_names(self) -> tuple[str, ...]:
        """The names of the groups that say which minute it is."""
        return tuple(name for name in self.names if name not in "Sf")

    @property
    def has_year(self) -> bool:
        """Whether it says which year it is."""
        return not {"Y", "y"}.isdisjoint(self.names)


@dataclass(frozen=True, slots=True)
class Epoch:
    """Seconds since 1970, or fractions of them; without a *unit* the size of a number tells it."""

    unit: str | None

    def micros(self, number: float) -> int:
        """Return *number* in microseconds."""
        number = number if number == number else 0.0
        unit = bisect_left(UNIT_ENDS, abs(number)) if self.unit is None else UNITS.index(self.unit)
        return round(max(-MICROS_MAX, min(number * UNITS_US[unit], MICROS_MAX)))


Form = Calendar | Epoch


@lru_cache(maxsize=64)
def forms(format: str) -> tuple[Form, ...]:
    """Return the forms in which *format* finds a time, in their order. It is one of
    `spec.table.TimeFormat`, or a pattern of strptime.
    """
    if "%" in format:
        return (Calendar(_expression(format)),)
    if format == "auto":
        return (*map(Calendar, _PATTERNS.values()), Epoch(None))
    return (epoch(format),) if format in UNITS else (Calendar(_PATTERNS[format]),)


def epoch(format: str) -> Epoch:
    """Return how *format* reads a number: every one but the units goes by its size."""
    return Epoch(format if format in UNITS else None)


def find(head: bytes, near_us: int, *, format: str, zone: str) -> int | None:
    """Return the first plausible time in *head* (UTF-8), in microseconds since 1970; the server
    stored it at *near_us*.

    Raises:
        UnknownZone: it has no zone, and *zone* is not known here.
    """
    for search in _searches(format):
        found = search(head, near_us, zone)
        if found is not None and is_plausible(found, near_us):
            return found
    return None


def of_number(number: float, near_us: int, *, format: str) -> int | None:
    """Return *number* as a time in microseconds since 1970, if it is plausible."""
    found = epoch(format).micros(number)
    return found if is_plausible(found, near_us) else None


def is_plausible(micros: int, near_us: int) -> bool:
    """Return whether a line that the server stored at *near_us* may be of that time."""
    return EARLIEST_US <= micros <= near_us + AHEAD_US_MAX


_Search = Callable[[bytes, int, str], int | None]


@lru_cache(maxsize=64)
def _searches(format: str) -> tuple[_Search, ...]:
    return tuple(
        _by_calendar(form) if isinstance(form, Calendar) else _by_epoch(form)
        for form in forms(format)
    )


def _by_calendar(form: Calendar) -> _Search:
    compiled: Any = re2.compile(form.expression)
    names, minute_names, has_year = form.names, form.minute_names, form.has_year

    def search(head: bytes, near_us: int, zone: str) -> int | None:
        match = compiled.search(head)
        if match is None:
            return None
        # A group that takes no part is empty, as it is in Arrow.
        said = {
            name: (value or b"").decode() for name, value in zip(names, match.groups(), strict=True)
        }
        values = tuple(said[name] for name in minute_names)
        minute = minute_us(minute_names, values, None if has_year else near_us // WEEK_US, zone)
        seconds = int(said.get("S") or 0)
        if minute is None or seconds > 60:
            return None
        is_again = minute.again_us <= near_us + AGAIN_AHEAD_US
        begin_us = minute.again_us if is_again else minute.first_us
        return begin_us + seconds * SECOND_US + int(said.get("f", "").ljust(6, "0")[:6])

    return search


def _by_epoch(form: Epoch) -> _Search:
    compiled: Any = re2.compile(EPOCH)

    def search(head: bytes, _near_us: int, _zone: str) -> int | None:
        match = compiled.search(head)
        return None if match is None else form.micros(float(match["e"]))

    return search


def _expression(pattern: str) -> str:
    parts = re.split(r"%(.)", pattern)
    return "".join(
        _DIRECTIVES[part] if number % 2 else re.escape(part) for number, part in enumerate(parts)
    )


class Minute(NamedTuple):
    """When a minute begins, in microseconds since 1970. When clocks are set back, it comes again an
    hour later, say; the server's time of a line decides then. Other minutes have the same twice.
    """

    first_us: int
    again_us: int


# Many lines have the same minute: the calendar and the zone are asked once.
@lru_cache(maxsize=4096)
def minute_us(
    names: Sequence[str], values: Sequence[str], week: int | None, zone: str
) -> Minute | None:
    """Return when a minute begins whose parts *names* have these *values*, None
    if there is no such minute. If they have no year, *week* is that of the server's clock, counted
    from 1970.

    Raises:
        UnknownZone: they have no zone, and *zone* is not known here.
    """
    said = dict(zip(names, values, strict=True))
    try:
        if week is None:
            year = int(said["Y"]) if "Y" in said else _century(int(said["y"]))
            return _minute(said, year, zone)
        near_us = week * WEEK_US + WEEK_US // 7 * 3
        year = 1970 + near_us // 31_556_952_000_000
        found = [_or_none(said, each, zone) for each in (year - 1, year, year + 1)]
        return min(
            (at for at in found if at is not None),
            key=lambda at: abs(at.first_us - near_us),
            default=None,
        )
    except (ValueError, OverflowError):
        return None


def _century(year: int) -> int:
    # The rule of strptime.
    return year + (1900 if year > 68 else 2000)


def _or_none(said: Mapping[str, str], year: int, zone: str) -> Minute | None:
    try:
        return _minute(said, year, zone)
    except (ValueError, OverflowError):
        # The 29th of February does not exist in most years.
        return None


def _minute(said: Mapping[str, str], year: int, zone: str) -> Minute:
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
    first, again = (_micros(at.replace(fold=fold)) for fold in (0, 1))
    # In the hour that clocks pass over the second one is the earlier.
    return Minute(first, max(first, again))


def _micros(at: datetime) -> int:
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
        raise UnknownZone(f"{name} is not known here; install tzdata, or write +01:00") from None
