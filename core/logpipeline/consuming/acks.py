"""Acknowledges what was processed: each, after so many or some time, or only the last one."""

from __future__ import annotations

import asyncio
import contextlib

from logpipeline.consuming.options import Acks
from logpipeline.nats.connection import Connection, NotSent

IN_PROGRESS = b"+WPI"
ACK = b"+ACK"
# A server that waits for an acknowledgement is told so many times in that span that it comes yet.
SIGNS_PER_ACK_WAIT = 3


class AckBook:
    """The acknowledgements of one partition. *policy* is the consumer's, as soon as that is known:
    with ``all`` the last one says it of all before.

    A lost one costs nothing but a second delivery, which is recognised or processed again.
    """

    def __init__(self, connection: Connection, acks: Acks) -> None:
        self.policy = "none"
        self._connection = connection
        self._acks = acks
        # Replies that wait, in order.
        self._due: list[str] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    async def add(self, replies: list[str], count: int) -> None:
        """Note that *count* more messages were processed; *replies* are those of them that can be
        acknowledged. They are, once enough have come.
        """
        if self.policy == "none":
            return
        self._due += replies
        self._count += count
        if self._acks.mode != "spaced" or 0 < self._acks.every <= self._count:
            await self.flush()
        elif self._acks.interval_s and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._acks.interval_s, self._time_is_up)

    async def flush(self) -> None:
        """Acknowledge all that waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due, self._due, self._count = self._due, [], 0
        await self.send(due[-1:] if self.policy == "all" else due, ACK)

    async def send(self, replies: list[str], word: bytes) -> None:
        """Send *word* to each of *replies*."""
        # Without a connection the server delivers again.
        with contextlib.suppress(NotSent):
            for reply in replies:
                await self._connection.publish(reply, word)

    @property
    def waiting(self) -> list[str]:
        """The replies of what was processed and is not acknowledged yet."""
        return self._due

    def _time_is_up(self) -> None:
        self._timer = None
        self._flushing = asyncio.create_task(self.flush(), name="consume-acks")
