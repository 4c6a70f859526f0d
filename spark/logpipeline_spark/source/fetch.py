"""Reads a range of a stream by direct gets: stateless, repeatable, with an exact end. No consumer
is made, so that nothing of a reader that died is left at the server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import pairwise

from logpipeline.nats.connection import Listener, NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
from logpipeline.nats.session import RawMessage
from logpipeline_spark.errors import Refused
from logpipeline_spark.lines.message import Message
from logpipeline_spark.source.answers import message_of
from logpipeline_spark.source.client import Client
from logpipeline_spark.source.options import SourceOptions

# What a server sends for one question, and a task holds at once; a larger message comes alone.
CHUNK_BYTES_MAX = 4 * 1024 * 1024
CHUNK_MESSAGES_MAX = 10_000
# Nothing came for so long: the answer, or its end, was lost.
SILENCE_S = 10.0

_END_STATUS = 204


def fetch(
    options: SourceOptions,
    stream: str,
    first: int,
    last: int,
    *,
    chunk_bytes_max: int = CHUNK_BYTES_MAX,
) -> Iterator[list[Message]]:
    """Yield the messages of *stream* from sequence *first* to *last*, in order, in lists of about
    *chunk_bytes_max*. Messages that were deleted are not there; nothing else is left out.

    Raises:
        Refused: the server stayed away for longer than the options' patience, or said no.
    """
    with Client(options) as client:
        yield from read(client, stream, first, last, chunk_bytes_max=chunk_bytes_max)


def read(
    client: Client, stream: str, first: int, last: int, *, chunk_bytes_max: int = CHUNK_BYTES_MAX
) -> Iterator[list[Message]]:
    """Do what `fetch` does, with a *client* that is connected."""
    if first > last:
        return
    getter = Getter(client, stream, chunk_bytes_max)
    getter.open()
    try:
        while first <= last and (messages := getter.get(first, last)):
            first = messages[-1].sequence + 1
            yield messages
    finally:
        getter.close()


class Getter:
    """Asks for one chunk after the other."""

    def __init__(self, client: Client, stream: str, chunk_bytes_max: int) -> None:
        self._client = client
        self._stream = stream
        self._bytes_max = chunk_bytes_max
        self._subject = f"{client.js.prefix}.DIRECT.GET.{stream}"
        self._inbox = client.connection.new_inbox()
        self._listener: Listener | None = None
        self._number = 0
        self._came: list[RawMessage] = []
        self._changed = asyncio.Event()

    def open(self) -> None:
        """Listen for answers."""
        client = self._client
        client.connection.on_change(self._changed.set)
        self._listener = client.run(client.connection.listen(f"{self._inbox}.*", self._arrived))

    def close(self) -> None:
        """Stop listening."""
        if self._listener is not None and not self._client.is_closed:
            self._client.run(self._client.connection.unlisten(self._listener))

    def get(self, first: int, last: int) -> list[Message]:
        """Return the next messages from *first* on, none behind *last*; none at all where the range
        holds no more.
        """
        return self._client.ask(lambda: self._get(first, last))

    async def _get(self, first: int, last: int) -> list[Message]:
        query = {
            "seq": first,
            "batch": min(last - first + 1, CHUNK_MESSAGES_MAX),
            "max_bytes": self._bytes_max,
        }
        self._number += 1
        self._came = []
        session = self._client.connection.sessions
        await self._client.connection.publish(
            self._subject, json.dumps(query).encode(), reply=f"{self._inbox}.{self._number}"
        )
        await self._until_ended(session)
        messages = self._messages(first)
        # Any replica may answer, also one that lags behind: the leader knows.
        if not messages and await self._client.is_there(self._stream, first, last):
            raise OutcomeUnknown(f"the server that answered does not have {self._stream} yet")
        # Where messages were deleted, the number that was asked for reaches further than the end.
        return [message for message in messages if message.sequence <= last]

    async def _until_ended(self, session: int) -> None:
        seen = -1
        while not (self._came and self._came[-1].status):
            if not self._client.connection.is_connected:
                raise OutcomeUnknown("the connection broke while a range was read")
            if session != self._client.connection.sessions:
                raise OutcomeUnknown("the connection was another one when the answer should come")
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

    def _messages(self, first: int) -> list[Message]:
        *raw, end = self._came
        self._came = []
        if end.status == 404:
            return []
        if end.status == 503:
            raise NotSent(f"nobody answers on {self._subject}")
        if end.status != _END_STATUS:
            raise ApiError(f"DIRECT.GET.{self._stream}", end.status, 0, end.description)
        messages = [message_of(message) for message in raw]
        _check_order(self._stream, messages, first, end)
        return messages


def _check_order(stream: str, messages: list[Message], first: int, end: RawMessage) -> None:
    ranks = [first - 1, *(message.sequence for message in messages)]
    if not messages or any(a >= b for a, b in pairwise(ranks)):
        raise Refused(f"the server's answer for {stream} from {first} on is out of order")
    if b"Nats-Last-Sequence: %d\r\n" % messages[-1].sequence not in end.headers:
        raise OutcomeUnknown(f"messages of {stream} were lost on the way")
