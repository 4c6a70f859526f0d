"""Keeps messages that cannot be used, and those that readers gave up, as dead letters, with the
reason and in bounded room.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from logpipeline.dead_letters import (
    PAYLOAD_BYTES_MAX,
    Advisory,
    Letter,
    NoAdvisory,
    NoLetter,
    decode,
    encode,
    keep,
    letter_of,
    parse,
)
from logpipeline.failpoints import reach
from logpipeline.messages import payload_bytes
from logpipeline.nats.connection import NotSent, OutcomeUnknown, headers_size
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.nats.pull import Delivered
from logpipeline.nats.scan import Range, Scan, StreamChanged
from logpipeline.subjects import (
    ADVISORIES,
    BadHost,
    BadSubject,
    Subjects,
    dead_letters_of,
    is_advisory,
)
from logpipeline_collector.owned_partition import OwnedPartition

log = logging.getLogger(__name__)

# For one host or consumer in one partition, however much is free: half a million letters take long
# to write, and longer to look through.
BYTES_MAX = 64 * 1024 * 1024
# Advisories of given-up messages are stored by the server, which drops them silently when the
# stream is full. So letters leave it a part of the stream.
RESERVE_DIVISOR = 8
# Counting reads the headers of a partition's letters, which may be many.
COUNT_AGAIN_S = 30.0
# Lines wait for the count. If it is cut off, too many letters are admitted, never too few.
COUNT_S = 10.0

# Host and consumer; one of them is empty.
Holder = tuple[str, str]

NAMES_MAX = 1024

# Consumers are rare. Without one there is nothing to read.
ASK_AGAIN_S = 10.0
# An advisory that was put off, or failed, is looked at again after this time.
LOOK_AGAIN_S = 5.0


# A full stream refuses letters, so no letter pushes out another. Each holder may have as much as is
# still free: the first one gets half of the stream, the next one a third, and there is always room
# for the first letter of a new host. Only letters in the stream count: restarts and hand-overs
# change nothing, and a letter that is sent again leaves its room to the one that comes back.
@dataclass(slots=True)
class _Held:
    """Bytes of one partition's letters by holder: the count of the time *at_s*, when *deleted*
    messages had left the stream, plus the letters that were kept since then.
    """

    epoch: int
    at_s: float
    deleted: int
    bytes: Counter[Holder] = field(default_factory=Counter)


class LetterRoom:
    """The room in *stream*, whose letters are below *root*."""

    def __init__(self, js: JetStream, subjects: Subjects, *, stream: str, root: str) -> None:
        self._js = js
        self._subjects = subjects
        self._stream = stream
        self._root = root
        self._held: dict[int, _Held] = {}

    async def admits(self, partition: int, epoch: int, letter: Letter) -> bool:
        """Return whether there is room for *letter* of *partition*, which is ours since *epoch*;
        then it counts as kept.
        """
        try:
            info = await self._js.stream_info(self._stream)
            return info is not None and await self._admits(partition, epoch, letter, info)
        except (NotSent, OutcomeUnknown, ApiError, StreamChanged) as error:
            # `keep` tries for long enough, and the server refuses if the stream is full.
            log.debug("room for letters not checked", extra={"reason": str(error)})
            return True

    def host_of(self, letter: Letter) -> str:
        """Return the host of the message, or an empty text where it has no valid one."""
        try:
            return self._subjects.read(letter.subject)[1]
        except (BadHost, BadSubject):
            return ""

    async def _admits(
        self, partition: int, epoch: int, letter: Letter, info: dict[str, Any]
    ) -> bool:
        cost = headers_size(encode(letter)) + min(len(letter.payload), PAYLOAD_BYTES_MAX)
        holder = self._holder_of(letter)
        deleted = _deleted(info)
        held = self._held.get(partition)
        if held is None or held.epoch != epoch:
            held = await self._count(partition, epoch, deleted)
        most = min(BYTES_MAX, free_bytes(info))
        is_over = held.bytes[holder] + cost > most
        now_s = asyncio.get_running_loop().time()
        if is_over and held.deleted != deleted and now_s - held.at_s >= COUNT_AGAIN_S:
            held = await self._count(partition, epoch, deleted)
            is_over = held.bytes[holder] + cost > most
        # A letter that comes back had room before, which is free again in a moment.
        if is_over and not letter.comes_back:
            return False
        held.bytes[holder] += cost
        return True

    async def _count(self, partition: int, epoch: int, deleted: int) -> _Held:
        held = _Held(epoch, asyncio.get_running_loop().time(), deleted)
        info = await self._js.stream_info(self._stream)
        last = int(info["state"]["last_seq"]) if info is not None else 0
        if last:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(COUNT_S):
                    await self._add_stored(held, partition, last)
        self._held[partition] = held
        return held

    async def _add_stored(self, held: _Held, partition: int, last: int) -> None:
        scan = Scan(
            self._js,
            self._stream,
            Range(last=last),
            subject=dead_letters_of(self._root, partition),
            headers_only=True,
        )
        async with contextlib.aclosing(scan.batches()) as batches:
            async for batch in batches:
                for delivered in batch:
                    headers = delivered.message.headers
                    with contextlib.suppress(NoLetter, ValueError):
                        holder = self._holder_of(decode(headers, b""))
                        held.bytes[holder] += len(headers) + (payload_bytes(headers) or 0)

    def _holder_of(self, letter: Letter) -> Holder:
        return ("", letter.consumer) if letter.consumer else (self.host_of(letter), "")


def free_bytes(info: dict[str, Any]) -> float:
    """Return how many bytes letters may still take in the stream with *info*."""
    config, state = info["config"], info["state"]
    if _for_letters(config.get("max_msgs", -1)) <= state["messages"]:
        return 0
    return max(_for_letters(config.get("max_bytes", -1)) - int(state["bytes"]), 0)


def _for_letters(limit: int) -> float:
    return limit - limit // RESERVE_DIVISOR if limit > 0 else math.inf


def _deleted(info: dict[str, Any]) -> int:
    return int(info["state"]["last_seq"]) - int(info["state"]["messages"])


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
        ours = {owned.stream for owned in self._owned()}
        loop, put_off_s = asyncio.get_running_loop(), None
        scan = Scan(self._js, self._stream, Range(), subject=ADVISORIES)
        async with aclosing(scan.batches()) as batches:
            async for batch in batches:
                for delivered in batch:
                    if not await self._is_settled(delivered):
                        put_off_s = put_off_s or loop.time()
                if put_off_s is not None and loop.time() - put_off_s > LOOK_AGAIN_S:
                    return
                if not {owned.stream for owned in self._owned()} <= ours:
                    return

    async def _is_settled(self, delivered: Delivered) -> bool:
        """Make a letter of the advisory *delivered*; return whether nothing is left to do here."""
        try:
            advisory = parse(delivered.message.data)
        except NoAdvisory:
            return True  # It stays in the stream for people to look at.
        by_stream = {owned.stream: owned for owned in self._owned()}
        owned = by_stream.get(advisory.stream)
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
