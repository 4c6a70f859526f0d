"""What is kept beside each commit of a stream: up to where it was read, and what is known of its
sources.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from logpipeline_spark.errors import Refused
from logpipeline_spark.running.known import Known, pack, unpack
from logpipeline_spark.source.positions import Position

VERSION = 1


@dataclass(slots=True)
class StreamState:
    """A stream as the table has it; *position* is None before the first commit."""

    position: Position | None = None
    known: Known = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return it as bytes: a line of JSON, and the sources."""
        assert self.position is not None
        head = json.dumps({"version": VERSION, "position": asdict(self.position)})
        return head.encode() + b"\n" + pack(self.known)

    @staticmethod
    def decode(data: bytes, *, where: str) -> StreamState:
        """Return what `encode` made.

        Raises:
            Refused: it is something else; *where* tells the reader which object.
        """
        head, _, sources = data.partition(b"\n")
        try:
            said = json.loads(head)
            if said["version"] != VERSION:
                raise ValueError(f"version {said['version']}; this program knows {VERSION}")
            position = Position(**said["position"])
        except (ValueError, KeyError, TypeError) as error:
            raise Refused(
                f"{where} is damaged or of another version ({error}): bring the table's folder "
                "_table back from a backup, or use the version that wrote it"
            ) from error
        return StreamState(position, unpack(sources, where=where))
