"""Places in streams as users write them: earliest, latest, sequences as JSON, or a time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

# How Spark's Kafka source writes these two inside JSON.
EARLIEST_NUMBER = -2
LATEST_NUMBER = -1


@dataclass(frozen=True, slots=True)
class Place:
    """Where to begin or to end: *sequences* are the first, or the last, of each stream to be read;
    *time_ns* that of the first message to be read, or of the first one that is not.
    """

    kind: Literal["earliest", "latest", "sequences", "time"]
    sequences: tuple[tuple[str, int], ...] = ()
    time_ns: int = 0

    def of(self, stream: str) -> int:
        """Return the sequence given for *stream*."""
        return dict(self.sequences)[stream]


EARLIEST = Place("earliest")
LATEST = Place("latest")


def read_offsets(text: str, streams: tuple[str, ...]) -> Place:
    """Return the place that *text* names in each of *streams*.

    Raises:
        ValueError: it names none.
    """
    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else LATEST
    example = f'{{"{streams[0] if streams else "LOGS_0"}": 1}}'
    try:
        data = json.loads(text)
    except ValueError:
        raise ValueError(
            f"{text[:80]!r} is neither earliest, latest, nor JSON: {example}"
        ) from None
    if not isinstance(data, dict) or not all(_is_sequence(value) for value in data.values()):
        raise ValueError(
            f"JSON gives each stream a sequence (-2 is the earliest, -1 the latest): {example}"
        )
    if set(data) != set(streams):
        raise ValueError(
            f"JSON names {', '.join(sorted(data)) or 'no stream'}; it must name each of "
            f"{', '.join(streams)}"
        )
    return Place("sequences", tuple(sorted(data.items())))


def read_timestamp(text: str) -> Place:
    """Return the place of the time *text*: ISO 8601 (UTC where it names no zone), or milliseconds
    since 1970 as Kafka has them.

    Raises:
        ValueError: it is no time.
    """
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return Place("time", time_ns=int(text) * 1_000_000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text[:80]!r} is no time: write 2026-11-21T10:00:00Z, or milliseconds since 1970"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return Place(
        "time",
        time_ns=(since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000,
    )


def _is_sequence(value: object) -> bool:
    return type(value) is int and (value >= 0 or value in (EARLIEST_NUMBER, LATEST_NUMBER))
