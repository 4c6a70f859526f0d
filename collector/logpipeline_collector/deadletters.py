"""Messages that cannot be archived are kept where people find them, with the reason, before the
position moves on. A flood of them must not stop the good ones, so their rate, size and patience
are bounded.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from logpipeline.deadletters import Letter, keep
from logpipeline.nats.jetstream import JetStream
from logpipeline.nats.pull import Delivered

# Dead letters of one host: a burst, then so many a second; further ones are only counted.
BURST_PER_HOST = 50
RATE_PER_HOST_S = 5.0
NAMES_MAX = 1024


@dataclass(slots=True)
class _Bucket:
    left: float
    at_s: float


class RateLimit:
    """A *burst* of letters, then so many a second, for each name (a host's, a consumer's); the
    names that were quiet longest are forgotten.
    """

    def __init__(self, burst: int = BURST_PER_HOST, rate_s: float = RATE_PER_HOST_S) -> None:
        self._burst = burst
        self._rate_s = rate_s
        self._names: OrderedDict[str, _Bucket] = OrderedDict()

    def admits(self, name: str, now_s: float) -> bool:
        """Return whether one more letter of *name* may be sent now."""
        bucket = self._names.setdefault(name, _Bucket(self._burst, now_s))
        self._names.move_to_end(name)
        if len(self._names) > NAMES_MAX:
            self._names.popitem(last=False)
        earned = (now_s - bucket.at_s) * self._rate_s
        bucket.left, bucket.at_s = min(bucket.left + earned, self._burst), now_s
        if bucket.left < 1:
            return False
        bucket.left -= 1
        return True


class DeadLetters:
    """Sends bad messages to the dead-letter stream; *counted* hears of each one, sent or not."""

    def __init__(self, js: JetStream, root: str, counted: Callable[[int, str, bool], None]) -> None:
        self._js = js
        self._root = root
        self._counted = counted
        self._limit = RateLimit()

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
        host's rate, the message is only counted and logged.
        """
        is_kept = False
        if self._limit.admits(host, asyncio.get_running_loop().time()):
            message = delivered.message
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
        self._counted(partition, reason, is_kept)
