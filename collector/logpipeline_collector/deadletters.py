"""Messages that cannot be archived are kept where people find them, with the reason, before the
position moves on. A flood of them must not stop the good ones, so the bytes of each host, and the
patience, are bounded; what is not kept is named: host, messages and bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from logpipeline.deadletters import PAYLOAD_BYTES_MAX, Letter, keep
from logpipeline.nats.jetstream import JetStream
from logpipeline.nats.pull import Delivered

log = logging.getLogger(__name__)

# Bytes of the dead letters of one host: a burst, then so many a second. A host that sends nothing
# but garbage fills the stream in hours, not in seconds.
BURST_BYTES_PER_HOST = 16 * 1024 * 1024
RATE_BYTES_PER_HOST_S = 64 * 1024
NAMES_MAX = 1024


@dataclass(slots=True)
class _Bucket:
    left: float
    at_s: float


class RateLimit:
    """A *burst*, then so much a second, for each name (a host's bytes, a consumer's letters); the
    names that were quiet longest are forgotten.
    """

    def __init__(self, burst: float, rate_s: float) -> None:
        self._burst = burst
        self._rate_s = rate_s
        self._names: OrderedDict[str, _Bucket] = OrderedDict()

    def admits(self, name: str, now_s: float, *, cost: float = 1.0) -> bool:
        """Return whether one more letter of *name*, which has that *cost*, may be sent now."""
        bucket = self._names.setdefault(name, _Bucket(self._burst, now_s))
        self._names.move_to_end(name)
        if len(self._names) > NAMES_MAX:
            self._names.popitem(last=False)
        earned = (now_s - bucket.at_s) * self._rate_s
        bucket.left, bucket.at_s = min(bucket.left + earned, self._burst), now_s
        if bucket.left < cost:
            return False
        bucket.left -= cost
        return True


@dataclass(slots=True)
class NotKept:
    """Dead letters of one host that found no room."""

    messages: int = 0
    bytes: int = 0


class DeadLetters:
    """Sends bad messages to the dead-letter stream; *counted* hears of each one, sent or not.
    *not_kept* names what is gone, by host; beyond `NAMES_MAX` hosts, under an empty name.
    """

    def __init__(self, js: JetStream, root: str, counted: Callable[[int, str, bool], None]) -> None:
        self._js = js
        self._root = root
        self._counted = counted
        self._limit = RateLimit(BURST_BYTES_PER_HOST, RATE_BYTES_PER_HOST_S)
        self.not_kept: dict[str, NotKept] = {}

    async def put(
        self,
        delivered: Delivered,
        *,
        stream: str,
        created: str,
        partition: int,
        host: str,
        reason: str,
        detail: str,
    ) -> None:
        """Keep the message with its *reason* (one token); *host* is empty where it has none.

        It returns at the latest after `logpipeline.deadletters.DEADLINE_S`; then, or above the
        host's rate, the message is named in `not_kept`, counted and logged.
        """
        is_kept = False
        message = delivered.message
        cost = len(message.headers) + min(len(message.data), PAYLOAD_BYTES_MAX)
        if self._limit.admits(host, asyncio.get_running_loop().time(), cost=cost):
            letter = Letter(
                reason=reason,
                detail=detail,
                stream=stream,
                created=created,
                sequence=delivered.sequence,
                time_ns=delivered.time_ns,
                subject=message.subject.decode("utf-8", "surrogateescape"),
                headers=message.headers,
                payload=message.data,
                payload_bytes=len(message.data),
            )
            is_kept = await keep(self._js, self._root, partition, letter)
        if not is_kept:
            self._name(host, partition, delivered, reason)
        self._counted(partition, reason, is_kept)

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
