"""Probes and Prometheus get true answers, and a stranger cannot exhaust the component."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from logpipeline.observe import http
from logpipeline.observe.metrics import Metrics
from waiting import eventually


@dataclass
class State:
    """What the component says of itself."""

    live: str | None = None
    ready: str | None = None


@pytest.fixture
def state() -> State:
    """A component that works."""
    return State()


@pytest.fixture
async def server(state: State) -> AsyncIterator[http.HttpServer]:
    """The page of that component."""
    metrics = Metrics("shipper")
    metrics.counter("lines", "Lines sent.").labels().inc(5)
    listening = http.serve("127.0.0.1", 0, metrics, lambda: state.live, lambda: state.ready)
    async with await listening as running:
        yield running


async def test_metrics_are_served(server: http.HttpServer) -> None:
    """Prometheus reads the numbers, and how to understand them."""
    answer = await _get(server, b"/metrics")

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nContent-Type: text/plain; version=" in answer
    assert b"\nlogpipeline_shipper_lines_total 5.0\n" in answer


async def test_alive_is_not_ready(server: http.HttpServer, state: State) -> None:
    """Each probe has its own answer, and a bad one says why."""
    state.ready = "no connection to nats://elsewhere"

    alive, ready = await _get(server, b"/healthz"), await _get(server, b"/readyz")

    assert alive.endswith(b"\r\n\r\nok\n")
    assert ready.startswith(b"HTTP/1.1 503 ")
    assert ready.endswith(b"\r\n\r\nno connection to nats://elsewhere\n")


async def test_a_check_that_fails_is_no_success(state: State) -> None:
    """An error inside of a check is shown as one, and the page stays up."""

    def broken() -> str | None:
        raise RuntimeError("no state")

    listening = http.serve("127.0.0.1", 0, Metrics("shipper"), broken, lambda: None)
    async with await listening as server:
        assert (await _get(server, b"/healthz")).startswith(b"HTTP/1.1 503 ")
        assert (await _get(server, b"/readyz")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /nothing HTTP/1.1", b"404"),
        (b"POST /metrics HTTP/1.1", b"405"),
        (b"what is this", b"405"),
        (b"\x16\x03\x01", b"400"),
        (b"GET /" + b"a" * 100_000, b"431"),
    ],
)
async def test_a_bad_request_gets_an_answer(
    server: http.HttpServer, request_line: bytes, status: bytes
) -> None:
    """Whatever is asked, the answer is a status, and the page stays up."""
    answer = await _ask(server, request_line + b"\r\n\r\n")

    assert answer.split(b" ")[1] == status
    assert (await _get(server, b"/healthz")).startswith(b"HTTP/1.1 200 ")


async def test_a_head_request_gets_no_body(server: http.HttpServer) -> None:
    """A probe that only wants the status is told it, and the length."""
    answer = await _ask(server, b"HEAD /healthz HTTP/1.1\r\n\r\n")

    assert answer.endswith(b"\r\n\r\n")
    assert b"Content-Length: 3\r\n" in answer


async def test_silent_connections_are_dropped_and_counted_out(
    server: http.HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections that send nothing take a bounded number of places, for a bounded time."""
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 3)
    monkeypatch.setattr(http, "REQUEST_S_MAX", 0.2)
    silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
    await eventually(lambda: len(server._connections) == 3)

    refused = await _ask(server, b"GET /healthz HTTP/1.1\r\n\r\n")
    assert refused == b""
    for reader, _ in silent:
        assert await _rest_of(reader) == b""
    answer = await _get(server, b"/healthz")
    assert answer.startswith(b"HTTP/1.1 200 ")

    for _, writer in silent:
        writer.close()


async def test_closing_does_not_wait_for_a_silent_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A component stops at once and without a word, whoever is still connected."""
    server = await http.serve("127.0.0.1", 0, Metrics("shipper"), lambda: None, lambda: None)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    await eventually(lambda: server._connections)

    async with asyncio.timeout(2):
        await server.close()

    assert await _rest_of(reader) == b""
    assert caplog.records == []
    writer.close()


async def test_a_connection_that_begins_behind_the_close_ends_at_once() -> None:
    """The server accepted it before, and its task begins now. Left open, it would be cancelled at
    the end of the process, which is logged as an error.
    """
    server = await http.serve("127.0.0.1", 0, Metrics("shipper"), lambda: None, lambda: None)
    await server.close()
    async with await asyncio.start_server(server._connected, "127.0.0.1", 0) as late:
        reader, writer = await asyncio.open_connection(*late.sockets[0].getsockname())
        async with asyncio.timeout(http.REQUEST_S_MAX / 2):
            assert await _rest_of(reader) == b""
        writer.close()

    assert server._connections == {}


async def _get(server: http.HttpServer, path: bytes) -> bytes:
    return await _ask(server, b"GET " + path + b" HTTP/1.1\r\nHost: here\r\n\r\n")


async def _ask(server: http.HttpServer, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    answer = await _rest_of(reader)
    writer.close()
    return answer


async def _rest_of(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
