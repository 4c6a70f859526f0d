"""Records of readers: claims and progress, their JSON, and their keys in the state bucket."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from logpipeline import json_text
from logpipeline.declared_types import checked
from logpipeline.records import BadRecord, StreamPosition

# A reader that hands out message by message need not note each of them before.
NEXT_ALONE = -1
# A batch that was begun so often is not counted further.
BEGUN_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """Progress in a stream: everything up to *position* was processed.

    *working* is the last sequence of the batch behind it that is being processed; when its reader
    dies, the next one hands out the same batch again, to the message. 0: none is; `NEXT_ALONE`: the
    next message by itself may be. *begun* is how many readers have begun that batch and not ended
    in peace. Readers of former versions do not know it, and leave it out.
    """

    position: StreamPosition
    working: int = 0
    begun: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the progress as data for JSON."""
        data = asdict(self)
        if not self.begun:
            # Nothing is known of it, as in former versions.
            del data["begun"]
        return data

    @staticmethod
    def of_json(data: Any) -> ReadProgress:
        """Return the progress that `as_json` made.

        Raises:
            BadRecord: it is none.
        """
        try:
            position = StreamPosition(**data["position"])
            begun = min(max(int(data.get("begun", 0)), 0), BEGUN_MAX)
            return checked(ReadProgress(position, int(data["working"]), begun=begun))
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise BadRecord(f"no progress of a reader: {str(data)[:80]!r}") from error


def position_text(position: StreamPosition) -> str:
    """Return *position* as a short text, for users that keep it themselves."""
    return f"{position.sequence} {position.time_ns} {position.created}"


def position_of(text: str) -> StreamPosition:
    """Return the position that `position_text` wrote.

    Raises:
        BadRecord: it is none.
    """
    try:
        sequence, time_ns, created = text.split(" ")
        return StreamPosition(created, int(sequence), int(time_ns))
    except (ValueError, AttributeError) as error:
        raise BadRecord(f"no position of a reader: {str(text)[:80]!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The owner of a partition of a consumer. *epoch* rises with each owner; *incarnation* is the
    owner's process; *released* says that the owner gave it up by itself. *progress* is kept with
    state ``kv`` only.
    """

    epoch: int
    owner: str
    incarnation: str
    released: bool = False
    progress: ReadProgress | None = None

    def encode(self) -> bytes:
        """Return the claim as JSON."""
        progress = None if self.progress is None else self.progress.as_json()
        return json_text.dump({**asdict(self), "progress": progress}).encode()

    @staticmethod
    def decode(value: bytes) -> Claim:
        """Return the claim that `encode` wrote.

        Raises:
            BadRecord: it is none.
        """
        try:
            data = json_text.parse(value)
            progress = data["progress"]
            data["progress"] = None if progress is None else ReadProgress.of_json(progress)
            return checked(Claim(**data))
        except (ValueError, TypeError, KeyError) as error:
            raise BadRecord(f"no claim of a reader: {value[:80]!r}") from error


def claim_key(consumer: str, partition: int) -> str:
    """Return the key of the claim on *partition* of *consumer*."""
    return f"consume.{consumer}.p{partition}"


def reader_key(consumer: str, member: str) -> str:
    """Return the key at which *member* shows that it is alive; its value is its incarnation."""
    return f"consume.{consumer}.member.{member}"
