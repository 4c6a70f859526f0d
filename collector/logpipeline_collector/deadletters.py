"""Messages that cannot be archived are kept where people find them, with the reason, before the
position moves on. A flood of them must not stop the good ones, so their rate, size and patience
are bounded.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from logpipeline.nats.connection import NotSent, OutcomeUnknown, TooLarge
from logpipeline.nats.jetstream import ApiError, JetStream
from logpipeline.nats.pull import Delivered
from logpipeline.subjects import dead_letter_subject

log = logging.getLogger(__name__)

# What a human needs to see of a bad message; the rest of it is cut.
PAYLOAD_BYTES_MAX = 64 * 1024
HEADERS_BYTES_MAX = 16 * 1024
SUBJECT_BYTES_MAX = 512
DETAIL_CHARACTERS_MAX = 500
# Dead letters of one host: a burst, then so many a second; further ones are only counted.
BURST_PER_HOST = 50
RATE_PER_HOST_S = 5.0
HOSTS_MAX = 1024
# Longer than a leader's election; then the pipeline goes on without the letter.
DEADLINE_S = 10.0
RETRY_S = 0.2
# JetStream's code while a stream has no leader.
UNAVAILABLE = 503


@dataclass(slots=True)
class _Bucket:
    left: float
    at_s: float


class RateLimit:
    """So many letters a second for each host; the hosts that were quiet longest are forgotten."""

    def __init__(self) -> None:
        self._hosts: OrderedDict[str, _Bucket] = OrderedDict()

    def admits(self, host: str, now_s: float) -> bool:
        """Return whether one more letter of *host* may be sent now."""
        bucket = self._hosts.setdefault(host, _Bucket(BURST_PER_HOST, now_s))
        self._hosts.move_to_end(host)
        if len(self._hosts) > HOSTS_MAX:
            self._hosts.popitem(last=False)
        earned = (now_s - bucket.at_s) * RATE_PER_HOST_S
        bucket.left, bucket.at_s = min(bucket.left + earned, BURST_PER_HOST), now_s
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

        It returns at the latest after `DEADLINE_S`; then, or above the host's rate, the message is
        only counted and logged.
        """
        is_sent = False
        if self._limit.admits(host, asyncio.get_running_loop().time()):
            # The same message, read again after a crash, makes no second letter.
            identifier = f"{stream}.{created}.{delivered.sequence}.{delivered.time_ns}"
            headers = {
                "Nats-Msg-Id": identifier,
                "Dead-Reason": reason,
                "Dead-Detail": printable(detail)[:DETAIL_CHARACTERS_MAX],
                "Dead-Stream": stream,
                "Dead-Sequence": str(delivered.sequence),
                "Dead-Time-Ns": str(delivered.time_ns),
                "Dead-Subject": printable(_text(delivered.message.subject)),
                "Dead-Headers": json.dumps(_text(delivered.message.headers)),
                "Dead-Bytes": str(len(delivered.message.data)),
            }
            subject = dead_letter_subject(self._root, partition, reason)
            payload = delivered.message.data[:PAYLOAD_BYTES_MAX]
            is_sent = await self._send(subject, payload, headers)
        self._counted(partition, reason, is_sent)

    async def _send(self, subject: str, payload: bytes, headers: dict[str, str]) -> bool:
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await self._until_stored(subject, payload, headers)
        except TimeoutError:
            log.warning("dead letter not kept: no answer", extra=_position_of(headers))
            return False

    async def _until_stored(self, subject: str, payload: bytes, headers: dict[str, str]) -> bool:
        while True:
            try:
                await self._js.publish(subject, payload, headers)
            except (TooLarge, ApiError) as error:
                if not isinstance(error, ApiError) or error.code != UNAVAILABLE:
                    extra = _position_of(headers) | {"reason": str(error)}
                    log.warning("dead letter not kept: refused", extra=extra)
                    return False
            except (NotSent, OutcomeUnknown) as error:
                log.debug("dead letter not sent yet", extra={"reason": str(error)})
            else:
                return True
            await asyncio.sleep(RETRY_S)


def printable(text: str) -> str:
    """Return *text* with all escaped that could end a header or steer a terminal."""
    return "".join(
        character if character.isascii() and character.isprintable() else ascii(character)[1:-1]
        for character in text
    )


def _position_of(headers: dict[str, str]) -> dict[str, object]:
    return {"stream": headers["Dead-Stream"], "sequence": headers["Dead-Sequence"]}


def _text(raw: bytes) -> str:
    cut = raw[:HEADERS_BYTES_MAX] if raw.startswith(b"NATS/") else raw[:SUBJECT_BYTES_MAX]
    return cut.decode("utf-8", "backslashreplace")
