"""Reads a range of a stream by direct gets: stateless, repeatable, with an exact end. No consumer
is made, so that nothing of a reader that died is left at the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from logpipeline.nats.connection import OutcomeUnknown
from logpipeline.nats.direct import DirectGets
from logpipeline_spark.errors import Refused
from logpipeline_spark.lines.message import Message
from logpipeline_spark.source.answers import message_of
from logpipeline_spark.source.client import Client
from logpipeline_spark.source.options import SourceOptions

# What a server sends for one question, and a task holds at once; a larger message comes alone.
CHUNK_BYTES_MAX = 4 * 1024 * 1024
CHUNK_MESSAGES_MAX = 10_000


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
        self._gets = DirectGets(client.js, stream)

    def open(self) -> None:
        """Listen for answers."""
        self._client.run(self._gets.open())

    def close(self) -> None:
        """Stop listening."""
        if not self._client.is_closed:
            self._client.run(self._gets.close())

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
        messages = [message_of(message) for message in await self._gets.ask(query)]
        _check_order(self._stream, messages, first)
        # Any replica may answer, also one that lags behind: the leader knows.
        if not messages and await self._client.is_there(self._stream, first, last):
            raise OutcomeUnknown(f"the server that answered does not have {self._stream} yet")
        # Where messages were deleted, the number that was asked for reaches further than the end.
        return [message for message in messages if message.sequence <= last]


def _check_order(stream: str, messages: list[Message], first: int) -> None:
    ranks = [first - 1, *(message.sequence for message in messages)]
    if any(a >= b for a, b in pairwise(ranks)):
        raise Refused(f"the server's answer for {stream} from {first} on is out of order")
