"""Keeps messages that cannot be used, and those that readers gave up, as dead letters, with the
reason and in bounded room.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from logpipeline.dead_letters import (
    Advisory,
    Letter,
    NoAdvisory,
    keep,
    letter_of,
    parse,
)
from logpipeline.failpoints import reach
from logpipeline.letter_room import LetterRoom
from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.nats.pull import Delivered
from logpipeline.nats.scan import Range, Scan, StreamChanged
from logpipeline.subjects import ADVISORIES, is_advisory
from logpipeline_collector.owned_partition import OwnedPartition

log = logging.getLogger(__name__)

NAMES_MAX = 1024

# Consumers are rare. Without one there is nothing to read.
ASK_AGAIN_S = 10.0
# An advisory that was put off, or failed, is looked at again after this time.
LOOK_AGAIN_S = 5.0


@dataclass(slots=True)
class NotKept:
    """Dead letters of one host for which there was no room."""

    messages: int = 0
    bytes: int = 0


class DeadLetters:
    """Sends bad messages to the dead-letter stream, if there is *room*; *counted* is called for
    each, sent or not. *not_kept* counts the others by host; beyond `NAMES_MAX` hosts, under an
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

    async def put(
        self, delivered: Delivered, owned: OwnedPartition, *, reason: str, detail: str
    ) -> None:
        """Keep the message with its *reason* (one token).

        It returns at the latest after `logpipeline.dead_letters.DEADLINE_S`; then, or where there
        is no room, the message is named in `not_kept`, counted and logged.
        """
        message = delivered.message
        letter = Letter(
            reason=reason,
            detail=detail,
            stream=owned.stream,
            created=owned.position.created,
            sequence=delivered.sequence,
            time_ns=delivered.time_ns,
            subject=message.subject.decode("utf-8", "surrogateescape"),
            headers=message.headers,
            payload=message.data,
            payload_bytes=len(message.data),
        )
        is_kept = await self.room.admits(owned.partition, owned.epoch, letter) and await keep(
            self._js, self._root, owned.partition, letter
        )
        if not is_kept:
            self._name(self.room.host_of(letter), owned.partition, delivered, reason)
        self._counted(owned.partition, reason, is_kept)

    def _name(self, host: str, partition: int, delivered: Delivered, reason: str) -> None:
        name = host if host in self.not_kept or len(self.not_kept) < NAMES_MAX else ""
        gone = self.not_kept.setdefault(name, NotKept())
        gone.messages += 1
        gone.bytes += len(delivered.message.data)
        # Logged at powers of two: a flood of letters must not become a flood of log lines.
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


class GivenUp:
    """Makes letters of messages that readers gave up, in the partitions that are ours now."""

    def __init__(
        self,
        js: JetStream,
        *,
        stream: str,
        root: str,
        room: LetterRoom,
        owned_partitions: Callable[[], list[OwnedPartition]],
        counted: Callable[[int, str, bool], None],
    ) -> None:
        self._js = js
        self._stream = stream
        self._root = root
        self._owned = owned_partitions
        self._counted = counted
        self._room = room

    async def run(self) -> None:
        """Make letters until cancelled."""
        while True:
            try:
                if await self._has_advisories():
                    await self._look()
                    continue
            except (NotSent, OutcomeUnknown):
                await self._js.connection.wait_connected()
            except (StreamChanged, ApiError) as error:
                log.warning("cannot read what consumers gave up", extra={"reason": str(error)})
            await asyncio.sleep(ASK_AGAIN_S)

    async def _has_advisories(self) -> bool:
        """Return whether consumers may give messages up, which the stream's subjects show."""
        info = await self._js.stream_info(self._stream)
        subjects = info["config"].get("subjects") or () if info is not None else ()
        return any(is_advisory(subject) for subject in subjects)

    async def _look(self) -> None:
        """Go through stored and new advisories, until one is put off or another partition becomes
        ours: then the caller begins anew.
        """
        ours = set(self._by_stream())
        loop, put_off_s = asyncio.get_running_loop(), None
        scan = Scan(self._js, self._stream, Range(), subject=ADVISORIES)
        async with aclosing(scan.batches()) as batches:
            async for batch in batches:
                for delivered in batch:
                    if not await self._is_settled(delivered):
                        put_off_s = put_off_s or loop.time()
                if put_off_s is not None and loop.time() - put_off_s > LOOK_AGAIN_S:
                    return
                if not set(self._by_stream()) <= ours:
                    return

    def _by_stream(self) -> dict[str, OwnedPartition]:
        """Return the partitions that are ours by their streams: of a stream that holds several, the
        first one, whose owner makes the letters of all.
        """
        return {
            owned.stream: owned
            for owned in self._owned()
            if not owned.subjects or owned.partition == 0
        }

    async def _is_settled(self, delivered: Delivered) -> bool:
        """Make a letter of the advisory *delivered*; return whether nothing is left to do here."""
        try:
            advisory = parse(delivered.message.data)
        except NoAdvisory:
            return True  # It stays in the stream for people to look at.
        owned = self._by_stream().get(advisory.stream)
        if owned is None:
            return True  # Its owner does it.
        try:
            return await self._make_letter(owned, advisory, delivered.sequence)
        except (NotSent, OutcomeUnknown, ApiError) as error:
            log.debug("a letter waits", extra={"reason": str(error)})
            return False

    async def _make_letter(self, owned: OwnedPartition, advisory: Advisory, sequence: int) -> bool:
        letter = await letter_of(self._js, advisory, created=owned.position.created)
        is_kept = letter.is_gone and await self._is_there(owned.partition, letter)
        if not is_kept:
            # Without room the advisory waits, and is looked at again.
            is_kept = await self._room.admits(owned.partition, owned.epoch, letter) and await keep(
                self._js, self._root, owned.partition, letter
            )
            if is_kept:
                self._counted(owned.partition, letter.reason, True)
        if is_kept:
            # Last: after a crash in between, the letter is made again, and recognised by its
            # subject.
            reach("collector.before-advisory-goes")
            await self._js.message_delete(self._stream, sequence)
        return is_kept

    async def _is_there(self, partition: int, letter: Letter) -> bool:
        """Return whether the letter was made before, while its message still existed."""
        subject = letter.subject_at_any_time(self._root, partition)
        return await self._js.next_message(self._stream, subject) is not None
