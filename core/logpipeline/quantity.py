"""Sizes and time spans as Kubernetes' users write them: ``10Gi``, ``500M``, ``24h``, ``1d``."""

from __future__ import annotations

import re
from decimal import Decimal

_BYTE_UNITS = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip
_DURATION_UNITS = {
    "ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
    "d": 86_400 * 10**9, "w": 604_800 * 10**9,
}  # fmt: skip
BYTES_PATTERN = r"^[0-9]+(\.[0-9]+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h|d|w))+$"
_BYTES = re.compile(BYTES_PATTERN)
_DURATION = re.compile(DURATION_PATTERN)
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|ms|s|m|h|d|w)")
# JetStream's and Go's durations are 64-bit nanoseconds, sizes 64-bit bytes.
VALUE_MAX = 2**63 - 1


class QuantityError(ValueError):
    """A text that is no size or no time span."""


def parse_bytes(text: str | int) -> int:
    """Return a number of bytes.

    Raises:
        QuantityError: *text* is none.
    """
    if isinstance(text, int) and not isinstance(text, bool) and 0 <= text <= VALUE_MAX:
        return text
    match = _BYTES.fullmatch(str(text)) if isinstance(text, str) else None
    if match is None:
        raise QuantityError(f"expected a size such as 10Gi, 500M or 1048576, found {text!r}")
    unit = match.group(2) or ""
    value = Decimal(text[: len(text) - len(unit)] if isinstance(text, str) else text)
    count = int(value * _BYTE_UNITS[unit])
    if count > VALUE_MAX:
        raise QuantityError(f"{text} is more than {VALUE_MAX} bytes")
    return count


def parse_duration(text: str) -> int:
    """Return a time span in nanoseconds.

    Raises:
        QuantityError: *text* is none.
    """
    if not _DURATION.fullmatch(str(text)):
        raise QuantityError(f"expected a time span such as 24h, 1d, 90s or 200ms, found {text!r}")
    total = sum(int(Decimal(value) * _DURATION_UNITS[unit]) for value, unit in _SPAN.findall(text))
    if total > VALUE_MAX:
        raise QuantityError(f"{text} is longer than 292 years")
    return total


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
