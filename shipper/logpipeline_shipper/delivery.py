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
from logpipeline_shipper.files.sources import SourceId
from logpipeline_shipper.message import ATTEMPT_BYTES, Packer, Parcel
from logpipeline_shipper.publish import IdTaken, Unsendable
from logpipeline_shipper.resend import Past, Piece
from logpipeline_shipper.shared import Shared

log = logging.getLogger(__name__)

# Where each line is a message: each of them is kept in mind until all of a chunk have arrived, and
# what needs no answer is sent without giving others a turn. The rest is read once more.
LINES_AT_ONCE_MAX = 2048


@dataclass(slots=True)
class Lot:
    """A chunk that was read, in the pieces in which it travels; the first one is packed.

    *is_part* says that it is only the first part of what was read: the rest is read once more.
    *ack* is what was to be waited for when it was read; it holds for all of it.
    """

    chunk: Chunk
    is_part: bool
    pieces: deque[Piece]
    parcel: Parcel
    held_bytes: int
    ack: Acknowledge


class Delivery:
    """The way of one source's chunks to the server. *ack* is what lots wait for that are read from
    now on; *birth* returns what a chain knows a generation again by; *in_flight* are the messages
    of the chunk that is being sent.
    """

    __slots__ = (
        "_account",
        "_birth",
        "_packer",
        "_past",
        "_shared",
        "ack",
        "id",
        "in_flight",
        "key",
    )

    def __init__(
        self,
        id: SourceId,
        packer: Packer,
        past: Past,
        account: Account,
        shared: Shared,
        birth: Callable[[str], list[Any]],
    ) -> None:
        self.id = id
        self.key = Key(id.host, id.source)
        self.ack: Acknowledge = "batch"
        self.in_flight: dict[Intent, None] = {}  # a set in order
        self._packer = packer
        self._past = past
        self._account = account
        self._shared = shared
        self._birth = birth

    def prepare(self, chunk: Chunk) -> Lot:
        """Return *chunk* ready to be sent; it may be done in a thread."""
        ack = self.ack
        pieces = deque(self._past.pieces(chunk, self.id.format))
        if ack == "each" or self._shared.options.message == "line":
            pieces = deque(islice(self._single(pieces), LINES_AT_ONCE_MAX))
        end = pieces[-1].chunk.end
        is_part = end < chunk.end
        if is_part:
            chunk, _ = resend.split_at(chunk, end, self.id.format)
        parcel = self._packer.pack(pieces[0])
        return Lot(chunk, is_part, pieces, parcel, len(chunk.data) + len(parcel.payload), ack)

    async def deliver(self, lot: Lot) -> None:
        """Send all of *lot*, one message after the other."""
        if not self._account.knows(lot.chunk.generation):
            birth = self._birth(lot.chunk.generation)
            await self._shared.intents.note_birth(self.key, birth)
            self._account.begin(lot.chunk.generation, lot.chunk.start)
        parcel: Parcel | None = lot.parcel
        while lot.pieces:
            piece = lot.pieces.popleft()
            smaller = await self._send(piece, parcel, lot.ack, is_noted=True)
            lot.pieces.extendleft(reversed(smaller))
            parcel = None

    async def repeat(self, chunk: Chunk, attempt: str) -> None:
        """Send *chunk*, which had been acknowledged before, under ids of its own."""
        pieces = [Piece(chunk, attempt, True)]
        while pieces:
            # Nothing is noted: if it is lost, whoever misses the bytes asks for them again.
            pieces[:0] = await self._send(pieces.pop(0), None, "batch", is_noted=False)

    async def name(self, gap: Gap) -> None:
        """Tell collectors that the bytes of *gap* are lost."""
        if self._shared.options.message == "line":
            # A line alone has no headers that could say so: it is counted here, and logged.
            self._account.name(gap)
            return
        begins = self._account.begins_at(gap.generation, gap.start)
        parcel = self._packer.pack_loss(gap, begins=begins)
        try:
            ack = await self._shared.sender.send(parcel, resend=False)
        except Unsendable as error:
            self._shared.totals.unnamed_bytes += gap.end - gap.start
            fields = {**self.key._asdict(), **gap._asdict(), "reason": error.reason}
            log.error("a loss cannot be told to collectors", extra=fields)
        else:
            self._note_arrived(parcel, ack)
        self._account.name(gap)

    def _note_arrived(self, parcel: Parcel, ack: PubAck) -> None:
        batch = parcel.batch
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
        self, piece: Piece, parcel: Parcel | None, ack: Acknowledge, *, is_noted: bool
    ) -> list[Piece]:
        """Send one message; return the smaller pieces that are to be sent in its place, if any."""
        sender, chunk = self._shared.sender, piece.chunk
        if parcel is None:
            parcel = self._packer.pack(piece)
        try:
            sender.check_size(parcel)
            if is_noted:
                after = chunk.checksums.after
                intent = Intent(chunk.generation, chunk.start, chunk.end, piece.attempt, after)
                self.in_flight[intent] = None
                self._shared.intents.note(self.key, intent)
            # What has an attempt of its own makes up for a loss, which must come to an end.
            if ack == "none" and not piece.attempt:
                await sender.send_unacknowledged(parcel, resend=piece.resend)
            else:
                arrived = await sender.send(parcel, resend=piece.resend)
                # Of a line alone nobody will ever say whether it is archived.
                if not parcel.is_line:
                    self._note_arrived(parcel, arrived)
        except IdTaken as error:
            log.error(
                "somebody else sent a message under our id; the same goes under another one",
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
