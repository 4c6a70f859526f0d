"""How much of the dead-letter stream the letters of one host, or of one consumer, may take.

A stream that is full refuses, so nobody's letters push out another's. Each may have as much as is
still free: one alone gets half of the stream, the next one a third, and there is always something
left for the first letter of a host that never had any. What counts is what stands in the stream:
restarts and handovers change nothing, and letters that are sent again leave their room to those
that come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from logpipeline.deadletters import PAYLOAD_BYTES_MAX, Letter, NoLetter, decode, encode
from logpipeline.messages import SIZE_HEADER
from logpipeline.nats.connection import NotSent, OutcomeUnknown, headers_size
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.nats.scan import Range, Scan, StreamChanged
from logpipeline.subjects import BadHost, BadSubject, Subjects, dead_letters_of

log = logging.getLogger(__name__)

# Of one host or consumer in one partition, however much is free: half a million letters take long
# to make, and longer to look through.
BYTES_MAX = 64 * 1024 * 1024
# What a server says of given-up messages is stored by the server, and refused in silence: so
# letters leave a part of the stream to it.
RESERVE_DIVISOR = 8
# Counting reads the headers of a partition's letters, which may be many.
COUNT_AGAIN_S = 30.0
# Lines wait for it. What is not counted by then lets letters too many pass, never too few.
COUNT_S = 10.0

# Host and consumer; one of them is empty.
Holder = tuple[str, str]


@dataclass(slots=True)
class _Held:
    """Bytes of the letters of one partition, by holder, as counted at *at_s*, when *deleted*
    messages had left the stream; what was kept since is added.
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
            # Whoever keeps it has patience, and hears of a full stream from the server.
            log.debug("room for letters not looked at", extra={"reason": str(error)})
            return True

    def host_of(self, letter: Letter) -> str:
        """Return the host of the message, or an empty text where it has none that could be one."""
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
        # What comes back had a place, which is free in a moment.
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
                        held.bytes[holder] += len(headers) + _payload_bytes(headers)

    def _holder_of(self, letter: Letter) -> Holder:
        return ("", letter.consumer) if letter.consumer else (self.host_of(letter), "")


def _payload_bytes(headers: bytes) -> int:
    # The server adds it last. No limit of a shipper's headers applies to these, which quote them.
    return int(headers.rpartition(f"{SIZE_HEADER}:".encode())[2])


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
