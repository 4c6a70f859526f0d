"""What of a source may have been sent already: it is repeated in the same pieces, and marked.

Whatever is not certainly the first sending of its bytes carries the mark, so that every reader
checks it; a mark too many costs a look, one too few a duplicate.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from logpipeline import wire
from logpipeline_shipper.cutting import split_at
from logpipeline_shipper.files.chain import Chunk
from logpipeline_shipper.intents import Intent
from logpipeline_shipper.positions import Position


class Piece(NamedTuple):
    """A part of a chunk that becomes one message; *is_unsure* where it is marked though nothing is
    known of an earlier sending.
    """

    chunk: Chunk
    attempt: str
    resend: bool
    is_unsure: bool = False


class Past:
    """The past of one source. *is_in_doubt*: anything that stands in its files may have been sent,
    until everything has been read once.
    """

    __slots__ = ("_noted", "_sent_to", "is_in_doubt")

    def __init__(self, intents: Iterable[Intent], *, is_in_doubt: bool) -> None:
        self.is_in_doubt = is_in_doubt
        self._sent_to: dict[str, int] = {}
        # The last word on a start counts: a batch that was too large was sent in smaller ones.
        self._noted: dict[Position, Intent] = {}
        self.note(intents)

    def note(self, intents: Iterable[Intent]) -> None:
        """Take in what may have been sent, in the order in which it was."""
        for intent in intents:
            self._noted[intent.generation, intent.start] = intent
            sent_to = self._sent_to.get(intent.generation, 0)
            self._sent_to[intent.generation] = max(sent_to, intent.end)

    def pieces(self, chunk: Chunk, log_format: wire.Format) -> list[Piece]:
        """Return *chunk* in the pieces in which it was sent before, the rest as one.

        They may end before *chunk* does, where a piece that was sent before goes on beyond it:
        that one is to be read as a whole.
        """
        pieces: list[Piece] = []
        rest = chunk
        while True:
            noted = self._noted.get((rest.generation, rest.start))
            if noted is None or not rest.start < noted.end < rest.end:
                break
            piece, rest = split_at(rest, noted.end, log_format)
            pieces.append(Piece(piece, noted.attempt, True))
        if noted is not None and noted.end > rest.end and pieces:
            return pieces
        attempt = noted.attempt if noted and noted.end == rest.end else ""
        was_sent = rest.start < self._sent_to.get(rest.generation, 0)
        is_unsure = self.is_in_doubt and not was_sent
        pieces.append(Piece(rest, attempt, was_sent or is_unsure, is_unsure))
        return pieces

    def acknowledged(self, chunk: Chunk) -> None:
        """Forget what was noted of the bytes of *chunk*."""
        if self._noted:
            for position in [
                (generation, start)
                for generation, start in self._noted
                if generation == chunk.generation and start < chunk.end
            ]:
                del self._noted[position]

    def read_all(self) -> None:
        """Everything that was in the files has been read: what follows is new."""
        self.is_in_doubt = False
        self._sent_to.clear()
        self._noted.clear()
