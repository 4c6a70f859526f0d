"""Connections that ask nothing keep no one out of a server of ours for long."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import pytest
import uvicorn

from logpipeline_cli import http_connections
from logpipeline_cli.http_connections import UNANSWERED_FROM, BoundedConnection
from waiting import eventually

LIMIT = 5
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


async def application(scope: Any, receive: Any, send: Send) -> None:
    """Answer each request."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"well"})


class Quiet(uvicorn.Server):
    """A server that leaves the signals of the tests alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        """Leave them."""
        yield


@pytest.fixture
async def server() -> AsyncIterator[uvicorn.Server]:
    """A server with few connections."""
    config = uvicorn.Config(
        application, host="127.0.0.1", port=0, lifespan="off", ws="none", log_config=None,
        http=BoundedConnection, limit_concurrency=LIMIT,
    )  # fmt: skip
    made = Quiet(config)
    serving = asyncio.create_task(made.serve())
    await eventually(lambda: made.started)
    yield made
    made.should_exit = True
    await serving


def port_of(server: uvicorn.Server) -> int:
    """Return where it listens."""
    return int(server.servers[0].sockets[0].getsockname()[1])


@contextlib.asynccontextmanager
async def connected(
    server: uvicorn.Server, count: int, data: bytes
) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Open *count* connections that send *data* and nothing more."""
    opened = [await asyncio.open_connection("127.0.0.1", port_of(server)) for _ in range(count)]
    try:
        for _, writer in opened:
            writer.write(data)
        yield [reader for reader, _ in opened]
    finally:
        for _, writer in opened:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def ask(port: int) -> int:
    """Return the status of an answer."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as asking:
        asking.request("GET", "/")
        return asking.getresponse().status


@pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.1\r\nHost: a"], ids=["nothing", "half"])
async def test_a_connection_without_a_request_is_closed(
    server: uvicorn.Server, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    """Until then others are told to come later; after it they are served."""
    monkeypatch.setattr(http_connections, "HEADER_S_MAX", 0.5)
    async with connected(server, LIMIT, data) as mute:
        for reader in mute:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        await eventually(lambda: not server.server_state.connections)
    assert await asyncio.to_thread(ask, port_of(server)) == 200


async def test_half_of_a_second_request_is_not_waited_for(
    server: uvicorn.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that was used has the same limit."""
    monkeypatch.setattr(http_connections, "HEADER_S_MAX", 0.5)
    whole = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    async with connected(server, 1, whole + b"GET / HTT") as (reader,):
        assert (await reader.readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await eventually(lambda: not server.server_state.connections)


async def test_there_are_no_more_connections_than_are_answered(server: uvicorn.Server) -> None:
    """Each takes a descriptor, of which a process has few."""
    most = UNANSWERED_FROM * LIMIT
    async with connected(server, most, b""):
        await eventually(lambda: len(server.server_state.connections) == most)
        async with connected(server, 1, b"") as (beyond,):
            with contextlib.suppress(ConnectionError):
                assert await beyond.read() == b""
        assert len(server.server_state.connections) == most
