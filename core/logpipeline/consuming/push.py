"""Reads a push consumer: messages come to its deliver subject by themselves."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from logpipeline.nats.connection import Listener, NotSent
from logpipeline.nats.jetstream import JetStream
from logpipeline.nats.pull import Delivered, read_reply
from logpipeline.nats.session import RawMessage

log = logging.getLogger(__name__)


class PushReader:
    """Messages of one push consumer, in order of delivery, at most *bytes_max* of them waiting:
    what comes beyond is let go, and counted in `dropped`. A consumer that wants acknowledgements
    delivers it again; a reader with a position fetches it.
    """

    def __init__(self, js: JetStream, subject: str, queue: str, *, bytes_max: int) -> None:
        self.dropped = 0
        self._connection = js.connection
        self._subject = subject
        self._group = queue
        self._bytes_max = bytes_max
        self._bytes = 0
        self._queue: list[Delivered] = []
        self._answers: list[str] = []
        self._arrived = asyncio.Event()
        self._listener: Listener | None = None
        self._session = 0

    async def open(self) -> None:
        """Start listening."""
        self._session = self._connection.sessions
        self._listener = await self._connection.listen(self._subject, self._receive, self._group)

    async def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            await self._connection.unlisten(self._listener)
            self._listener = None

    async def take(self, *, timeout_s: float) -> list[Delivered]:
        """Return what has come, at once if there is something, else after at most *timeout_s*.

        Raises:
            NotSent: the connection is gone.
        """
        if not self._queue:
            self._arrived.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._arrived.wait()
        taken, self._queue, self._bytes = self._queue, [], 0
        answers, self._answers = self._answers, []
        for reply in answers:
            # Flow control: the server waits for this before it sends more.
            await self._connection.publish(reply, b"")
        is_other = self._connection.sessions != self._session
        if not taken and (is_other or not self._connection.is_connected):
            raise NotSent("the connection to NATS was lost")
        return taken

    def _receive(self, message: RawMessage) -> None:
        if message.reply.startswith(b"$JS.ACK."):
            size = len(message.data) + len(message.headers)
            if self._queue and self._bytes + size > self._bytes_max:
                if not self.dropped:
                    log.warning("messages come faster than they are read", extra={"at": "push"})
                self.dropped += 1
                return
            self._queue.append(read_reply(message))
            self._bytes += size
        elif message.status == 100 and message.reply:
            self._answers.append(message.reply.decode())
        self._arrived.set()
