"""Messages that trimming purged before a table had read them. Trimming writes them down first.

The table's own commits name the same once its job goes on. A job that never began, or never comes
back, names nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from logpipeline.records import BadRecord
from logpipeline.tables.progress import KEYS as TABLE_KEYS

KEYS = "missed."
# Of one stream. Each further one takes a table that went on in between; the newest are kept.
RANGES_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedRange:
    """The messages *first* to *last* of the stream that was *created* then; *at_ns* is when the
    last of them were purged, in nanoseconds since 1970.
    """

    created: str
    first: int
    last: int
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """What one table missed of each stream, the oldest range first; *messages* are all, also those
    of ranges that are no longer kept.
    """

    messages: int = 0
    streams: Mapping[str, tuple[MissedRange, ...]] = field(default_factory=dict)

    def with_range(self, stream: str, gone: MissedRange) -> Missed:
        """Return this with the range *gone* of *stream*. A message that is in both counts once."""
        ranges = list(self.streams.get(stream, ()))
        first = gone.first
        if ranges and ranges[-1].created == gone.created:
            # Written before the purge, so a purge that failed is told again.
            first = max(first, ranges[-1].last + 1)
            if first > gone.last:
                return self
            if first == ranges[-1].last + 1:
                former = ranges.pop()
                gone = MissedRange(
                    created=gone.created, first=former.first, last=gone.last, at_ns=gone.at_ns
                )
        kept = (*ranges, gone)[-RANGES_MAX:]
        messages = self.messages + gone.last - first + 1
        return Missed(messages=messages, streams={**self.streams, stream: kept})

    def is_passed(self, stream: str, *, created: str, done: int) -> bool:
        """Return whether a table that has *done* with the messages up to there went on behind what
        it missed of *stream*.
        """
        ranges = self.streams.get(stream, ())
        return not ranges or ranges[-1].created != created or done > ranges[-1].last

    def encode(self) -> bytes:
        """Return it as JSON."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @staticmethod
    def decode(value: bytes) -> Missed:
        """Return what `encode` wrote.

        Raises:
            BadRecord: it is nothing of the kind.
        """
        try:
            data = json.loads(value)
            streams = {
                str(name): tuple(_range(each) for each in ranges)
                for name, ranges in data["streams"].items()
            }
            return Missed(messages=_number(data["messages"]), streams=streams)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadRecord(f"no record of what a table missed: {value[:80]!r}") from error


def missed_key_of(table_key: str) -> str:
    """Return the key at which stands what the table missed that tells its progress at
    *table_key*.
    """
    return KEYS + table_key.removeprefix(TABLE_KEYS)


def _range(data: Mapping[str, Any]) -> MissedRange:
    created = data["created"]
    if not isinstance(created, str):
        raise TypeError("a time is none")
    first, last, at_ns = (_number(data[name]) for name in ("first", "last", "at_ns"))
    return MissedRange(created=created, first=first, last=last, at_ns=at_ns)


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError("a number is none")
    return value
