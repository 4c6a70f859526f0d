"""Offsets of streams: the places that options name (earliest, latest, a time, or JSON with a place
of each stream), and the positions in Spark's checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from logpipeline import json_text
from logpipeline.nats.jetstream import time_ns_of
from logpipeline.streamstate import StreamState, Verdict
from logpipeline_spark.errors import Refused

# The numbers for these two in JSON, as in Spark's Kafka source.
EARLIEST_NUMBER = -2
LATEST_NUMBER = -1


@dataclass(frozen=True, slots=True)
class Place:
    """The place where reading begins or ends. *sequences* are the first, or the last, of each
    stream to be read; *time_ns* is the time of the first message to be read, or of the first one
    that is not, and *times_ns* the same for each stream.
    """

    kind: Literal["earliest", "latest", "sequences", "time", "times"]
    sequences: tuple[tuple[str, int], ...] = ()
    time_ns: int = 0
    times_ns: tuple[tuple[str, int], ...] = ()

    def of(self, stream: str) -> int:
        """Return the sequence for *stream*."""
        return dict(self.sequences)[stream]

    def time_of(self, stream: str) -> int | None:
        """Return the time for *stream*, in nanoseconds since 1970; None if there is none."""
        if self.kind == "time":
            return self.time_ns
        return dict(self.times_ns)[stream] if self.kind == "times" else None

    def unlike(self, streams: Iterable[str]) -> str:
        """Return why this place does not fit *streams*; empty if it fits."""
        if self.kind not in ("sequences", "times"):
            return ""
        named = {stream for stream, _ in (*self.sequences, *self.times_ns)}
        if named == set(streams):
            return ""
        return (
            f"JSON names {', '.join(sorted(named)) or 'no stream'}; it must name each of "
            f"{', '.join(sorted(streams))}"
        )


EARLIEST = Place("earliest")
LATEST = Place("latest")


def read_offsets(text: str, streams: tuple[str, ...]) -> Place:
    """Return the place that *text* names in each of *streams*; if the streams are not known yet,
    any names are accepted.

    Raises:
        ValueError: it names no place.
    """
    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else LATEST
    example = f'{{"{streams[0] if streams else "LOGS_0"}": 1}}'
    try:
        data = json_text.parse(text)
    except ValueError:
        raise ValueError(
            f"{text[:80]!r} is neither earliest, latest, nor JSON: {example}"
        ) from None
    if not isinstance(data, dict) or not all(_is_sequence(value) for value in data.values()):
        raise ValueError(
            f"JSON gives each stream a sequence (-2 is the earliest, -1 the latest): {example}"
        )
    return _checked(Place("sequences", tuple(sorted(data.items()))), streams)


def read_timestamps(text: str, streams: tuple[str, ...]) -> Place:
    """Return the place of a time in each of *streams*, given as JSON; if the streams are not known
    yet, any names are accepted.

    Raises:
        ValueError: it names no place.
    """
    example = f'{{"{streams[0] if streams else "LOGS_0"}": 1795255200000}}'
    try:
        data = json_text.parse(text)
    except ValueError:
        data = None
    if not isinstance(data, dict) or not all(type(value) in (int, str) for value in data.values()):
        raise ValueError(
            f"JSON gives each stream a time, in a form of startingTimestamp: {example}"
        )
    times = {stream: read_timestamp(str(value)).time_ns for stream, value in data.items()}
    return _checked(Place("times", times_ns=tuple(sorted(times.items()))), streams)


def _checked(place: Place, streams: tuple[str, ...]) -> Place:
    if streams and (why := place.unlike(streams)):
        raise ValueError(why)
    return place


def read_timestamp(text: str) -> Place:
    """Return the place of the time *text*: ISO 8601 (UTC if it names no zone), or milliseconds
    since 1970 as for Kafka's source.

    Raises:
        ValueError: it is not a time.
    """
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return Place("time", time_ns=int(text) * 1_000_000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text[:80]!r} is not a time: write 2026-11-21T10:00:00Z, or milliseconds since 1970"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return Place(
        "time",
        time_ns=(since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000,
    )


def _is_sequence(value: object) -> bool:
    return type(value) is int and (value >= 0 or value in (EARLIEST_NUMBER, LATEST_NUMBER))


VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The end of the part of a stream that was read: *sequence*, whose message the server stored at
    *time_ns* (0: not known). The batch that ended here began after *after*; its messages take
    *message_bytes* on average, so that a repeated batch is split into the same tasks.

    Messages up to *known_until_ns* may have been read in an earlier incarnation of the stream.

    A batch is known by its end alone: after a crash Spark asks for the start of the first batch
    again, and the start "latest" would be another one by then.
    """

    created: str
    rollbacks: int
    sequence: int
    time_ns: int
    after: int
    message_bytes: int = 1
    known_until_ns: int = 0

    @property
    def incarnation(self) -> str:
        """The stream's incarnation as it stands in file names."""
        return f"{time_ns_of(self.created):x}r{self.rollbacks}"


def loss_sentence(stream: str, verdict: Verdict, position: Position, state: StreamState) -> str:
    """Return the sentence for a user whose position is not valid any more."""
    what = {
        Verdict.ROLLED_BACK: (
            f"stream {stream} was rolled back: its message {position.sequence}, the last one that "
            "was read, is another one now or gone (its server lost the newest messages)"
        ),
        Verdict.RECREATED: (
            f"stream {stream} was created again ({state.created}) since it was read up to "
            f"{position.sequence} (created {position.created})"
        ),
        Verdict.PURGED: (
            f"stream {stream} begins at {state.first} and was read up to {position.sequence}: the "
            "messages in between are gone (retention, or a purge)"
        ),
    }[verdict]
    return f"{what}; set failOnDataLoss to false to continue with the messages that are left"


def encode(positions: dict[str, Position], *, is_start: bool = False) -> dict[str, Any]:
    """Return *positions* as Spark's offset. *is_start* makes it differ from any end, so that Spark
    runs a first batch at once, empty or not: its end keeps the start in the checkpoint.
    """
    streams = {name: asdict(position) for name, position in sorted(positions.items())}
    return {"version": VERSION, "streams": streams} | ({"start": True} if is_start else {})


def decode(offset: dict[str, Any]) -> dict[str, Position]:
    """Return the positions in *offset*.

    Raises:
        Refused: this version of logpipeline cannot read it.
    """
    try:
        if offset["version"] != VERSION:
            raise ValueError(offset["version"])
        return {name: Position(**fields) for name, fields in offset["streams"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refused(
            "the checkpoint holds offsets that this version of logpipeline cannot read; use the "
            "version that wrote it, or a new checkpoint folder"
        ) from error


def check_streams(known: dict[str, Position], streams: tuple[str, ...]) -> None:
    """Check that a checkpoint belongs to *streams*.

    Raises:
        Refused: it names other streams; how far *streams* were read is not known.
    """
    if set(known) != set(streams):
        raise Refused(
            f"the checkpoint was made for the streams {', '.join(sorted(known))}, and the options "
            f"name {', '.join(sorted(streams))}; use the earlier options, or a new checkpoint "
            "folder"
        )


def moved(position: Position, *, sequence: int, time_ns: int, message_bytes: int) -> Position:
    """Return the end of a batch that begins at *position*."""
    return replace(
        position,
        sequence=sequence,
        time_ns=time_ns,
        after=position.sequence,
        message_bytes=message_bytes,
    )
