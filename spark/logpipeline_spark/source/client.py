"""A connection to JetStream for synchronous code: Spark calls a source's methods in plain threads
of the driver's and the executors' Python workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from logpipeline.nats.connection import (
    Connection,
    NoResponders,
    NotSent,
    OutcomeUnknown,
)
from logpipeline.nats.jetstream import MESSAGE_NOT_FOUND, ApiError, JetStream, NoStream, time_ns_of
from logpipeline.nats.options import without_secret
from logpipeline.nats.session import RawMessage
from logpipeline.streamstate import StreamState, state_of
from logpipeline_spark.errors import Refused
from logpipeline_spark.lines.messages import Message
from logpipeline_spark.source.options import SourceOptions

_TAIL = b"\r\nNats-Stream: "

# A get by sequence alone returns that very message; with a filter, the first from there on.
_ANY = {"next_by_subj": ">"}

T = TypeVar("T")

log = logging.getLogger(__name__)

RETRY_WAIT_S = 0.2
# After so long without an answer, the wait is logged.
LOG_AFTER_S = 2.0
# Errors that do not pass by waiting, in the words of the client and the operating system.
_REFUSALS = (
    *("authorization", "authentication", "certificate", "nkeys", "permissions violation"),
    *("no such file", "permission denied", "unknown ca"),
)
_HOW_TO_LOG_IN = (
    "log in with 'userFile' and 'passwordFile', 'tokenFile', 'credsFile' or 'nkeyFile'; for a "
    "pipeline that runs here `logpipeline stream options` prints them"
)


class StreamGone(Refused):
    """A stream that does not exist, or not any more."""


class Found(NamedTuple):
    """Where a message is stored, and the server's time of it, in nanoseconds since 1970."""

    sequence: int
    time_ns: int


def message_of(raw: RawMessage) -> Message:
    """Return the stored message in an answer: the server's own fields are the last headers,
    whatever the publisher wrote before them.
    """
    at = raw.headers.rfind(_TAIL)
    fields = raw.headers[at + 2 :].split(b"\r\n")
    # A subject may hold any bytes but spaces.
    subject, sequence, time = (
        field.split(b": ", 1)[1].decode("utf-8", "surrogateescape") for field in fields[1:4]
    )
    own = raw.headers[:at] + b"\r\n\r\n" if at > len(b"NATS/1.0") else b""
    return Message(int(sequence), time_ns_of(time), subject, own, raw.data)


class Client:
    """Sends requests to JetStream; each is repeated while the server is away or in trouble, until
    the patience ends.
    """

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
            Refused: there is no connection within the options' patience, or the server refuses
                the login.
        """
        try:
            self.run(self._connect())
        except Refused:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Close the connection; may be called again."""
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
        """Return the result of *work*, run in this client's own loop."""
        return self._loop.run_until_complete(_awaited(work))

    def ask(self, what: Callable[[], Awaitable[T]]) -> T:
        """Return the result of *what*, which is called again while the server is away or in
        trouble.

        Raises:
            Refused: that did not end, or the server refused.
        """
        return self.run(self._ask(what))

    @property
    def servers(self) -> str:
        """The servers, without secrets."""
        return ", ".join(map(without_secret, self._options.nats.servers))

    def names(self) -> list[str]:
        """Return the names of all streams."""
        names: list[str] = []
        while True:
            body = {"offset": len(names)}
            page = self.ask(partial(self.js.call, "STREAM.NAMES", body))
            names += page["streams"] or ()
            if not page["streams"] or len(names) >= int(page["total"]):
                return names

    def state(self, stream: str) -> StreamState:
        """Return the present state of *stream*.

        Raises:
            StreamGone: there is no such stream.
            Refused: it does not allow direct reads.
        """
        state = self.find(stream)
        if state is None:
            raise self._no_stream(stream)
        return state

    def find(self, stream: str) -> StreamState | None:
        """Return the present state of *stream*, None if there is no such stream.

        Raises:
            Refused: it does not allow direct reads.
        """
        info = self.ask(lambda: self.js.stream_info(stream))
        if info is None:
            return None
        if not info["config"].get("allow_direct"):
            raise Refused(
                f"stream {stream} does not allow direct reads; turn on its allow_direct "
                f"(`nats stream edit {stream} --allow-direct`)"
            )
        return state_of(info)

    def time_at(self, stream: str, state: StreamState, sequence: int) -> int | None:
        """Return the server's time of the message at *sequence*, None if there is no such
        message.
        """
        if not max(state.first, 1) <= sequence <= state.last:
            return None
        found = self.first_from(stream, {"seq": sequence})
        return found.time_ns if found is not None and found.sequence == sequence else None

    def first_from(self, stream: str, query: dict[str, Any]) -> Found | None:
        """Return the first message from ``seq`` or ``start_time`` of *query* on."""
        return self.ask(lambda: self._first(stream, query))

    async def direct(self, stream: str, get: Awaitable[T]) -> T:
        """Return the result of *get*, which is a direct get from *stream*.

        Raises:
            StreamGone: the stream was deleted.
        """
        try:
            return await self.js.direct_get(stream, get)
        except NoStream:
            raise self._no_stream(stream) from None

    async def is_there(self, stream: str, first: int, last: int) -> bool:
        """Return whether the stream's leader has a message from *first* to *last*."""
        found = await self._first_of_leader(stream, {"seq": first} | _ANY)
        return found is not None and found.sequence <= last

    async def _first(self, stream: str, query: dict[str, Any]) -> Found | None:
        query = query | _ANY
        request = f"DIRECT.GET.{stream}"
        subject, payload = f"{self.js.prefix}.{request}", json.dumps(query).encode()
        answer = await self.direct(stream, self.connection.request(subject, payload))
        if answer.status == 404:
            # Any replica may answer, also one that lags behind. Taken for the truth, this would
            # give a position the time of another message, or skip messages.
            return await self._first_of_leader(stream, query)
        if answer.status:
            raise ApiError(request, answer.status, 0, answer.description)
        message = message_of(answer)
        return Found(message.sequence, message.time_ns)

    async def _first_of_leader(self, stream: str, query: dict[str, Any]) -> Found | None:
        try:
            answer = await self.js.call(f"STREAM.MSG.GET.{stream}", query)
        except ApiError as error:
            if error.err_code == MESSAGE_NOT_FOUND:
                return None
            raise
        return Found(int(answer["message"]["seq"]), time_ns_of(answer["message"]["time"]))

    async def _connect(self) -> None:
        waiting = _Waiting(self._options.patience_s)
        await self.connection.start()
        while not self.connection.is_connected:
            if waiting.is_over or self._is_refused(waiting):
                raise Refused(self._unconnected())
            self._log_wait(waiting, self._unconnected())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_WAIT_S):
                    await self.connection.wait_connected()

    async def _ask(self, what: Callable[[], Awaitable[T]]) -> T:
        waiting = _Waiting(self._options.patience_s)
        while True:
            try:
                return await what()
            except (NotSent, OutcomeUnknown, ApiError) as error:
                if isinstance(error, ApiError) and not error.is_trouble:
                    why = f"{error}; check the stream and the rights of this user"
                    raise Refused(why) from error
                gone = self._gone(error)
                if waiting.is_over or self._is_refused(waiting):
                    raise Refused(gone) from error
                self._log_wait(waiting, gone)
            await asyncio.sleep(RETRY_WAIT_S)

    def _is_refused(self, waiting: _Waiting) -> bool:
        """Return whether to wait longer would change nothing."""
        most_s = self._options.login_patience_s
        return most_s is not None and waiting.waited_s >= most_s and self._is_refusal

    def _log_wait(self, waiting: _Waiting, why: str) -> None:
        # A refusal is about to be reported by the error itself.
        if self._options.login_patience_s is None or not self._is_refusal:
            waiting.log(why)

    @property
    def _is_refusal(self) -> bool:
        if self.connection.sessions and not self.connection.is_connected:
            # The server accepted this login before: logins are renewed while a query runs.
            return False
        problem = (self.connection.problem or "").lower()
        return any(word in problem for word in _REFUSALS)

    def _no_stream(self, stream: str) -> StreamGone:
        return StreamGone(
            f"stream {stream} does not exist at {self.servers}; check the options 'stream' "
            "and 'partitions', or create it with `logpipeline apply`"
        )

    def _unconnected(self) -> str:
        _, _, reason = (self.connection.problem or "").partition(": ")
        sentence = f"cannot connect to NATS at {self.servers}: {reason or 'no answer'}"
        if "authorization" in reason.lower():
            return f"{sentence}; {_HOW_TO_LOG_IN}"
        return f"{sentence} (options 'servers', 'caFile' and the like)"

    def _gone(self, error: Exception) -> str:
        if isinstance(error, ApiError):
            # It answers, and may have no leader for a stream, while one is elected.
            return f"NATS at {self.servers} is in trouble ({error}); look at its log"
        if (problem := self.connection.problem) and self.connection.is_connected:
            return f"{self.servers}: {problem} ({error}); grant this user the right"
        if problem:
            return f"{self.servers}: {problem}; start the server"
        if isinstance(error, NoResponders):
            return f"JetStream at {self.servers} does not answer ({error}); is it enabled there?"
        return f"NATS at {self.servers} does not answer ({error}); start it, and run this again"


class _Waiting:
    """The wait for an answer, of at most *patience_s*."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._begun_s = time.monotonic()
        self._is_logged = False

    @property
    def waited_s(self) -> float:
        return time.monotonic() - self._begun_s

    @property
    def is_over(self) -> bool:
        return self.waited_s > self._patience_s

    def log(self, why: str) -> None:
        """Log once what is waited for: else Spark's output shows nothing for a long time."""
        if not self._is_logged and self.waited_s > LOG_AFTER_S:
            self._is_logged = True
            # A worker of Spark shows only the text of a log message.
            log.warning(
                "jetstream: %s; waiting for at most %g s (option 'patienceSeconds')",
                why,
                self._patience_s,
            )


async def _awaited(work: Awaitable[T]) -> T:
    return await work
