"""Sizes and time spans as Kubernetes' users write them: ``10Gi``, ``500M``, ``24h``, ``1d``."""

from __future__ import annotations

import re

_BYTE_UNITS = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip
_DURATION_UNITS = {
    "ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
    "d": 86_400 * 10**9, "w": 604_800 * 10**9,
}  # fmt: skip
BYTES_PATTERN = r"^[0-9]+(\.[0-9]+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
# Each unit once, the largest first, so that a typing mistake is not taken for a sum.
DURATION_PATTERN = (
    "^" + "".join(rf"([0-9]+(\.[0-9]+)?{unit})?" for unit in reversed(_DURATION_UNITS)) + "$"
)
# Go's durations are 64-bit nanoseconds: 292 years, here in whole weeks.
DURATION_NS_MAX = 15_250 * _DURATION_UNITS["w"]
# Kubernetes takes a size beyond 64 bits for the greatest one below, so the limit is half of that:
# up to there, it reports sizes that are too large.
BYTES_MAX = 2**62
# A longer text is not a number that a user meant, and costs time to read.
QUANTITY_CHARS_MAX = 32

_BYTES = re.compile(BYTES_PATTERN)
_DURATION = re.compile(DURATION_PATTERN)
_NUMBER = re.compile(r"([0-9]+)(?:\.([0-9]+))?([A-Za-z]*)")


class QuantityError(ValueError):
    """A text that is not a size, or not a time span."""


def parse_bytes(value: object) -> int:
    """Return a number of bytes; a fraction of a byte is dropped.

    Raises:
        QuantityError: *value* is not a size.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        count = value
    elif isinstance(value, str) and _is_of(value, _BYTES):
        count = _sum(value, _BYTE_UNITS)
    else:
        raise QuantityError(
            f"expected a size such as 10Gi, 500M, 64Ki or 1048576, found {_shown(value)}"
        )
    if count > BYTES_MAX:
        raise QuantityError(f"expected at most {format_bytes(BYTES_MAX)}, found {_shown(value)}")
    return count


def parse_duration(value: object) -> int:
    """Return a time span in nanoseconds.

    Raises:
        QuantityError: *value* is not a time span.
    """
    if not isinstance(value, str) or not value or not _is_of(value, _DURATION):
        raise QuantityError(
            "expected a time span with its unit, such as 24h, 1d, 1h30m, 90s or 200ms, "
            f"found {_shown(value)}"
        )
    span_ns = _sum(value, _DURATION_UNITS)
    if span_ns > DURATION_NS_MAX:
        most = format_duration(DURATION_NS_MAX)
        raise QuantityError(f"expected at most {most}, found {_shown(value)}")
    return span_ns


def format_bytes(count: int) -> str:
    """Return *count* bytes in the largest unit that keeps it whole."""
    for unit in ("Pi", "Ti", "Gi", "Mi", "Ki"):
        if count and count % _BYTE_UNITS[unit] == 0:
            return f"{count // _BYTE_UNITS[unit]}{unit}"
    return str(count)


def format_duration(span_ns: int) -> str:
    """Return a span of nanoseconds in the largest unit that keeps it whole."""
    for unit in ("w", "d", "h", "m", "s", "ms", "us"):
        if span_ns and span_ns % _DURATION_UNITS[unit] == 0:
            return f"{span_ns // _DURATION_UNITS[unit]}{unit}"
    return f"{span_ns}ns" if span_ns else "0s"


def _is_of(text: str, pattern: re.Pattern[str]) -> bool:
    return len(text) <= QUANTITY_CHARS_MAX and pattern.fullmatch(text) is not None


def _sum(text: str, units: dict[str, int]) -> int:
    # In integers: a float would already be off by bytes at a few pebibytes.
    total = 0
    for whole, fraction, unit in _NUMBER.findall(text):
        total += int(whole + fraction) * units[unit] // 10 ** len(fraction)
    return total


def _shown(value: object) -> str:
    # What is quoted comes from a user's file: escaped, and no longer than a line.
    if isinstance(value, str):
        return f'"{repr(value[:80])[1:-1]}"'
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)[:80] if isinstance(value, int | float) else f"a {type(value).__name__}"
