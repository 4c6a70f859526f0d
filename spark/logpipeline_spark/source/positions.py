"""How far a stream was read, as Spark's checkpoint keeps it, and what becomes of a position when
the stream is looked at again. A server that lost its tail uses sequence numbers again, so a
position names its message by the server's time as well.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from logpipeline.nats.jetstream import time_ns_of
from logpipeline_spark.errors import Refused

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A stream that was read up to *sequence*, whose message the server stored at *time_ns* (0: it
    is not known). *after* is where the batch that ended here began, *message_bytes* what its
    messages take on average: a batch that is repeated is shared among tasks as it was.

    A batch is known by its end alone: Spark asks for the start of the first one again after a
    crash, and a start "latest" would by then be another one.
    """

    created: str
    rollbacks: int
    sequence: int
    time_ns: int
    after: int
    message_bytes: int = 1

    @property
    def incarnation(self) -> str:
        """The stream's life as it stands in names of files."""
        return f"{time_ns_of(self.created):x}r{self.rollbacks}"


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream as the server describes it: *first* and *last* are sequences, *subjects* the filters
    of what it stores, none where that is not known.
    """

    created: str
    first: int
    last: int
    messages: int
    bytes: int
    last_time_ns: int
    subjects: tuple[str, ...] = ()

    @property
    def message_bytes(self) -> int:
        """What a message takes on average, at least one byte."""
        return max(self.bytes // self.messages, 1) if self.messages else 1


def state_of(info: dict[str, Any]) -> StreamState:
    """Return what JetStream's answer to STREAM.INFO says."""
    state, config = info["state"], info["config"]
    # What comes from another stream, or is renamed, is stored under subjects that stand elsewhere.
    is_own = not any(config.get(name) for name in ("mirror", "sources", "subject_transform"))
    return StreamState(
        str(info["created"]),
        int(state["first_seq"]),
        int(state["last_seq"]),
        int(state["messages"]),
        int(state["bytes"]),
        time_ns_of(state["last_ts"]) if int(state["last_seq"]) else 0,
        tuple(config.get("subjects") or ()) if is_own else (),
    )


class Verdict(Enum):
    """What became of a position."""

    GOOD = "good"
    ROLLED_BACK = "rolled back"
    RECREATED = "recreated"
    PURGED = "purged"


def judge(position: Position, state: StreamState, found_time_ns: int | None) -> Verdict:
    """Return what *state*, and the time of the message that now stands at the position's sequence
    (None: no message), say about *position*.
    """
    if position.created != state.created:
        return Verdict.RECREATED
    if state.last < position.sequence:
        return Verdict.ROLLED_BACK
    is_other = found_time_ns is not None and found_time_ns != position.time_ns
    if position.sequence and position.time_ns and is_other:
        return Verdict.ROLLED_BACK
    # The first of an empty stream is the one behind its last.
    return Verdict.PURGED if state.first > position.sequence + 1 else Verdict.GOOD


def loss_sentence(stream: str, verdict: Verdict, position: Position, state: StreamState) -> str:
    """Return what to tell a user whose position is not good any more."""
    what = {
        Verdict.ROLLED_BACK: (
            f"stream {stream} went back: its message {position.sequence}, up to which was read, is "
            "another one now or gone (its server lost the newest messages)"
        ),
        Verdict.RECREATED: (
            f"stream {stream} was made anew ({state.created}) since it was read up to "
            f"{position.sequence} (made {position.created})"
        ),
        Verdict.PURGED: (
            f"stream {stream} begins at {state.first} and was read up to {position.sequence} only: "
            "what lay between is gone (retention, or a purge)"
        ),
    }[verdict]
    return f"{what}; set failOnDataLoss to false to go on with what is there"


def encode(positions: dict[str, Position], *, is_start: bool = False) -> dict[str, Any]:
    """Return *positions* as Spark's offset. *is_start* makes it unlike any end, so that Spark runs
    a first batch at once, empty or not: its end keeps the start in the checkpoint.
    """
    streams = {name: asdict(position) for name, position in sorted(positions.items())}
    return {"version": VERSION, "streams": streams} | ({"start": True} if is_start else {})


def decode(offset: dict[str, Any]) -> dict[str, Position]:
    """Return the positions of *offset*.

    Raises:
        Refused: this version does not know it.
    """
    try:
        if offset["version"] != VERSION:
            raise ValueError(offset["version"])
        return {name: Position(**fields) for name, fields in offset["streams"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refused(
            "the checkpoint holds offsets that this version cannot read; use the version that "
            "wrote it, or a new checkpoint folder"
        ) from error


def check_streams(known: dict[str, Position], streams: tuple[str, ...]) -> None:
    """Check that a checkpoint is one of *streams*.

    Raises:
        Refused: it names others; what of them was read is not known to anybody then.
    """
    if set(known) != set(streams):
        raise Refused(
            f"the checkpoint was made for the streams {', '.join(sorted(known))}, and the options "
            f"name {', '.join(sorted(streams))}; use the options of before, or a new checkpoint "
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
