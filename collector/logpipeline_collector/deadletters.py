"""Messages that cannot be archived are kept where people find them, with the reason, before the
position moves on. A flood of them must not stop the good ones, so the room of each host, and the
patience, are bounded; what is not kept is named: host, messages and bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from logpipeline.deadletters import Letter, keep
from logpipeline.nats.jetstream import JetStream
from logpipeline.nats.pull import Delivered
from logpipeline_collector.letterroom import LetterRoom
from logpipeline_collector.tenure import Tenure

log = logging.getLogger(__name__)

NAMES_MAX = 1024


@dataclass(slots=True)
class NotKept:
    """Dead letters of one host that found no room."""

    messages: int = 0
    bytes: int = 0


class DeadLetters:
    """Sends bad messages to the dead-letter stream, where there is *room*; *counted* hears of each
    one, sent or not. *not_kept* names what is gone, by host; beyond `NAMES_MAX` hosts, under an
    empty name.
    """

    def __init__(
        self,
        js: JetStream,
        root: str,
        room: LetterRoom,
        counted: Callable[[int, str, bool], None],
    ) -> None:
        self._js = js
        self._root = root
        self._counted = counted
        self.room = room
        self.not_kept: dict[str, NotKept] = {}

    async def put(self, delivered: Delivered, tenure: Tenure, *, reason: str, detail: str) -> None:
        """Keep the message with its *reason* (one token).

        It returns at the latest after `logpipeline.deadletters.DEADLINE_S`; then, or where there
        is no room, the message is named in `not_kept`, counted and logged.
        """
        message = delivered.message
        letter = Letter(
            reason=reason,
            detail=detail,
            stream=tenure.stream,
            created=tenure.position.created,
            sequence=delivered.sequence,
            time_ns=delivered.time_ns,
            subject=message.subject.decode("utf-8", "surrogateescape"),
            headers=message.headers,
            payload=message.data,
            payload_bytes=len(message.data),
        )
        is_kept = await self.room.admits(tenure.partition, tenure.epoch, letter) and await keep(
            self._js, self._root, tenure.partition, letter
        )
        if not is_kept:
            self._name(self.room.host_of(letter), tenure.partition, delivered, reason)
        self._counted(tenure.partition, reason, is_kept)

    def _name(self, host: str, partition: int, delivered: Delivered, reason: str) -> None:
        name = host if host in self.not_kept or len(self.not_kept) < NAMES_MAX else ""
        gone = self.not_kept.setdefault(name, NotKept())
        gone.messages += 1
        gone.bytes += len(delivered.message.data)
        # Powers of two: a flood of letters must not become a flood of lines.
        if gone.messages & (gone.messages - 1) == 0:
            log.error(
                "dead letters of a host are not kept",
                extra={
                    "host": name,
                    "partition": partition,
                    "sequence": delivered.sequence,
                    "reason": reason,
                    "messages": gone.messages,
                    "bytes": gone.bytes,
                },
            )
