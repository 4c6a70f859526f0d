"""A connection to NATS that is made again whenever it breaks, and reports the outcome of each
request.

There are three outcomes, because a log line may be lost or doubled by them: answered, certainly not
sent, unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import secrets
import socket
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

import nats.errors

from logpipeline.nats.options import (
    CONNECT_TIMEOUT_S,
    NatsOptions,
    connect_options,
    with_scheme,
    without_secret,
)
from logpipeline.nats.session import RawMessage, Session, Sink
from logpipeline.subjects import is_inbox

__all__ = [
    "ConnectFailed",
    "Connection",
    "Denied",
    "Listener",
    "NatsOptions",
    "NoInbox",
    "NoResponders",
    "NotSent",
    "OutcomeUnknown",
    "TooLarge",
    "headers_size",
]

log = logging.getLogger(__name__)

CANCEL_AGAIN_S = 0.2
# Whoever drains a subscription waits so long for a server that is silent.
DRAIN_S = 2
BACKOFF_FIRST_S = 0.05
NATS_PORT = 4222
NKEYS_MISSING = (
    "credentials made of nkeys or JWTs need another package: pip install logpipeline[nkeys]"
)
# How a server names a subject that we may not publish to.
_DENIED_PUBLISH = re.compile(r'violation for publish to "([^"]+)"', re.IGNORECASE)
# So many denied subjects are remembered; each further one is only logged.
DENIED_SUBJECTS_MAX = 1_000
# What ``NATS/1.0``, ``: `` and line ends add to the headers' texts.
HEADER_LINE_OVERHEAD_BYTES = 4

# Parts on one machine answer within milliseconds, across a network within some tens of them.
ANSWERS_WAIT_S = 0.4


class NotSent(Exception):
    """The request certainly did not reach the server."""


class TooLarge(NotSent):
    """Payload and headers exceed the server's ``max_payload``; sending them would end the
    connection.
    """

    def __init__(self, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        super().__init__(f"{size} bytes with headers; the server accepts {limit} (its max_payload)")


class NoResponders(NotSent):
    """No client or stream listens on the subject, or JetStream is not up."""


class NoInbox(NotSent):
    """A request names a reply subject that is not an inbox."""


class Denied(NotSent):
    """The server does not let us publish to *subject*."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        super().__init__(
            f"NATS denies us to publish to {subject}: give our user this permission, or use other "
            "credentials"
        )


class OutcomeUnknown(Exception):
    """The request was sent, but no answer came: it may or may not have been carried out."""


class ConnectFailed(Exception):
    """No connection could be made within the caller's patience."""


@dataclass(slots=True)
class Listener:
    """A subscription that outlives connections."""

    subject: str
    sink: Sink
    queue: str
    live: object | None = field(default=None)


class _Request(NamedTuple):
    """A request that waits for its answer."""

    subject: str
    answer: asyncio.Future[RawMessage]

    def fail(self, error: Exception) -> None:
        """End the wait by *error*, unless it has ended."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Connection:
    """Requests, publishes and subscriptions over one session at a time. *login* is entered around
    each attempt to connect: while it lasts, the files that *options* name are there.
    """

    def __init__(
        self,
        options: NatsOptions,
        login: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self.options = options
        self._login = login
        self.problem: str | None = None
        self.sessions = 0
        self._session: Session | None = None
        self._connected = asyncio.Event()
        self._lost = asyncio.Event()
        self._listeners: list[Listener] = []
        self._waiting: dict[bytes, _Request] = {}
        self._denied_subjects: set[str] = set()
        self._inbox = f"{options.inbox_prefix}.{secrets.token_hex(11)}"
        self._token = 0
        self._task: asyncio.Task[None] | None = None
        self._last_error: Exception | None = None
        self._on_change: list[Callable[[], None]] = []
        self._listeners.append(Listener(f"{self._inbox}.*", self._answered, ""))

    async def start(self, *, patience_s: float | None = None) -> None:
        """Connect, and stay connected until `close`. Without *patience_s* it returns at once and
        keeps trying.

        Raises:
            ConnectFailed: there is no connection after *patience_s* seconds; the message says why.
        """
        self._task = asyncio.create_task(self._keep_connected(), name="nats-connection")
        if patience_s is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._connected.wait()
        if not self.is_connected:
            await self.close()
            servers = ", ".join(map(without_secret, self.options.servers))
            raise ConnectFailed(f"cannot connect to NATS at {servers}: {_reason(self._last_error)}")

    async def close(self) -> None:
        """End the connection; requests that wait for an answer end with `OutcomeUnknown`."""
        if self._task is not None:
            while not self._task.done():
                # nats-py's connect can swallow a cancellation: Python 3.11's wait_for loses one
                # that comes in the same turn as the result.
                self._task.cancel()
                await asyncio.wait([self._task], timeout=CANCEL_AGAIN_S)
            self._task = None
        if self._session is not None:
            with contextlib.suppress(Exception):  # a socket that is already gone needs no flush
                async with asyncio.timeout(1):
                    await self._session.flush(1)
            self._session.lose(ConnectionError("closed by us"))

    @property
    def is_connected(self) -> bool:
        """Whether a session stands now."""
        return self._connected.is_set()

    @property
    def max_payload_bytes(self) -> int:
        """The server's limit for headers and payload together."""
        return self._session.max_payload if self._session is not None else 1024 * 1024

    @property
    def server_version(self) -> str:
        """The version of the server of this session, or an empty text."""
        return (
            str(self._session._server_info.get("version", "")) if self._session is not None else ""
        )

    @property
    def is_clustered(self) -> bool:
        """Whether the server of this session belongs to a cluster; only then it can replicate."""
        return self._session is not None and bool(self._session._server_info.get("cluster"))

    async def wait_connected(self) -> None:
        """Return when a session stands."""
        await self._connected.wait()

    def on_change(self, call: Callable[[], None]) -> None:
        """Call *call* after each connect and each loss of the connection."""
        self._on_change.append(call)

    def new_inbox(self) -> str:
        """Return a subject of our own that no other client listens to."""
        return f"{self.options.inbox_prefix}.{secrets.token_hex(11)}"

    async def listen(self, subject: str, sink: Sink, queue: str = "") -> Listener:
        """Subscribe for good: the subscription is made again with each session."""
        listener = Listener(subject, sink, queue)
        self._listeners.append(listener)
        if self._session is not None and self.is_connected:
            listener.live = await self._session.listen(subject, sink, queue)
        return listener

    async def unlisten(self, listener: Listener) -> None:
        """Undo `listen`."""
        with contextlib.suppress(ValueError):
            self._listeners.remove(listener)
        if self._session is not None and self.is_connected and listener.live is not None:
            with contextlib.suppress(nats.errors.Error, OSError):
                await self._session.unlisten(listener.live)  # type: ignore[arg-type]

    async def drain(self, listener: Listener) -> None:
        """Undo `listen`, once all has come that the server sent before, or the connection broke."""
        with contextlib.suppress(ValueError):
            self._listeners.remove(listener)
        if self._session is not None and self.is_connected and listener.live is not None:
            with contextlib.suppress(nats.errors.Error, OSError):
                await self._session.drain_listening(listener.live, DRAIN_S)  # type: ignore[arg-type]

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        headers: dict[str, str] | None = None,
        reply: str = "",
    ) -> None:
        """Send without waiting for an answer: what became of it is not known.

        Raises:
            NotSent: there is no connection, or the message is `TooLarge`.
        """
        with contextlib.suppress(OutcomeUnknown):
            await self._send(subject, payload, headers, reply)

    async def _send(
        self, subject: str, payload: bytes, headers: dict[str, str] | None, reply: str
    ) -> None:
        """Hand the message to the session.

        Raises:
            NotSent: it certainly was not sent.
            OutcomeUnknown: the connection broke while it was, or while what stood before it was.
        """
        session = self._session
        if session is None or not self.is_connected:
            raise NotSent("not connected to NATS")
        size = len(payload) + headers_size(headers)
        if size > session.max_payload:
            raise TooLarge(size, session.max_payload)
        try:
            await session.send(subject, payload, headers, reply)
        except nats.errors.Error as error:
            # The client refuses before it takes anything.
            raise NotSent(str(error)) from error
        except OSError as error:
            raise OutcomeUnknown(f"the connection broke: {error}") from error

    def is_denied(self, subject: str) -> bool:
        """Return whether the server refused what this session published to *subject*: that is all
        that is ever known of a message without an answer.
        """
        return subject in self._denied_subjects

    async def answer(self, question: RawMessage, payload: bytes) -> None:
        """Send *payload* to the client that asked *question*, without waiting. A server allows an
        answer at any reply subject, whatever else we may not publish to: so only inboxes get one.

        Raises:
            NotSent: there is no connection, the message is `TooLarge`, or it is `NoInbox`.
        """
        reply = question.reply.decode("utf-8", "replace")
        if not is_inbox(reply, self.options.inbox_prefix):
            raise NoInbox(f"the reply subject {reply[:80]!r} is not an inbox")
        await self.publish(reply, payload)

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: dict[str, str] | None = None,
        timeout_s: float = 5.0,
    ) -> RawMessage:
        """Send and return the first answer.

        Raises:
            NotSent: it certainly was not sent (`TooLarge`, `NoResponders`, `Denied` among them).
            OutcomeUnknown: no answer came in *timeout_s*, or the connection broke meanwhile.
        """
        self._token += 1
        token = b"%x" % self._token
        future: asyncio.Future[RawMessage] = asyncio.get_running_loop().create_future()
        self._waiting[token] = _Request(subject, future)
        try:
            await self._send(subject, payload, headers, f"{self._inbox}.{token.decode()}")
            # Not wait_for: in Python 3.11 it drops a cancellation that comes with the answer.
            async with asyncio.timeout(timeout_s):
                answer = await future
        except TimeoutError:
            raise OutcomeUnknown(f"no answer on {subject} in {timeout_s:g} s") from None
        finally:
            self._waiting.pop(token, None)
        if answer.status == 503:
            raise NoResponders(f"nothing answers on {subject}")
        return answer

    def _answered(self, message: RawMessage) -> None:
        request = self._waiting.get(message.subject.rsplit(b".", 1)[1])
        if request is not None and not request.answer.done():
            request.answer.set_result(message)

    async def _keep_connected(self) -> None:
        backoff_s = BACKOFF_FIRST_S
        while True:
            self._lost.clear()
            try:
                session = await self._connect()
            except ImportError:
                self._note_failure(ValueError(NKEYS_MISSING))
                await asyncio.sleep(self.options.backoff_max_s)
                continue
            except (nats.errors.Error, OSError, TimeoutError, ValueError) as error:
                self._note_failure(error)
                # Spread, so that a thousand shippers do not come back in the same instant.
                await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))
                backoff_s = min(backoff_s * 2, self.options.backoff_max_s)
                continue
            backoff_s = BACKOFF_FIRST_S
            self._session, self.problem, self._last_error = session, None, None
            # A server whose rights are changed ends the connections of the user.
            self._denied_subjects.clear()
            self.sessions += 1
            self._connected.set()
            url = session.connected_url
            log.info("connected to NATS", extra={"server": url and without_secret(url.netloc)})
            self._tell()
            await self._lost.wait()
            self._forget_session()

    async def _connect(self) -> Session:
        session = Session(self._session_lost, self._denied)
        try:
            with self._login():
                async with asyncio.timeout(CONNECT_TIMEOUT_S * 2):
                    await session.connect(**connect_options(self.options))
            for listener in list(self._listeners):
                listener.live = await session.listen(
                    listener.subject, listener.sink, listener.queue
                )
        except nats.errors.NoServersError as error:
            _give_up(session)
            # nats-py keeps no cause.
            if reason := await _unresolved(self.options.servers):
                raise ConnectionError(reason) from error
            raise
        except BaseException:
            _give_up(session)
            raise
        return session

    def _session_lost(self, error: Exception) -> None:
        self._last_error = error
        self._connected.clear()
        self._lost.set()

    def _forget_session(self) -> None:
        self._session = None
        for request in self._waiting.values():
            request.fail(OutcomeUnknown("the connection broke before an answer came"))
        log.warning("lost the connection to NATS", extra={"reason": _reason(self._last_error)})
        self._tell()

    def _note_failure(self, error: Exception) -> None:
        if _reason(error) != _reason(self._last_error):
            log.warning("cannot connect to NATS", extra={"reason": _reason(error)})
        self._last_error = error
        self.problem = f"cannot connect to NATS: {_reason(error)}"

    def _denied(self, text: str) -> None:
        if self.problem != text:
            log.error("NATS denies a permission: %s", text)
        self.problem = text
        subject = _DENIED_PUBLISH.search(text)
        if subject is None:
            return
        if len(self._denied_subjects) < DENIED_SUBJECTS_MAX:
            self._denied_subjects.add(subject[1])
        for request in self._waiting.values():
            if request.subject == subject[1]:
                request.fail(Denied(request.subject))

    def _tell(self) -> None:
        for call in self._on_change:
            call()


async def _unresolved(servers: Iterable[str]) -> str:
    """Return why no name of *servers* can be resolved; empty if one can be."""
    reason = ""
    for server in servers:
        url = urlsplit(with_scheme(server))
        try:
            await asyncio.get_running_loop().getaddrinfo(url.hostname, url.port or NATS_PORT)
        except socket.gaierror as error:
            reason = f"the name {url.hostname} cannot be resolved: {error.strerror}"
        else:
            return ""
    return reason


def _give_up(session: Session) -> None:
    session._on_lost = lambda error: None
    session.lose(ConnectionError("connect failed"))


def headers_size(headers: dict[str, str] | None) -> int:
    """Return the bytes that *headers* take on the wire."""
    if headers is None:
        return 0
    texts = sum(len(name.encode()) + len(value.encode()) for name, value in headers.items())
    return texts + HEADER_LINE_OVERHEAD_BYTES * len(headers) + len(b"NATS/1.0\r\n\r\n")


def _reason(error: Exception | None) -> str:
    if error is None:
        return "no answer"
    if isinstance(error, nats.errors.NoServersError):
        return "no server answers there; is it running, and is the address right?"
    text = str(error) or type(error).__name__
    if "authorization" in text.lower():
        return f"{text} (the server asks for credentials: set them, or check that they are current)"
    return text


async def gather(
    connection: Connection, subjects: Iterable[str], question: bytes, keep: Sink
) -> None:
    """Ask *question* at *subjects*, and call *keep* with each answer of the next moment.

    Raises:
        NotSent: there is no connection.
    """
    inbox = connection.new_inbox()
    listener = await connection.listen(inbox, keep)
    try:
        for subject in subjects:
            await connection.publish(subject, question, reply=inbox)
        await asyncio.sleep(ANSWERS_WAIT_S)
    finally:
        await connection.unlisten(listener)
