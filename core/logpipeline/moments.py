"""Moments as people give them: a span before now (``10m``), or a time."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime, timedelta

from logpipeline.nats.jetstream import time_ns_of
from logpipeline.quantity import QuantityError, parse_duration

US_NS = 1000


def moment_ns(given: str | datetime | timedelta) -> int:
    """Return a span before now (``10m``), or a time (RFC 3339), in nanoseconds since 1970; a time
    without a zone is the machine's.

    Raises:
        QuantityError: *given* is neither.
    """
    if isinstance(given, timedelta):
        return time.time_ns() - span_ns(given)
    if isinstance(given, datetime):
        return int(given.timestamp()) * 10**9 + given.microsecond * US_NS
    with suppress(QuantityError):
        return time.time_ns() - parse_duration(given)
    try:
        return time_ns_of(given)
    except ValueError:
        raise QuantityError(
            f"{given!r}: give a span such as 10m or 2h, or a time such as 2026-11-21T10:00:00Z"
        ) from None


def span_ns(given: str | timedelta) -> int:
    """Return a span of time in nanoseconds.

    Raises:
        QuantityError: *given* is none, or is negative.
    """
    if isinstance(given, str):
        return parse_duration(given)
    if given < timedelta(0):
        raise QuantityError(f"expected a span of time, found the negative one {given}")
    return given // timedelta(microseconds=1) * US_NS
