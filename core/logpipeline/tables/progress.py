"""Records of tables in the state bucket: progress, and missed messages. Trimming and status read
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from logpipeline import json_text
from logpipeline.declared_types import checked
from logpipeline.lag import StreamLag
from logpipeline.records import BadRecord, StreamPosition

KEYS = "table."
# When lines that are not in the table yet have used up this share of a stream's age or size, there
# is a warning: what is left is the time to act.
NEAR = 0.75

MISSED_KEYS = "missed."
# Of one stream. Each further one takes a table that went on in between; the newest are kept.
RANGES_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProgress:
    """Up to where each stream stands in a table at *path*, written after each commit.

    *commit* counts the table's batches, *rows* the lines that came in; *problem* is why it does not
    go on, as a sentence, else empty. *at_ns* is the time of writing, in nanoseconds since 1970.
    """

    path: str
    commit: int
    rows: int
    at_ns: int
    streams: Mapping[str, StreamPosition]
    problem: str = ""

    def encode(self) -> bytes:
        """Return it as JSON."""
        return json_text.dump(asdict(self)).encode()

    @staticmethod
    def decode(value: bytes) -> TableProgress:
        """Return the record that `encode` wrote.

        Raises:
            BadRecord: *value* is something else.
        """
        try:
            data = json_text.parse(value)
            streams = {str(name): StreamPosition(**at) for name, at in data["streams"].items()}
            return checked(TableProgress(**(data | {"streams": streams})))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadRecord(f"no progress of a table: {value[:80]!r}") from error


def table_key(namespace: str, name: str) -> str:
    """Return the key of the progress of a pipeline's table."""
    return f"{KEYS}{namespace}/{name}"


def table_floor(
    position: StreamPosition | None, *, created: str, last_sequence: int, time_ns: int | None
) -> int:
    """Return the last message of a stream that a table needs no more; whatever is in doubt is 0.

    *created* and *last_sequence* are the stream's; *time_ns* is the server's time of the message
    at *position*, None where it has no such message.
    """
    if position is None or position.created != created or position.sequence > last_sequence:
        return 0
    # The message at the position stays: by its time the position is verified.
    return position.sequence - 1 if position.time_ns == time_ns else 0


def done_of(position: StreamPosition | None, *, created: str, last_sequence: int) -> int:
    """Return up to where a stream is in a table, 0 where the *position* is one in another life of
    the stream, which was *created* then.
    """
    if position is None or position.created != created or position.sequence > last_sequence:
        return 0
    return position.sequence


def is_overtaken_soon(lag: StreamLag, limits: Mapping[str, Any]) -> bool:
    """Return whether a stream is about to delete lines that are not in the table: by their age,
    or, where it makes room for newer ones, by its size. *limits* is its configuration, as the
    server has it.
    """
    if not lag.messages:
        return False
    age_s = limits.get("max_age", 0) / 1e9
    if age_s > 0 and lag.age_s > NEAR * age_s:
        return True
    if limits.get("discard", "old") != "old":
        return False
    fills = ((lag.bytes, limits.get("max_bytes", -1)), (lag.messages, limits.get("max_msgs", -1)))
    return any(limit > 0 and used > NEAR * limit for used, limit in fills)


# The table's own commits name the same once its job goes on. A job that never began, or never comes
# back, names nothing.
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
    """The messages that one table missed of each stream, the oldest range first; *messages* counts
    all, also those of ranges that are no longer kept.
    """

    messages: int = 0
    streams: Mapping[str, tuple[MissedRange, ...]] = field(default_factory=dict)

    def with_range(self, stream: str, gone: MissedRange) -> Missed:
        """Return this with the range *gone* of *stream*. A message that is in both counts once."""
        ranges = list(self.streams.get(stream, ()))
        first = gone.first
        if ranges and ranges[-1].created == gone.created:
            # Written before the purge, so a purge that failed is written again.
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
        return json_text.dump(asdict(self)).encode()

    @staticmethod
    def decode(value: bytes) -> Missed:
        """Return the record that `encode` wrote.

        Raises:
            BadRecord: *value* is something else.
        """
        try:
            data = json_text.parse(value)
            streams = {
                str(name): tuple(_range(each) for each in ranges)
                for name, ranges in data["streams"].items()
            }
            return Missed(messages=_number(data["messages"]), streams=streams)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadRecord(f"no record of what a table missed: {value[:80]!r}") from error


def missed_key_of(table_key: str) -> str:
    """Return the key of what a table missed, from the key of its progress."""
    return MISSED_KEYS + table_key.removeprefix(KEYS)


def _range(data: Mapping[str, Any]) -> MissedRange:
    created = data["created"]
    if not isinstance(created, str):
        raise TypeError("not a time")
    first, last, at_ns = (_number(data[name]) for name in ("first", "last", "at_ns"))
    return MissedRange(created=created, first=first, last=last, at_ns=at_ns)


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError("not a number")
    return value
