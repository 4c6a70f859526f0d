"""Streams with lines, for tests of the data source: written by a connection of the test's own, in
plain functions, since Spark is used from plain functions too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from logpipeline.embedded import EmbeddedServer, ServerOptions
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.subjects import Subjects
from logpipeline.wire import encode_headers, message_id, source_key
from tables.messages import batch_for
from waiting import WITHIN_S

PARTITIONS = 2
# Of two partitions the first is node-b's, the second node-a's.
HOSTS = ("node-b", "node-a")
BASE = "LOGS"
STREAMS = ("LOGS_0", "LOGS_1")


class Streams:
    """A nats-server with the streams LOGS_0 and LOGS_1, and a loop of its own."""

    def __init__(self, folder: Path, login: tuple[str, str] | None = None, **server: Any) -> None:
        # A test stops the server on purpose; what it acknowledged need not survive a power cut.
        self.server = EmbeddedServer(folder, ServerOptions(sync_interval="10s", **server))
        self._nats = NatsOptions()
        if token := server.get("token"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "token").write_text(token)
            self._nats = NatsOptions(token_file=folder / "token")
        if login is not None:
            folder.mkdir(parents=True, exist_ok=True)
            files = folder / "user", folder / "password"
            for path, text in zip(files, login, strict=True):
                path.write_text(text)
            self._nats = NatsOptions(user_file=files[0], password_file=files[1])
        self._loop = asyncio.new_event_loop()
        self._connection: Connection | None = None
        self._offsets = dict.fromkeys(HOSTS, 0)

    def start(self) -> None:
        """Start, or start again, the server."""
        self._loop.run_until_complete(self.server.start())

    def stop(self) -> None:
        """Stop the server; its store stays."""
        self._loop.run_until_complete(self._stop())

    def close(self) -> None:
        """End everything."""
        self.stop()
        self._loop.close()

    def create(self, *streams: str, **changes: Any) -> None:
        """Make *streams* of the partitions that their names end with."""
        for stream in streams or STREAMS:
            config = {
                "name": stream,
                "subjects": [f"logs.p{stream.rpartition('_')[2]}.>"],
                "storage": "file",
                "allow_direct": True,
                **changes,
            }
            self.call(f"STREAM.CREATE.{stream}", config)

    def call(self, request: str, body: dict[str, Any] | None = None) -> Any:
        """Ask JetStream's API."""
        return self._run(lambda js: js.call(request, body))

    def publish(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> int:
        """Store a message, and return its sequence."""
        return int(self._run(lambda js: js.publish(subject, data, headers)).sequence)

    def send(self, host: str, *lines: str, **changes: Any) -> int:
        """Store *lines* of *host*, as its shipper would, and return the sequence. Another *attempt*
        to send the same bytes has an id of its own.
        """
        return self._send(host, "".join(f"{line}\n" for line in lines).encode(), changes)

    def send_piece(self, host: str, text: str, *, is_first: bool, is_last: bool) -> int:
        """Store a piece of a line that is too long for one message."""
        changes = {"starts_inside_line": not is_first, "ends_inside_line": not is_last}
        return self._send(host, text.encode() + b"\n" * is_last, changes)

    def _send(self, host: str, data: bytes, changes: dict[str, Any]) -> int:
        changes = {"format": "plain", "source": "/var/log/app.log"} | changes
        attempt = changes.pop("attempt", "")
        batch = batch_for(data, self._offsets[host], **changes)
        self._offsets[host] = batch.end
        key = source_key("test", host, batch.source)
        identifier = message_id(key, batch, attempt=attempt)
        subject = Subjects("logs", PARTITIONS).of_host(host)
        return self.publish(subject, data, encode_headers(batch, identifier))

    def options(self, **changes: str) -> dict[str, str]:
        """Return options of the data source that read both streams."""
        return {
            "servers": self.server.url,
            "stream": BASE,
            "partitions": str(PARTITIONS),
            "subject": "logs",
            "patienceSeconds": "15",
        } | changes

    def _run(self, what: Callable[[JetStream], Any]) -> Any:
        return self._loop.run_until_complete(self._ask(what))

    async def _ask(self, what: Callable[[JetStream], Any]) -> Any:
        if self._connection is None:
            self._connection = Connection(replace(self._nats, servers=(self.server.url,)))
            await self._connection.start(patience_s=WITHIN_S)
        await self._connection.wait_connected()
        return await what(JetStream(self._connection))

    async def _stop(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None
        await self.server.stop()


@contextmanager
def running_streams(folder: Path, **server: Any) -> Iterator[Streams]:
    """A server, with *server* among its options, and both streams, empty."""
    streams = Streams(folder, **server)
    streams.start()
    try:
        streams.create()
        yield streams
    finally:
        streams.close()
