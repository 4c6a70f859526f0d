"""A small API server on loopback: lists and watches of metadata, and the faults that a real one
cannot be made to have.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from logpipeline_shipper.kubernetes.client import Access

PODS, NAMESPACES = "/api/v1/pods", "/api/v1/namespaces"


class KubeApi:
    """Keeps objects by path, tells watchers, and notes each request."""

    def __init__(self) -> None:
        self.version = 100
        self.objects: dict[str, dict[str, Any]] = {PODS: {}, NAMESPACES: {}}
        self.requests: list[tuple[str, dict[str, str], dict[str, str]]] = []
        self.refuse: int | None = None  # a status for every request
        self.piece_bytes = 65536
        self.port = 0
        self._watchers: list[tuple[str, asyncio.Queue[bytes | None]]] = []
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def watches(self) -> int:
        """How many watches are open."""
        return len(self._watchers)

    def access(self, token_file: Path | None = None) -> Access:
        """Return how to reach it."""
        return Access(url=f"http://127.0.0.1:{self.port}", token_file=token_file)

    async def start(self) -> None:
        """Listen, from the second time on at the same port."""
        self._server = await asyncio.start_server(self._take, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Be away."""
        if self._server is not None:
            self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def put(
        self, path: str, name: str, *, exclude: bool = False, **metadata: Any
    ) -> dict[str, Any]:
        """Make or change an object, and tell who watches."""
        self.version += 1
        annotations = {"logpipeline.dev/exclude": "true"} if exclude else {}
        meta = {"name": name, "uid": name, "annotations": annotations, **metadata}
        made = {"metadata": {**meta, "resourceVersion": str(self.version)}}
        self.objects[path][name] = made
        self.tell(path, "MODIFIED", made)
        return made

    def tell(self, path: str, type: str, object: dict[str, Any]) -> None:
        """Send an event to who watches *path*."""
        self.send(path, json.dumps({"type": type, "object": object}).encode() + b"\n")

    def send(self, path: str, data: bytes | None) -> None:
        """Send *data* to who watches *path*; None ends the watch."""
        for watched, queue in self._watchers:
            if watched == path:
                queue.put_nowait(data)

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError), closing(writer):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            url = urlsplit(head[0].split(" ")[1])
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            headers = dict(line.split(": ", 1) for line in head[1:] if line)
            self.requests.append((url.path, query, headers))
            answering = asyncio.create_task(self._answer(url.path, query, writer))
            leaving = asyncio.create_task(reader.read())
            try:
                await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
            finally:
                answering.cancel()
                leaving.cancel()
                await asyncio.gather(answering, leaving, return_exceptions=True)

    async def _answer(self, path: str, query: dict[str, str], writer: asyncio.StreamWriter) -> None:
        status = self.refuse or 200
        writer.write(f"HTTP/1.1 {status} X\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        if status != 200:
            await self._write(writer, json.dumps({"message": "refused"}).encode())
        elif "watch" not in query:
            items = list(self.objects[path].values())
            answer = {"metadata": {"resourceVersion": str(self.version)}, "items": items}
            await self._write(writer, json.dumps(answer).encode())
        else:
            await self._write_events(path, writer)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _write_events(self, path: str, writer: asyncio.StreamWriter) -> None:
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        entry = (path, queue)
        self._watchers.append(entry)
        try:
            while (data := await queue.get()) is not None:
                await self._write(writer, data)
        finally:
            self._watchers.remove(entry)

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        for start in range(0, len(data), self.piece_bytes):
            piece = data[start : start + self.piece_bytes]
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()


@asynccontextmanager
async def kube_api() -> AsyncIterator[KubeApi]:
    """Run one inside the block."""
    api = KubeApi()
    await api.start()
    try:
        yield api
    finally:
        await api.stop()
