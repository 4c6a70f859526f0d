"""A TCP proxy that can swallow what it carries: a cut without a reset, in one direction or both. It
can also carry slowly, and reset its connections.

It runs in a thread of its own, so that a busy test never slows the traffic.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from waiting import WITHIN_S

CHUNK_BYTES = 64 * 1024


@dataclass(eq=False)
class _Pair:
    """One connection of a client and ours to the server, and in which directions it lost bytes."""

    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    torn: set[str] = field(default_factory=set)

    def close(self) -> None:
        for writer in self.writers:
            writer.close()


class Proxy:
    """Carries connections to the server at *port*; use it as a context manager."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._loop = asyncio.new_event_loop()
        self._pairs: set[_Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._swallowed = {"to server": False, "to client": False}
        self._delay_s = 0.0
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_up.wait(WITHIN_S), "the proxy did not start"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Swallow everything from now on: to either side the other one is silent."""
        self._swallowed.update({"to server": True, "to client": True})

    def cut_answers(self) -> None:
        """Swallow what the server says; what clients say still arrives."""
        self._swallowed["to client"] = True

    def heal(self) -> None:
        """Carry again. Connections that lost bytes are closed: their streams are torn."""
        self._swallowed.update({"to server": False, "to client": False})
        self._loop.call_soon_threadsafe(self._close_cut)

    def slow(self, seconds: float) -> None:
        """Carry each chunk so much later from now on, and what is behind it as well."""
        self._delay_s = seconds

    def reset(self) -> None:
        """Reset all connections, in the midst of what they carry; new ones may be made."""
        self._loop.call_soon_threadsafe(self._reset)

    def _reset(self) -> None:
        for pair in self._pairs:
            for writer in pair.writers:
                # With this the kernel sends a reset, and throws away what is still to be sent.
                option = writer.get_extra_info("socket").setsockopt
                option(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._accept, "127.0.0.1", self.port)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._is_up.set()
        self._loop.run_forever()
        server.close()
        for pair in self._pairs:
            pair.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        # Sockets are closed one turn of the loop after they were asked to.
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _accept(
        self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        pair = _Pair([to_client])
        self._pairs.add(pair)
        try:
            with contextlib.suppress(OSError):
                from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
                pair.writers.append(to_server)
                await asyncio.gather(
                    self._carry(pair, "to server", from_client, to_server),
                    self._carry(pair, "to client", from_server, to_client),
                )
        finally:
            pair.close()
            self._pairs.discard(pair)

    async def _carry(
        self,
        pair: _Pair,
        direction: str,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
    ) -> None:
        while data := await source.read(CHUNK_BYTES):
            if self._swallowed[direction]:
                pair.torn.add(direction)
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            # What is torn stays silent, also in the moment between healing and its end.
            if direction not in pair.torn:
                target.write(data)
                await target.drain()
        # An end is a word too: a side that is cut off must not hear it.
        if self._swallowed[direction]:
            pair.torn.add(direction)
        else:
            pair.close()

    def _close_cut(self) -> None:
        for pair in self._pairs:
            if pair.torn:
                pair.close()
