"""Reads a consumer by two overlapping pulls on one inbox. nats-py's ``fetch`` stalls when a pull
ends early.

What is outstanding is bounded by bytes: the next pull is asked for only when the reader has taken
what came.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass

from logpipeline.nats.connection import Denied, Listener, NotSent
from logpipeline.nats.jetstream import JetStream
from logpipeline.nats.session import RawMessage

PULL_MESSAGES_MAX = 10_000
PULL_EXPIRES_S = 30.0
IDLE_HEARTBEAT_S = 5.0
SILENCE_MAX_S = 3 * IDLE_HEARTBEAT_S
PULLS_OUTSTANDING = 2
# A pull smaller than the next message ends at once with 409; subject, reply and headers count as
# well.
MESSAGE_OVERHEAD_BYTES = 32 * 1024
# Why a reader ends whose consumer was deleted and made anew.
WENT_BACK = "the numbers of the consumer's deliveries went back"


class ReaderClosed(Exception):
    """The consumer is gone or refuses us (deleted by a successor, or by hand); the text says
    which.
    """


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message with what its reply subject says: sequence in the stream, number of the delivery
    among all of the consumer, server's time, how often this message was delivered by now.
    """

    message: RawMessage
    sequence: int
    delivery: int
    time_ns: int
    pending: int
    deliveries: int = 0


def read_reply(message: RawMessage) -> Delivered:
    """Return *message* with the numbers of its ``$JS.ACK`` reply subject (of 9, or of 11 and more
    tokens).
    """
    tokens = message.reply.split(b".")
    at = 4 if len(tokens) == 9 else 6
    deliveries, sequence, delivery, time_ns, pending = (int(token) for token in tokens[at : at + 5])
    return Delivered(message, sequence, delivery, time_ns, pending, deliveries)


class PullReader:
    """Messages of one consumer, in order of delivery. It belongs to one session: after a reconnect
    open a new one.
    """

    def __init__(
        self,
        js: JetStream,
        stream: str,
        consumer: str,
        *,
        pull_bytes: int,
        pull_messages: int = PULL_MESSAGES_MAX,
        pulls: int = PULLS_OUTSTANDING,
    ) -> None:
        self._connection = js.connection
        self._request = f"{js.prefix}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._pull_bytes = max(pull_bytes, js.connection.max_payload_bytes + MESSAGE_OVERHEAD_BYTES)
        self._pull_messages = pull_messages
        self._pulls_max = pulls
        self._inbox = js.connection.new_inbox()
        self._queue: list[Delivered] = []
        self._arrived = asyncio.Event()
        self._closed: str | None = None
        self._listener: Listener | None = None
        self._session = 0
        self._pulls = 0
        # Open pulls in the order in which the server serves them, with the messages that each may
        # still bring.
        self._open: dict[int, int] = {}
        self._heard_at = 0.0
        # The number of the last delivery, among all of the consumer.
        self._delivery = 0

    async def open(self) -> None:
        """Start pulling.

        Raises:
            NotSent: there is no connection.
        """
        self._session = self._connection.sessions
        self._heard_at = asyncio.get_running_loop().time()
        self._listener = await self._connection.listen(f"{self._inbox}.*", self._receive)
        await self._renew()

    async def close(self) -> None:
        """Stop listening; pulls that wait at the server expire there or end with the consumer."""
        if self._listener is not None:
            await self._connection.unlisten(self._listener)
            self._listener = None

    async def drain(self) -> list[Delivered]:
        """Stop listening; return all that the server delivered to us and was not taken."""
        if self._listener is not None:
            await self._connection.drain(self._listener)
            self._listener = None
        return self.held

    async def take(self, *, timeout_s: float) -> list[Delivered]:
        """Return the messages that came: at once if there are some, else after at most *timeout_s*.
        An empty list says nothing of what follows: the end of a pull wakes as well.

        Raises:
            ReaderClosed: the consumer is gone, or the server was silent for longer than its
            heartbeat allows.
            NotSent: the connection is gone; `Denied` where the server does not let us pull.
        """
        if not self._queue:
            self._check_alive()
            self._arrived.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._arrived.wait()
        if not self._queue:
            self._check_alive()
        if self._closed is None and self._connection.sessions == self._session:
            await self._renew()
        # Behind the last wait: what a cancelled call has in hand would be in nobody's.
        taken, self._queue = self._queue, []
        return taken

    @property
    def has_ended(self) -> bool:
        """Whether it is known to bring nothing more: the consumer, or the connection, is gone."""
        return self._closed is not None or self._connection.sessions != self._session

    @property
    def held(self) -> list[Delivered]:
        """What came and was not taken yet."""
        return list(self._queue)

    def wake(self) -> None:
        """Let a `take` that waits return now."""
        self._arrived.set()

    def _check_alive(self) -> None:
        if self._closed is not None:
            raise ReaderClosed(self._closed)
        if self._connection.sessions != self._session or not self._connection.is_connected:
            raise NotSent("the connection to NATS was lost")
        if self._connection.is_denied(self._request):
            raise Denied(self._request)
        silent_s = asyncio.get_running_loop().time() - self._heard_at
        if silent_s > SILENCE_MAX_S:
            raise ReaderClosed(f"no heartbeat for {silent_s:.0f} s")

    async def _renew(self) -> None:
        while len(self._open) < self._pulls_max:
            self._pulls += 1
            self._open[self._pulls] = self._pull_messages
            body = {
                "batch": self._pull_messages,
                "max_bytes": self._pull_bytes,
                "expires": int(PULL_EXPIRES_S * 1e9),
                "idle_heartbeat": int(IDLE_HEARTBEAT_S * 1e9),
            }
            reply = f"{self._inbox}.{self._pulls}"
            await self._connection.publish(self._request, json.dumps(body).encode(), reply=reply)

    def _receive(self, message: RawMessage) -> None:
        # A stored message comes under its own subject; only the server's status messages name the
        # pull.
        self._heard_at = asyncio.get_running_loop().time()
        if message.reply.startswith(b"$JS.ACK."):
            self._accept(read_reply(message))
        elif message.status != 100:
            self._pull_ended(message)
        self._arrived.set()

    def _accept(self, delivered: Delivered) -> None:
        if delivered.delivery <= self._delivery:
            # A new consumer of the same name: the server does not always announce a deletion.
            self._closed = self._closed or WENT_BACK
        self._delivery = delivered.delivery
        self._queue.append(delivered)
        pull = next(iter(self._open), None)
        if pull is not None:
            self._open[pull] -= 1
            if self._open[pull] == 0:
                del self._open[pull]

    def _pull_ended(self, message: RawMessage) -> None:
        description = message.description.lower()
        ended_by_limit = (
            message.status in (404, 408)
            or "maxbytes" in description
            or "batch completed" in description
        )
        if not ended_by_limit and "leadership" not in description:
            self._closed = f"{message.status} {message.description}"
        number = message.subject.rsplit(b".", 1)[1]
        remaining = self._open.pop(int(number), None)
        if remaining == self._pull_messages and "maxbytes" in description:
            # Nothing fitted: a message larger than the pull (max_payload was raised since) would
            # stop us for ever.
            self._pull_bytes *= 2
