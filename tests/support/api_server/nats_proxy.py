"""Between an operator and nats-server: counts the requests that change JetStream, each when the
server has carried it out and before the operator hears of it.

It runs in a thread of its own, as the proxy to the API server does.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from api_server.writes import Writes
from waiting import WITHIN_S

CHUNK_BYTES = 64 * 1024
LINE_BYTES_MAX = 64 * 1024
# What changes JetStream: these requests of its API, and each message that wants an acknowledgement;
# below `_lp.` parts are asked how they are, which changes nothing.
WRITING = re.compile(
    rb"\$JS\.API\.(STREAM\.(CREATE|UPDATE|DELETE|PURGE|MSG\.DELETE|RESTORE)"
    rb"|CONSUMER\.(CREATE|DURABLE|DELETE|RESET))\b|(?!\$JS\.|_lp\.)"
)


@dataclass(eq=False)
class NatsProxy:
    """Carries connections to the server at *target*; use it as a context manager."""

    target: int
    writes: Writes
    port: int = 0
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _end: asyncio.Event = field(default_factory=asyncio.Event)
    _is_up: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="nats-proxy", daemon=True)
        self._thread.start()
        assert self._is_up.wait(WITHIN_S), "the proxy did not start"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(WITHIN_S)

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        # Sockets are closed one turn of the loop after they were asked to.
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port, limit=LINE_BYTES_MAX
        )
        self.port = server.sockets[0].getsockname()[1]
        self._is_up.set()
        await self._end.wait()
        server.close()

    async def _accept(
        self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        # By the subject of its answer: which request has been sent and not been answered.
        waiting: dict[bytes, str] = {}
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            to_client.close()
            return
        ways = [
            asyncio.ensure_future(self._ask(from_client, to_server, waiting)),
            asyncio.ensure_future(self._answer(from_server, to_client, waiting)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        to_server.close()
        to_client.close()

    async def _ask(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, waiting: dict[bytes, str]
    ) -> None:
        async for line, payload in _frames(source):
            words = line.split()
            has_reply = words[0] in (b"PUB", b"HPUB") and len(words) == 4 + (words[0] == b"HPUB")
            if has_reply and WRITING.match(words[1]):
                waiting[words[2]] = words[1].decode()
            target.write(line + payload)
            await target.drain()

    async def _answer(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, waiting: dict[bytes, str]
    ) -> None:
        async for line, payload in _frames(source):
            words = line.split()
            if words[0] in (b"MSG", b"HMSG") and words[1] in waiting:
                self.writes.add(waiting.pop(words[1]))
            target.write(line + payload)
            await target.drain()


async def _frames(source: asyncio.StreamReader) -> AsyncIterator[tuple[bytes, bytes]]:
    """Yield each line of NATS' protocol with the payload that follows it, if any."""
    while line := await source.readline():
        payload = b""
        words = line.split()
        if words and words[0] in (b"PUB", b"HPUB", b"MSG", b"HMSG"):
            payload = await source.readexactly(int(words[-1]) + 2)
        yield line, payload
