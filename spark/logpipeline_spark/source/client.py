"""A connection to JetStream for code that is not asynchronous: Spark calls a source's methods in
plain threads of the driver's and the executors' Python workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from logpipeline.nats.connection import (
    ConnectFailed,
    Connection,
    NoResponders,
    NotSent,
    OutcomeUnknown,
)
from logpipeline.nats.jetstream import MESSAGE_NOT_FOUND, ApiError, JetStream
from logpipeline.nats.options import without_secret
from logpipeline_spark.errors import Refused
from logpipeline_spark.lines.message import Message
from logpipeline_spark.source.answers import message_of
from logpipeline_spark.source.options import SourceOptions
from logpipeline_spark.source.positions import StreamState, state_of

T = TypeVar("T")

RETRY_WAIT_S = 0.2


class Client:
    """Asks JetStream; every question is repeated while the server is away, until patience ends."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._loop = asyncio.new_event_loop()
        self.connection = Connection(options.nats)
        self.js = JetStream(self.connection)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> Self:
        """Connect.

        Raises:
            Refused: there is no connection within the patience of the options.
        """
        try:
            self.run(self.connection.start(patience_s=self._options.patience_s))
        except ConnectFailed as error:
            self.close()
            raise Refused(f"{error} (options 'servers', 'credsFile' and the like)") from None
        return self

    def close(self) -> None:
        """End the connection; may be called again."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(Exception):  # a connection that broke needs no end
            self.run(self.connection.close())
        self._loop.close()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._loop.is_closed()

    def run(self, work: Awaitable[T]) -> T:
        """Return the result of *work*, done in this client's own loop."""
        return self._loop.run_until_complete(_awaited(work))

    def ask(self, what: Callable[[], Awaitable[T]]) -> T:
        """Return the result of *what*, called again while the server is away.

        Raises:
            Refused: the server stayed away, or said no.
        """
        return self.run(self._ask(what))

    def state(self, stream: str) -> StreamState:
        """Return what *stream* is now.

        Raises:
            Refused: there is none, or it cannot be read in ranges.
        """
        info = self.ask(lambda: self.js.stream_info(stream))
        if info is None:
            raise Refused(
                f"stream {stream} does not exist at {self._servers()}; check the options 'stream' "
                "and 'partitions', or create it with `logpipeline apply`"
            )
        if not info["config"].get("allow_direct"):
            raise Refused(
                f"stream {stream} does not allow direct reads; set its allow_direct "
                f"(`nats stream edit {stream} --allow-direct`)"
            )
        return state_of(info)

    def time_at(self, stream: str, state: StreamState, sequence: int) -> int | None:
        """Return the server's time of the message at *sequence*, None where there is no such."""
        if not max(state.first, 1) <= sequence <= state.last:
            return None
        found = self.ask(lambda: self.js.message(stream, sequence))
        return None if found is None else found.time_ns

    def first_from(self, stream: str, query: dict[str, Any]) -> Message | None:
        """Return the first message at or behind ``seq`` or ``start_time`` of *query*."""
        return self.ask(lambda: self._first(stream, query))

    async def is_there(self, stream: str, first: int, last: int) -> bool:
        """Return whether the stream's leader has a message from *first* to *last*."""
        query = {"seq": first, "next_by_subj": ">"}
        try:
            answer = await self.js.call(f"STREAM.MSG.GET.{stream}", query)
        except ApiError as error:
            if error.err_code == MESSAGE_NOT_FOUND:
                return False
            raise
        return int(answer["message"]["seq"]) <= last

    async def _first(self, stream: str, query: dict[str, Any]) -> Message | None:
        # A direct get by sequence alone wants that very message; with a filter, the first one.
        if "seq" in query:
            query = query | {"next_by_subj": ">"}
        request = f"DIRECT.GET.{stream}"
        answer = await self.connection.request(
            f"{self.js.prefix}.{request}", json.dumps(query).encode()
        )
        if answer.status == 404:
            return None
        if answer.status:
            raise ApiError(request, answer.status, 0, answer.description)
        return message_of(answer)

    async def _ask(self, what: Callable[[], Awaitable[T]]) -> T:
        deadline = time.monotonic() + self._options.patience_s
        while True:
            try:
                return await what()
            except ApiError as error:
                raise Refused(f"{error}; check the stream and the rights of this user") from error
            except (NotSent, OutcomeUnknown) as error:
                if time.monotonic() > deadline:
                    raise Refused(self._gone(error)) from error
            await asyncio.sleep(RETRY_WAIT_S)

    def _gone(self, error: Exception) -> str:
        if problem := self.connection.problem:
            return f"{self._servers()}: {problem}; start the server, or give this user the right"
        if isinstance(error, NoResponders):
            return f"JetStream at {self._servers()} does not answer ({error}); is it enabled there?"
        return f"NATS at {self._servers()} does not answer ({error}); start it, and run this again"

    def _servers(self) -> str:
        return ", ".join(map(without_secret, self._options.nats.servers))


async def _awaited(work: Awaitable[T]) -> T:
    return await work
