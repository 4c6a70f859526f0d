"""Reads a stream in order by direct gets: the server makes nothing for who reads so, and nothing
of him is left there. Any replica answers, with what it has.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from logpipeline.nats.connection import Listener, NoResponders, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError, JetStream, StoredMessage, rfc3339_of, stored_of
from logpipeline.nats.session import RawMessage

# What a server sends for one question; a larger message comes alone.
BYTES_MAX = 2 * 1024 * 1024
MESSAGES_MAX = 1000
# Nothing came for so long: the answer, or its end, was lost.
SILENCE_S = 10.0

_END, _NONE, _NOBODY = 204, 404, 503


class DirectGets:
    """Asks *stream* for several messages at once, one question after the other."""

    def __init__(self, js: JetStream, stream: str) -> None:
        self._js = js
        self._stream = stream
        self._inbox = js.connection.new_inbox()
        self._listener: Listener | None = None
        self._number = 0
        self._came: list[RawMessage] = []
        self._changed = asyncio.Event()

    async def open(self) -> None:
        """Listen for answers."""
        self._js.connection.on_change(self._changed.set)
        self._listener = await self._js.connection.listen(f"{self._inbox}.*", self._arrived)

    async def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            await self._js.connection.unlisten(self._listener)

    async def ask(self, query: Mapping[str, object]) -> list[RawMessage]:
        """Return the messages that the server sends for *query*, in its order; nothing where it has
        none.

        Raises:
            ApiError: the server refuses.
            NotSent, OutcomeUnknown: there was no answer, or a part of it is missing.
        """
        self._number += 1
        self._came = []
        connection = self._js.connection
        session = connection.sessions
        await connection.publish(
            f"{self._js.prefix}.DIRECT.GET.{self._stream}",
            json.dumps(query).encode(),
            reply=f"{self._inbox}.{self._number}",
        )
        await self._until_ended(session)
        return self._messages()

    async def _until_ended(self, session: int) -> None:
        connection = self._js.connection
        seen = -1
        while not (self._came and self._came[-1].status):
            if not connection.is_connected or session != connection.sessions:
                raise OutcomeUnknown("the connection broke while a stream was read")
            if seen == len(self._came):
                raise OutcomeUnknown(f"nothing came from {self._stream} for {SILENCE_S:g} s")
            seen = len(self._came)
            self._changed.clear()
            try:
                async with asyncio.timeout(SILENCE_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _arrived(self, message: RawMessage) -> None:
        # What belongs to a question that was given up comes too late.
        if message.subject.rsplit(b".", 1)[1] == b"%d" % self._number:
            self._came.append(message)
            # The loop wakes up for the end only: the rest is here then.
            if message.status:
                self._changed.set()

    def _messages(self) -> list[RawMessage]:
        *found, end = self._came
        self._came = []
        if end.status == _NONE:
            return []
        request = f"DIRECT.GET.{self._stream}"
        if end.status == _NOBODY:
            raise NoResponders(f"no server answers the request {request}")
        if end.status != _END:
            raise ApiError(request, end.status, 0, end.description)
        last = stored_of(found[-1]).sequence if found else 0
        if b"Nats-Last-Sequence: %d\r\n" % last not in end.headers:
            raise OutcomeUnknown(f"messages of {self._stream} were lost on the way")
        return found


class DirectReader:
    """Reads the messages of *stream* whose subjects *subject* matches, some at a time."""

    def __init__(self, js: JetStream, stream: str, subject: str) -> None:
        self._gets = DirectGets(js, stream)
        self._subject = subject

    async def open(self) -> None:
        """Listen for answers."""
        await self._gets.open()

    async def close(self) -> None:
        """Stop listening."""
        await self._gets.close()

    async def take(self, sequence: int, *, since_ns: int | None = None) -> list[StoredMessage]:
        """Return the next messages from *sequence* on, or from the server's time *since_ns* on;
        nothing where there are none yet.

        Raises:
            ApiError: the server refuses to read.
            NotSent, OutcomeUnknown: there was no answer, or a part of it is missing.
        """
        begin: dict[str, object] = {"seq": sequence}
        if since_ns is not None:
            begin = {"start_time": rfc3339_of(since_ns)}
        limits = {"batch": MESSAGES_MAX, "max_bytes": BYTES_MAX}
        found = await self._gets.ask({"next_by_subj": self._subject, **begin, **limits})
        return [stored_of(message) for message in found]
