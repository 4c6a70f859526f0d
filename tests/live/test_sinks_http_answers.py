"""Answers that come byte by byte or too late: a sink's request ends, and so does its thread."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from logpipeline_cli.sinks.destination import TryAgain
from logpipeline_cli.sinks.http_client import HttpClient, HttpOptions
from waiting import eventually

TIMEOUT_S = 0.5
# Far more often than the limit of a socket.
DRIP_S = 0.05
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
Answering = Callable[[socket.socket, int], None]


class Server:
    """Answers requests as *answering* does, which gets the connection and the request's number."""

    def __init__(self, answering: Answering) -> None:
        self.requests = 0
        self.ended = threading.Event()
        self._answering = answering
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/"
        self._threads: list[threading.Thread] = []

    @contextmanager
    def serving(self) -> Iterator[Server]:
        """Answer for as long as the block lasts."""
        self._start(self._accept)
        try:
            yield self
        finally:
            self.ended.set()
            self._listening.shutdown(socket.SHUT_RDWR)
            for thread in self._threads:
                thread.join()
            self._listening.close()

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._start(lambda connection=connection: self._serve(connection))  # type: ignore[misc]

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while self._has_request(connection):
                    self.requests += 1
                    self._answering(connection, self.requests)
            except OSError:
                return

    @staticmethod
    def _has_request(connection: socket.socket) -> bool:
        data = b""
        while b"\r\n\r\n" not in data:
            part = connection.recv(65536)
            if not part:
                return False
            data += part
        return True


def client(server: Server) -> HttpClient:
    """Return a client that waits for half a second."""
    return HttpClient(HttpOptions(url=server.url, timeout_s=TIMEOUT_S))


@contextmanager
def dripping() -> Iterator[Server]:
    """A server whose answers have no end, on a connection that it says it will close."""

    def drip(connection: socket.socket, number: int) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while not server.ended.wait(DRIP_S):
            connection.sendall(b"x")

    server = Server(drip)
    with server.serving():
        yield server


async def test_an_answer_that_comes_byte_by_byte_is_not_waited_for() -> None:
    """Neither is the thread that reads it."""
    with dripping() as server:
        with pytest.raises(TryAgain, match="did not answer"):
            await client(server).post(b"", {})
        await asyncio.get_running_loop().shutdown_default_executor()


async def test_a_sink_that_is_stopped_leaves_no_thread_to_an_answer() -> None:
    """The end of the process would wait for it."""
    with dripping() as server:
        made = HttpClient(HttpOptions(url=server.url, timeout_s=3600))
        posting = asyncio.create_task(made.post(b"", {}))
        await eventually(lambda: server.requests)
        posting.cancel()
        await asyncio.wait([posting])
        await asyncio.get_running_loop().shutdown_default_executor()
        assert posting.cancelled()


async def test_a_request_that_took_too_long_is_not_sent_again() -> None:
    """On a kept connection as well: the end that it makes itself is no server that hung up."""

    def once(connection: socket.socket, number: int) -> None:
        if number == 1:
            connection.sendall(EMPTY)
        else:
            server.ended.wait()

    server = Server(once)
    with server.serving():
        made = client(server)
        assert (await made.post(b"", {})).status == 200
        try:
            with pytest.raises(TryAgain, match="did not answer"):
                await made.post(b"", {})
        finally:
            server.ended.set()
        assert server.requests == 2
