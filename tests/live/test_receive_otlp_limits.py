"""A receiver of OpenTelemetry's logs that gets connections that say nothing, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from logpipeline.observe.metrics import Metrics
from logpipeline_cli import http_connections
from logpipeline_cli.receiving import otlp_server
from logpipeline_cli.receiving.committer import Committer
from logpipeline_cli.receiving.file_names import NameTemplate
from logpipeline_cli.receiving.otlp_server import VARIABLES, OtlpServer
from logpipeline_cli.receiving.spool import Spool
from ports import free_port
from waiting import eventually

BODY = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{}]}]}]}'
REQUEST = (
    b"POST /v1/logs HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
)


@asynccontextmanager
async def serving(folder: Path, metrics: Metrics) -> AsyncIterator[int]:
    """Yield the port of a receiver that writes to *folder*."""
    port, stop, drained = free_port(), asyncio.Event(), asyncio.Event()
    server = OtlpServer(("127.0.0.1", port), NameTemplate("a.log", VARIABLES), metrics)
    with Spool(folder) as spool:
        made = Committer(spool, metrics, waits=False)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(made.run(drained))
            running = tasks.create_task(server.run(made, stop))
            await eventually(lambda: server.why_not_ready() is None, what="it listens")
            yield port
            stop.set()
            await running
            drained.set()


class Client:
    """One connection to *port*."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connected(cls, port: int) -> Client:
        """Return a connection that has said nothing."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, data: bytes) -> None:
        """Send *data*."""
        self._writer.write(data)

    async def status(self) -> bytes:
        """Return the status of the answer, which is read to its end."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        if b"chunked" in head:
            await self._reader.readuntil(b"0\r\n\r\n")
        return head.split(b" ")[1]

    async def is_closed(self) -> bool:
        """Return whether the other side ended it, and said nothing before; waits for either."""
        try:
            return await self._reader.read(1) == b""
        except ConnectionError:
            return True
        finally:
            self.close()

    def close(self) -> None:
        """End it."""
        self._writer.transport.abort()


async def test_a_connection_without_a_request_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it sent half a head: else a few hundred of them would shut the receiver. One that
    had a request may wait for its next one.
    """
    metrics = Metrics("receiver")
    monkeypatch.setattr(http_connections, "HEADER_S_MAX", 0.2)
    async with serving(tmp_path, metrics) as port:
        kept, silent, half = [await Client.connected(port) for _ in range(3)]
        kept.send(REQUEST)
        assert await kept.status() == b"200"
        half.send(REQUEST[:20])
        for each in (silent, half):
            assert await each.is_closed()

        again = await Client.connected(port)
        assert await again.is_closed()
        kept.send(REQUEST)
        assert await kept.status() == b"200"
        kept.send(REQUEST[:20])
        assert await kept.is_closed()


async def test_connections_beyond_the_limit_are_closed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Before they say anything, so that descriptors do not run out."""
    metrics = Metrics("receiver")
    monkeypatch.setattr(otlp_server, "OPEN_CONNECTIONS_MAX", 1)
    async with serving(tmp_path, metrics) as port:
        first, second = [await Client.connected(port) for _ in range(2)]
        assert await second.is_closed()
        first.send(REQUEST)
        assert await first.status() == b"200"
        first.close()
    assert metrics.value("refused_connections_total") == 1
    assert "connections beyond the limit are closed" in caplog.messages
