"""Times as people give them to commands: a span before now, or a moment."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime

from logpipeline.nats.jetstream import time_ns_of
from logpipeline.quantity import QuantityError, parse_duration
from logpipeline_cli.errors import CliError


def time_text(time_ns: int) -> str:
    """Return nanoseconds since 1970 as people read them: ``2026-11-21T10:00:00Z``."""
    moment = datetime.fromtimestamp(time_ns / 1e9, UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def moment_ns(option: str, text: str) -> int:
    """Return a span before now (``10m``), or a time (RFC 3339), in nanoseconds since 1970.

    Raises:
        CliError: *text*, which was given with *option*, is neither.
    """
    with suppress(QuantityError):
        return time.time_ns() - parse_duration(text)
    try:
        return time_ns_of(text)
    except ValueError:
        raise CliError(
            f"{option} {text!r}: give a span such as 10m or 2h, or a time such as "
            "2026-11-21T10:00:00Z"
        ) from None
