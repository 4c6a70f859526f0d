"""The room that dead letters have: a host, or a consumer, may take what is still free, so that no
flood of one leaves none to the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from logpipeline.dead_letters import PAYLOAD_BYTES_MAX, Letter, NoLetter, decode, encode
from logpipeline.messages import payload_bytes
from logpipeline.nats.connection import NotSent, OutcomeUnknown, headers_size
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.nats.scan import Range, Scan, StreamChanged
from logpipeline.subjects import BadHost, BadSubject, Subjects, dead_letters_of

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
    """The room in *stream*, whose letters are below *root*. Unless it *counts_stored* letters, only
    those count that are kept through it: who may not read the others' letters cannot count.
    """

    def __init__(
        self,
        js: JetStream,
        subjects: Subjects,
        *,
        stream: str,
        root: str,
        counts_stored: bool = True,
    ) -> None:
        self._js = js
        self._subjects = subjects
        self._stream = stream
        self._root = root
        self._counts_stored = counts_stored
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
        info = await self._js.stream_info(self._stream) if self._counts_stored else None
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
