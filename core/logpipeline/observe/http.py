"""The page that Prometheus and probes read: metrics, and whether the component lives and works.

Own and small, since a component has an event loop already, and a web framework would weigh more
than all of it. Any client may reach the port: size, time and connections are bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Self

from logpipeline.observe.metrics import Metrics

HEAD_BYTES_MAX = 8 * 1024
REQUEST_S_MAX = 5.0
CONNECTIONS_MAX = 32

METRICS, LIVE, READY = "/metrics", "/healthz", "/readyz"

Check = Callable[[], str | None]
Page = Callable[[], Awaitable["Answer"]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to one request."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


@dataclass(eq=False, slots=True)
class HttpServer:
    """A running server; close it, or use it as an asynchronous context manager."""

    pages: Mapping[str, Page]
    _server: asyncio.Server | None = None
    _connections: dict[asyncio.Task[None], asyncio.WriteTransport] = field(default_factory=dict)

    @property
    def port(self) -> int:
        """The port it listens on, which is a free one where 0 was asked for."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening, and cut what is still connected."""
        assert self._server is not None
        self._server.close()
        # Cutting a connection ends its task in order; cancelling that would be logged as an error.
        for transport in self._connections.values():
            transport.abort()
        await asyncio.gather(*self._connections)
        await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        # `close` has not seen a connection whose task begins later, and would leave it open.
        is_closing = self._server is not None and not self._server.is_serving()
        if is_closing or len(self._connections) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._connections[task] = writer.transport
        try:
            # A reset, or a peer that is too slow, gets no answer, and there is nothing to report.
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(REQUEST_S_MAX):
                    await self._serve_one(reader, writer)
        finally:
            del self._connections[task]
            writer.transport.abort()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            answer = _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            head = b""
        except asyncio.IncompleteReadError:
            return
        else:
            answer = await self._answer(head)
        writer.write(_rendered(answer, with_body=not head.startswith(b"HEAD ")))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def _answer(self, head: bytes) -> Answer:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3:
            return _plain(HTTPStatus.BAD_REQUEST)
        if words[0] not in (b"GET", b"HEAD"):
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        page = self.pages.get(words[1].split(b"?", 1)[0].decode("latin-1"))
        return await page() if page is not None else _plain(HTTPStatus.NOT_FOUND)


async def serve(
    host: str,
    port: int,
    metrics: Metrics,
    live: Check,
    ready: Check,
) -> HttpServer:
    """Listen on *host* and *port*; *live* and *ready* return None, or in words why not.

    Raises:
        OSError: the address cannot be listened on.
    """

    async def numbers() -> Answer:
        return Answer(HTTPStatus.OK, metrics.exposition(), metrics.content_type)

    async def is_live() -> Answer:
        return _checked(live)

    async def is_ready() -> Answer:
        return _checked(ready)

    pages = {METRICS: numbers, LIVE: is_live, READY: is_ready}
    server = HttpServer(pages)
    server._server = await asyncio.start_server(
        server._connected, host, port, limit=HEAD_BYTES_MAX, backlog=CONNECTIONS_MAX
    )
    return server


def checked(why_not: str | None) -> Answer:
    """Return the page that says that all is well, or *why_not*."""
    if why_not is None:
        return Answer(HTTPStatus.OK, b"ok\n")
    body = f"{why_not}\n".encode(errors="backslashreplace")
    return Answer(HTTPStatus.SERVICE_UNAVAILABLE, body)


def _checked(check: Check) -> Answer:
    try:
        return checked(check())
    except Exception as error:  # A check that fails is a component that does not work.
        log.error("health check failed", exc_info=error)
        return checked(f"the check itself failed: {error!r}")


def _plain(status: HTTPStatus) -> Answer:
    return Answer(status, f"{status.phrase}\n".encode())


def _rendered(answer: Answer, *, with_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (answer.body if with_body else b"")
