"""Times and quantities in arguments: ``10m``, ``2026-11-21T10:00:00Z``, ``1Mi``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from logpipeline import moments
from logpipeline.quantity import QuantityError, parse_duration
from logpipeline_cli.errors import UsageError


def time_text(time_ns: int) -> str:
    """Return nanoseconds since 1970 as text: ``2026-11-21T10:00:00Z``."""
    at = datetime.fromtimestamp(time_ns / 1e9, UTC)
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def moment_ns(option: str, text: str) -> int:
    """Return a span before now (``10m``), or a time (RFC 3339), in nanoseconds since 1970.

    Raises:
        UsageError: *text*, the value of *option*, is neither.
    """
    try:
        return moments.moment_ns(text)
    except QuantityError as error:
        raise UsageError(f"{option} {error}") from None


def moment(text: str | None, *, now: datetime) -> datetime | None:
    """Return a span before *now*, or a time; a date is its midnight, and a time without an offset
    is UTC's.

    Raises:
        UsageError: *text* is neither.
    """
    if text is None:
        return None
    if text[:4].isdecimal() and "-" in text:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            raise UsageError(
                f"{text!r} is not a time; give one such as 2026-11-21T10:00:00Z, or a span such as "
                "10m"
            ) from None
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    try:
        span_ns = parse_duration(text)
    except QuantityError as error:
        raise UsageError(str(error)) from error
    return datetime.fromtimestamp(now.timestamp() - span_ns / 1e9, UTC)


def parsed(option: str, text: str | None, parse: Callable[[object], int]) -> int:
    """Return what *parse* makes of *text*, the value of *option*; 0 where the option is not given.

    Raises:
        UsageError: it cannot be parsed.
    """
    if text is None:
        return 0
    try:
        return parse(text)
    except QuantityError as error:
        raise UsageError(f"{option} {text!r}: {error}") from error
