"""A connection on which the server's answers can be swallowed, as one-way cuts of a network do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class ShipperProxy:
    """Forwards TCP to *target*; while *is_silent*, what the server says never arrives."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 4222
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.is_silent = False
        self.client_bytes = 0

    @property
    def url(self) -> str:
        """Where clients connect to."""
        assert self._server is not None
        return f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)

    async def close(self) -> None:
        """Cut everything."""
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Reset all connections; new ones may come."""
        for writer in self._writers:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            there, back = await asyncio.open_connection(self._host, self._port)
            self._writers |= {writer, back}
            await asyncio.gather(
                self._pump(reader, back, is_from_server=False),
                self._pump(there, writer, is_from_server=True),
            )
        except OSError:
            pass  # a cut connection is what this is for
        finally:
            self._tasks.discard(task)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_from_server: bool
    ) -> None:
        try:
            while data := await reader.read(65536):
                if is_from_server and self.is_silent:
                    continue
                if not is_from_server:
                    self.client_bytes += len(data)
                writer.write(data)
                await writer.drain()
        finally:
            self._writers.discard(writer)
            writer.transport.abort()


@asynccontextmanager
async def proxied(target: str) -> AsyncIterator[ShipperProxy]:
    """Run a proxy of *target* inside the block."""
    proxy = ShipperProxy(target)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()
