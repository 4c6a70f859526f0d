"""How far a stream was read, as Spark's checkpoint keeps it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from logpipeline.nats.jetstream import time_ns_of
from logpipeline.streamstate import StreamState, Verdict
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
