"""Receives syslog by UDP, TCP and TLS.

No transport of syslog acknowledges a message. What the kernel has taken from a sender, and this
process has not yet synced, is lost by a crash. What the kernel drops is counted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

from logpipeline.observe.metrics import Metrics
from logpipeline_cli.receiving.committer import Committer
from logpipeline_cli.receiving.connections import (
    HANDSHAKE_S_MAX,
    ConnectionLimit,
    accept,
    listening_at,
)
from logpipeline_cli.receiving.file_names import NameTemplate
from logpipeline_cli.receiving.framing import LF, MESSAGE_BYTES_MAX, Framed, Framer
from logpipeline_cli.receiving.syslog import json_line, parse, raw_line
from logpipeline_cli.receiving.tls import ServerTls

VARIABLES = frozenset({"host", "app", "sender", "facility", "severity"})
DEFAULT_NAME = "{host}/{app}.log"
CONNECTIONS_MAX = 1000
READ_BYTES = 64 * 1024
# A datagram holds less; a buffer that is larger shows that none was cut.
DATAGRAM_BYTES_MAX = 64 * 1024
# Taken in one turn, so that connections get theirs.
DATAGRAMS_A_TURN = 256
# The kernel grants no more than net.core.rmem_max: a burst that is longer is dropped there.
UDP_BUFFER_BYTES = 8 * 1024 * 1024
# How many files' names are remembered, so that they are not made anew for each message.
NAMES_CACHED = 4096

Address = tuple[str, int]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyslogConfig:
    """Where to listen, and how lines are written."""

    udp: Address | None = None
    tcp: Address | None = None
    tls: Address | None = None
    # Where `tls` is given.
    server_tls: ServerTls | None = None
    output: Literal["raw", "json"] = "raw"
    name: NameTemplate = field(default_factory=lambda: NameTemplate(DEFAULT_NAME, VARIABLES))
    message_bytes_max: int = MESSAGE_BYTES_MAX
    connections_max: int = CONNECTIONS_MAX
    delimiter: bytes = LF


class SyslogServer:
    """The listeners of *config*, as a `Source`."""

    def __init__(self, config: SyslogConfig, metrics: Metrics) -> None:
        self.config = config
        self._messages = metrics.counter("messages", "Messages that arrived.", ["transport"])
        self._cut = metrics.counter("cut_messages", "Messages that were cut at --message-bytes.")
        self._half = metrics.counter("half_messages", "Messages in which their connection ended.")
        self._limit = ConnectionLimit(config.connections_max, "--connections", metrics)
        metrics.watch("connections", "Open connections.", lambda: float(len(self._connections)))
        metrics.watch(
            "udp_dropped_datagrams",
            "Datagrams that the kernel dropped since the start, because its buffer was full.",
            lambda: float(self._kernel_drops()),
        )
        # Until the handshake of TLS is done, a connection has no writer.
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter | None] = {}
        self._datagrams: socket.socket | None = None
        self._is_open = False
        self._name = lru_cache(NAMES_CACHED)(self._name_of)

    def why_not_ready(self) -> str | None:
        """Return why nothing can be received, or None."""
        return None if self._is_open else "it does not listen yet"

    async def run(self, committer: Committer, stop: asyncio.Event) -> None:
        """Listen until *stop* is set.

        Raises:
            OSError: an address cannot be listened on.
        """
        tasks: list[asyncio.Task[None]] = []
        listening: list[socket.socket] = []
        accepting: list[asyncio.Task[None]] = []
        try:
            for transport, address, secured in self._listeners():
                listening += (made := listening_at(address))
                take = partial(self._take, committer, transport, secured)
                accepting += [asyncio.create_task(accept(each, take)) for each in made]
                port = made[0].getsockname()[1]
                log.info("listening", extra={"transport": transport, "port": port})
            if self.config.udp is not None:
                self._datagrams = _bound(self.config.udp)
                log.info("listening", extra={"transport": "udp", "port": self._port()})
                tasks.append(asyncio.create_task(self._receive(committer, self._datagrams)))
            if self.config.server_tls is not None:
                tasks.append(asyncio.create_task(self.config.server_tls.keep_looking()))
            self._is_open = True
            await stop.wait()
        finally:
            self._is_open = False
            await _cancel(accepting)
            for each in listening:
                each.close()
            await self._end_connections(committer)
            await _cancel(tasks)
        dropped = self._kernel_drops()
        if dropped:
            log.warning("the kernel dropped datagrams", extra={"datagrams": dropped})
        if self._datagrams is not None:
            self._datagrams.close()

    async def _end_connections(self, committer: Committer) -> None:
        for task, writer in self._connections.items():
            if writer is None:
                task.cancel()
            else:
                writer.transport.abort()
        # While the disk is full or fails there will be no room. What was read of a connection and
        # is not given yet is no more than twice READ_BYTES.
        committer.release()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _listeners(self) -> Iterable[tuple[str, Address, ssl.SSLContext | None]]:
        if self.config.tcp is not None:
            yield "tcp", self.config.tcp, None
        if self.config.tls is not None:
            assert self.config.server_tls is not None
            yield "tls", self.config.tls, self.config.server_tls.context

    def _take(
        self,
        committer: Committer,
        transport: str,
        secured: ssl.SSLContext | None,
        accepted: socket.socket,
    ) -> None:
        if not self._limit.admits(accepted, len(self._connections)):
            return
        task = asyncio.create_task(self._connected(committer, transport, secured, accepted))
        self._connections[task] = None
        task.add_done_callback(self._connections.pop)

    async def _connected(
        self,
        committer: Committer,
        transport: str,
        secured: ssl.SSLContext | None,
        accepted: socket.socket,
    ) -> None:
        try:
            sender = str(accepted.getpeername()[0])
            reader, writer = await _opened(accepted, secured)
        except OSError:
            # It ended before, or in its handshake.
            accepted.close()
            return
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        framer = Framer(self.config.message_bytes_max, self.config.delimiter)
        try:
            # A reset ends the connection as its end does.
            with suppress(OSError):
                while data := await reader.read(READ_BYTES):
                    self._give(committer, transport, sender, framer.feed(data))
                    # Until then the kernel's buffers fill, and the sender waits.
                    await committer.room()
            self._give(committer, transport, sender, framer.end())
        finally:
            writer.transport.abort()

    async def _receive(self, committer: Committer, datagrams: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await committer.room()
            data, peer = await loop.sock_recvfrom(datagrams, DATAGRAM_BYTES_MAX)
            by_sender: dict[str, list[Framed]] = {}
            with suppress(BlockingIOError):
                for _ in range(DATAGRAMS_A_TURN):
                    by_sender.setdefault(str(peer[0]), []).append(self._framed(data))
                    data, peer = datagrams.recvfrom(DATAGRAM_BYTES_MAX)
                by_sender.setdefault(str(peer[0]), []).append(self._framed(data))
            for sender, messages in by_sender.items():
                self._give(committer, "udp", sender, messages)
            # While there is room and a datagram waits, neither call above lets anything else run.
            await asyncio.sleep(0)

    def _framed(self, data: bytes) -> Framed:
        # Many senders end a datagram as they would end a line.
        data = data.rstrip(b"\r\n\0")
        size = self.config.message_bytes_max
        return Framed(data[:size], max(0, len(data) - size))

    def _give(
        self, committer: Committer, transport: str, sender: str, messages: list[Framed]
    ) -> None:
        lines: dict[str, list[bytes]] = {}
        received = datetime.now(UTC).isoformat(timespec="milliseconds")
        for each in messages:
            name, line = self._line(committer, each, sender, received)
            lines.setdefault(name, []).append(line)
            if each.cut_bytes:
                self._cut.labels().inc()
            if not each.is_whole:
                self._half.labels().inc()
        if messages:
            self._messages.labels(transport).inc(len(messages))
            joined = {name: b"".join(each) for name, each in lines.items()}
            committer.give(joined, len(messages))

    def _line(
        self, committer: Committer, framed: Framed, sender: str, received: str
    ) -> tuple[str, bytes]:
        message = parse(framed.data)
        host = message.host or sender
        name = self._name(host, message.app, sender, message.facility, message.severity)
        if self.config.output == "raw":
            line = raw_line(framed.data, framed.cut_bytes)
        else:
            line = json_line(message, received=received, sender=sender, cut_bytes=framed.cut_bytes)
        return committer.spool.name_of(name), line

    def _name_of(self, host: str, app: str, sender: str, facility: str, severity: str) -> str:
        values = {
            "host": host, "app": app, "sender": sender, "facility": facility, "severity": severity,
        }  # fmt: skip
        return self.config.name.fill(values)

    def _port(self) -> int:
        return 0 if self._datagrams is None else int(self._datagrams.getsockname()[1])

    def _kernel_drops(self) -> int:
        if self._datagrams is None or self._datagrams.fileno() < 0:
            return 0
        return kernel_drops(self._datagrams.fileno())


async def _opened(
    accepted: socket.socket, secured: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return both ends of *accepted*, after its handshake.

    Raises:
        OSError: it ended, or its handshake failed or took too long.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(READ_BYTES, loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol,
        accepted,
        ssl=secured,
        ssl_handshake_timeout=HANDSHAKE_S_MAX if secured else None,
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def kernel_drops(descriptor: int) -> int:
    """Return how many datagrams the kernel dropped for the socket *descriptor*, because its buffer
    was full; 0 where the system does not tell.
    """
    inode = str(os.fstat(descriptor).st_ino)
    for table in (Path("/proc/net/udp"), Path("/proc/net/udp6")):
        with suppress(OSError):
            for row in table.read_text().splitlines()[1:]:
                fields = row.split()
                if len(fields) > 12 and fields[9] == inode:
                    return int(fields[12])
    return 0


def _bound(address: Address) -> socket.socket:
    found = socket.getaddrinfo(*address, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, where = found[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, UDP_BUFFER_BYTES)
        made.bind(where)
    except OSError:
        made.close()
        raise
    return made
