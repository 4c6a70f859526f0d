"""Delivers a chunk as one message, or as several: as it was sent before, or if it is too large."""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from logpipeline.nats.jetstream import PubAck
from logpipeline.spec.streams import Acknowledge
from logpipeline_shipper import resend
from logpipeline_shipper.account import REFUSED, Account, Gap
from logpipeline_shipper.checkpoint import Intent, Key
from logpipeline_shipper.files.chain import Chunk
from logpipeline_shipper.files.listing import SourceId
from logpipeline_shipper.message import ATTEMPT_BYTES, Message, MessageBuilder
from logpipeline_shipper.publish import IdTaken, Unsendable
from logpipeline_shipper.resend import EarlierSends, Piece
from logpipeline_shipper.shared import Shared

log = logging.getLogger(__name__)

# If each line is a message, so many are taken from a chunk, and the rest is read once more: each
# intent is kept until all of the chunk are acknowledged, and messages without acknowledgement are
# sent without a turn for other sources.
LINES_AT_ONCE_MAX = 2048


@dataclass(slots=True)
class PreparedChunk:
    """A chunk that was read, in the pieces in which it is sent; *message* is that of the first.

    *is_part*: it is only the first part of what was read, and the rest is read once more. *ack* is
    the acknowledgement to wait for; it was valid when the chunk was read, and holds for all of it.
    """

    chunk: Chunk
    is_part: bool
    pieces: deque[Piece]
    message: Message
    held_bytes: int
    ack: Acknowledge


class Delivery:
    """Sends the chunks of one source to the server. *ack* is the acknowledgement to wait for, of
    chunks that are read from now on; *birth* returns the row by which a chain recognises a
    generation; *in_flight* are the messages of the chunk that is being sent.
    """

    __slots__ = (
        "_account",
        "_birth",
        "_builder",
        "_earlier",
        "_shared",
        "ack",
        "id",
        "in_flight",
        "key",
    )

    def __init__(
        self,
        id: SourceId,
        builder: MessageBuilder,
        earlier: EarlierSends,
        account: Account,
        shared: Shared,
        birth: Callable[[str], list[Any]],
    ) -> None:
        self.id = id
        self.key = Key(id.host, id.source)
        self.ack: Acknowledge = "batch"
        self.in_flight: dict[Intent, None] = {}  # a set in order
        self._builder = builder
        self._earlier = earlier
        self._account = account
        self._shared = shared
        self._birth = birth

    def prepare(self, chunk: Chunk) -> PreparedChunk:
        """Return *chunk* ready to be sent; this may run in a thread."""
        ack = self.ack
        pieces = deque(self._earlier.pieces(chunk, self.id.format))
        if ack == "each" or self._shared.options.message == "line":
            pieces = deque(islice(self._single(pieces), LINES_AT_ONCE_MAX))
        end = pieces[-1].chunk.end
        is_part = end < chunk.end
        if is_part:
            chunk, _ = resend.split_at(chunk, end, self.id.format)
        message = self._builder.build(pieces[0])
        return PreparedChunk(
            chunk, is_part, pieces, message, len(chunk.data) + len(message.payload), ack
        )

    async def deliver(self, prepared: PreparedChunk) -> None:
        """Send all of *prepared*, one message after the other."""
        if not self._account.knows(prepared.chunk.generation):
            birth = self._birth(prepared.chunk.generation)
            await self._shared.intents.note_birth(self.key, birth)
            self._account.begin(prepared.chunk.generation, prepared.chunk.start)
        message: Message | None = prepared.message
        while prepared.pieces:
            piece = prepared.pieces.popleft()
            smaller = await self._send(piece, message, prepared.ack, is_noted=True)
            prepared.pieces.extendleft(reversed(smaller))
            message = None

    async def repeat(self, chunk: Chunk, attempt: str) -> None:
        """Send *chunk*, which was acknowledged before, once more under new ids."""
        pieces = [Piece(chunk, attempt, True)]
        while pieces:
            # No intent: if it is lost, collectors report the hole again.
            pieces[:0] = await self._send(pieces.pop(0), None, "batch", is_noted=False)

    async def name(self, gap: Gap) -> None:
        """Report to collectors that the bytes of *gap* are lost."""
        if self._shared.options.message == "line":
            # A line without headers cannot report a loss: it is only counted and logged here.
            self._shared.totals.unnamed_bytes += gap.end - gap.start
            self._account.name(gap)
            return
        begins = self._account.begins_at(gap.generation, gap.start)
        message = self._builder.build_loss(gap, begins=begins)
        try:
            ack = await self._shared.sender.send(message, resend=False)
        except Unsendable as error:
            self._shared.totals.unnamed_bytes += gap.end - gap.start
            fields = {**self.key._asdict(), **gap._asdict(), "reason": error.reason}
            log.error("a loss cannot be reported to collectors", extra=fields)
        else:
            self._note_arrived(message, ack)
        self._account.name(gap)

    def _note_arrived(self, message: Message, ack: PubAck) -> None:
        batch = message.batch
        self._account.acknowledged(
            batch.generation,
            (batch.start, batch.end),
            sequence=ack.sequence,
            now_s=self._shared.clock(),
        )

    def _single(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            for line in resend.single_lines(piece.chunk, self.id.format):
                yield piece._replace(chunk=line)

    async def _send(
        self, piece: Piece, message: Message | None, ack: Acknowledge, *, is_noted: bool
    ) -> list[Piece]:
        """Send one message; return the smaller pieces that are to be sent in its place, if any."""
        sender, chunk = self._shared.sender, piece.chunk
        if message is None:
            message = self._builder.build(piece)
        try:
            sender.check_size(message)
            if is_noted:
                # By it the file is known again after a restart.
                after = chunk.in_file.checksums.after
                intent = Intent(chunk.generation, chunk.start, chunk.end, piece.attempt, after)
                self.in_flight[intent] = None
                self._shared.intents.note(self.key, intent)
            # A piece with an attempt fills a loss, which must not be lost once more.
            if ack == "none" and not piece.attempt:
                await sender.send_unacknowledged(message, resend=piece.resend)
            else:
                arrived = await sender.send(message, resend=piece.resend)
                # Collectors never confirm a line without headers.
                if not message.is_line:
                    self._note_arrived(message, arrived)
        except IdTaken as error:
            log.error(
                "another program used the id of a message; the batch is sent under another id",
                extra={**self.key._asdict(), "id": str(error)},
            )
            return [Piece(chunk, secrets.token_hex(ATTEMPT_BYTES), True)]
        except Unsendable as error:
            parts = resend.halves(chunk, self.id.format) if error.is_too_large else None
            if parts is None:
                self._put_aside(chunk, error)
                return []
            return [Piece(part, piece.attempt, True) for part in parts]
        return []

    def _put_aside(self, chunk: Chunk, error: Unsendable) -> None:
        about: dict[str, object] = {
            **self.key._asdict(),
            "generation": chunk.generation,
            "start": chunk.start,
            "end": chunk.end,
        }
        self._shared.quarantine.put(about, chunk.data, error.reason)
        self._account.lose(Gap(chunk.generation, chunk.start, chunk.end, REFUSED))
