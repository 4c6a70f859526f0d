"""How far a table of the lines is, where those who trim streams, and those who show it, read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from logpipeline.records import BadRecord, StreamPosition

KEYS = "archive."
# A line must not get nearer than this share to what its stream keeps before it is archived: later
# than that is late for whoever has to do something.
NEAR = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveProgress:
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
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @staticmethod
    def decode(value: bytes) -> ArchiveProgress:
        """Return what `encode` wrote.

        Raises:
            BadRecord: it is nothing of the kind.
        """
        try:
            data = json.loads(value)
            streams = {str(name): StreamPosition(**at) for name, at in data["streams"].items()}
            progress = ArchiveProgress(**(data | {"streams": streams}))
            _check(progress)
            return progress
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadRecord(f"no progress of an archive: {value[:80]!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLag:
    """What of one stream is not in the table yet; *age_s* is the age of the oldest such line."""

    messages: int
    bytes: int
    age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveState:
    """How a table stands: the *progress* that was told, None before the first; what of each stream
    is behind it; the streams that are about to delete what is not in the table, those that are not
    trimmed because of the table alone, those of which it *misses* lines that it did not go on
    behind yet, and all that it missed, in messages.
    """

    progress: ArchiveProgress | None = None
    lags: Mapping[str, StreamLag] = field(default_factory=dict)
    overtaken_soon: tuple[str, ...] = ()
    held_back: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    missed_messages: int = 0


def archive_key(namespace: str, name: str) -> str:
    """Return the key at which the archive of a pipeline tells how far it is."""
    return f"{KEYS}{namespace}/{name}"


def archive_floor(
    position: StreamPosition | None, *, created: str, last_sequence: int, time_ns: int | None
) -> int:
    """Return the last message of a stream that an archive needs no more; whatever is in doubt is 0.

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
    """Return whether a stream is about to delete lines that are not archived: by their age, or,
    where it makes room for newer ones, by its size. *limits* is its configuration, as the server
    has it.
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


def lag_of(position: StreamPosition | None, state: Mapping[str, Any], age_s: float) -> StreamLag:
    """Return what lies behind *position* in a stream of which the server tells *state*."""
    done = position.sequence if position else 0
    unread = max(0, int(state["last_seq"]) - max(done, int(state["first_seq"]) - 1))
    messages = min(unread, int(state["messages"]))
    mean = int(state["bytes"]) / int(state["messages"]) if state["messages"] else 0.0
    age_s = age_s if messages else 0.0
    return StreamLag(messages=messages, bytes=int(messages * mean), age_s=age_s)


def _check(progress: ArchiveProgress) -> None:
    """Raise where fields are of other kinds: whoever may write the bucket may write anything."""
    numbers = [progress.commit, progress.rows, progress.at_ns]
    texts = [progress.path, progress.problem]
    for position in progress.streams.values():
        numbers += [position.sequence, position.time_ns]
        texts.append(position.created)
    if not all(type(number) is int for number in numbers):
        raise TypeError("a number is none")
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a text is none")
