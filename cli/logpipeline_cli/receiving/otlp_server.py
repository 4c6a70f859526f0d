"""Receives logs in OpenTelemetry's protocol over HTTP, and answers once they are durable."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import uvicorn

from logpipeline.observe.metrics import Metrics
from logpipeline_cli.http_connections import UNANSWERED_FROM, BoundedConnection
from logpipeline_cli.receiving.committer import Committer
from logpipeline_cli.receiving.connections import (
    HANDSHAKE_S_MAX,
    ConnectionLimit,
    accept,
    listening_at,
)
from logpipeline_cli.receiving.file_names import NameTemplate
from logpipeline_cli.receiving.otlp import (
    BODY_BYTES_MAX,
    JSON,
    BadRequest,
    Encoding,
    Logs,
    unpack,
)
from logpipeline_cli.receiving.otlp_protobuf import PROTOBUF
from logpipeline_cli.receiving.spool import SpoolFull
from logpipeline_cli.receiving.tls import ServerTls

VARIABLES = frozenset({"service"})
PATH = "/v1/logs"
ENCODINGS = {each.content_type: each for each in (PROTOBUF, JSON)}
# Requests by more connections are answered with 503, so that their clients repeat them.
CONNECTIONS_MAX = 200
# Further ones are closed when they are accepted.
OPEN_CONNECTIONS_MAX = UNANSWERED_FROM * CONNECTIONS_MAX
# Of all requests that are being read, together.
BODIES_BYTES_MAX = 4 * BODY_BYTES_MAX
BODY_S_MAX = 30
# Longer than exporters wait between two batches: what is sent while the connection is being closed
# fails, and some exporters do not repeat it.
KEEP_ALIVE_S = 75
STOP_S_MAX = 10
# What clients are asked to wait for; OTLP's exporters obey it.
BUSY_RETRY_S = 1
FULL_RETRY_S = 5

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

log = logging.getLogger(__name__)


class _Refused(Exception):
    """A request that is not accepted; with *retry_s* it may be repeated after so long."""

    def __init__(self, status: int, message: str, retry_s: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_s = retry_s


class _Disconnected(Exception):
    """The client went away within its request, of which nothing is accepted."""


class _Server(uvicorn.Server):
    """A server to which `take` gives connections, each counted from when it is accepted."""

    def __init__(
        self, config: uvicorn.Config, secured: ssl.SSLContext | None, metrics: Metrics
    ) -> None:
        super().__init__(config)
        self._limit = ConnectionLimit(OPEN_CONNECTIONS_MAX, "the limit", metrics)
        self._secured = secured
        self._beginning: set[asyncio.Task[None]] = set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the receiver."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen at nothing."""
        self.servers = []
        self.started = True

    def take(self, accepted: socket.socket) -> None:
        """Serve *accepted*, or close it where there are too many."""
        there = len(self._beginning) + len(self.server_state.connections)
        if not self._limit.admits(accepted, there):
            return
        task = asyncio.create_task(self._begin(accepted))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _begin(self, accepted: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: BoundedConnection(self.config, self.server_state, {}),
                accepted,
                ssl=self._secured,
                ssl_handshake_timeout=HANDSHAKE_S_MAX if self._secured else None,
            )
        except OSError:
            # It ended in its handshake.
            accepted.close()


class Application:
    """The ASGI application that serves `POST /v1/logs`, and gives what it gets to *committer*."""

    def __init__(self, committer: Committer, name: NameTemplate, metrics: Metrics) -> None:
        self._committer = committer
        self._name = name
        self._body_bytes = 0
        # It takes many times the memory of a body, and seconds for a large one.
        self._parsing = asyncio.Lock()
        self._answers = metrics.counter("requests", "Answers, by their status.", ["status"])
        self._rejected = metrics.counter("rejected_records", "Records that were none.").labels()
        self._unknown = metrics.counter(
            "unknown_field_bytes",
            "Bytes of protobuf's fields that this version does not know, and that are left out.",
        ).labels()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, in the encoding in which it came."""
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        kind = headers.get(b"content-type", "").partition(";")[0].strip().lower()
        encoding = ENCODINGS.get(kind)
        in_kind = encoding or JSON
        status, retry_s = 200, 0
        try:
            rejected = await self._accept(scope, headers, encoding, receive)
            content = in_kind.accepted(rejected)
        except _Disconnected:
            return
        except _Refused as refused:
            status, retry_s = refused.status, refused.retry_s
            content = in_kind.status(refused.message)
        except asyncio.CancelledError:
            # The receiver ends, by a stop or by a disk that fails. Uvicorn would answer with 500,
            # after which a client drops its records.
            status, content = 503, in_kind.status("the receiver ends")
        self._answers.labels(status).inc()
        fields = [(b"content-type", in_kind.content_type.encode())]
        fields += [(b"retry-after", b"%d" % retry_s)] if retry_s else []
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": content})

    async def _accept(
        self, scope: Scope, headers: dict[bytes, str], encoding: Encoding | None, receive: Receive
    ) -> int:
        """Return how many records were none, once the others are durable."""
        if scope["path"] != PATH:
            raise _Refused(404, f"there is only {PATH}")
        if scope["method"] != "POST":
            raise _Refused(405, "send POST")
        if encoding is None:
            raise _Refused(415, f"send {' or '.join(ENCODINGS)}")
        packing = headers.get(b"content-encoding", "").strip().lower()
        logs = await self._read(receive, lambda body: encoding.parse(unpack(body, packing)))
        try:
            await self._commit(logs)
        except SpoolFull as error:
            message = f"{error}: nothing of this was written"
            raise _Refused(503, message, FULL_RETRY_S) from None
        self._rejected.inc(logs.rejected)
        self._unknown.inc(logs.unknown_bytes)
        return logs.rejected

    async def _read(self, receive: Receive, parse: Callable[[bytes], Logs]) -> Logs:
        """Return what *parse* makes of the body. Until then, its bytes count as held."""
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_S_MAX):
                while True:
                    # Looked at before each read, so that a refused request takes no memory.
                    self._check_room(is_full=self._body_bytes > BODIES_BYTES_MAX)
                    part = await receive()
                    if part["type"] == "http.disconnect":
                        raise _Disconnected
                    data = part.get("body", b"")
                    body += data
                    self._body_bytes += len(data)
                    if len(body) > BODY_BYTES_MAX:
                        raise _Refused(413, f"a body may have {BODY_BYTES_MAX} bytes")
                    if not part.get("more_body"):
                        break
            async with self._parsing:
                self._check_room()
                logs = await asyncio.to_thread(parse, bytes(body))
            # Once more: others that were read meanwhile may have taken the room. What is parsed is
            # given before anything else happens.
            self._check_room()
            return logs
        except TimeoutError:
            message = f"the body did not come within {BODY_S_MAX} s"
            raise _Refused(503, message, BUSY_RETRY_S) from None
        except BadRequest as error:
            raise _Refused(400, str(error)) from None
        finally:
            self._body_bytes -= len(body)

    def _check_room(self, *, is_full: bool = False) -> None:
        if is_full or not self._committer.has_room:
            raise _Refused(429, "too much is in flight", BUSY_RETRY_S)

    async def _commit(self, logs: Logs) -> None:
        lines: dict[str, list[bytes]] = {}
        for service, line in logs.lines:
            name = self._committer.spool.name_of(self._name.fill({"service": service}))
            lines.setdefault(name, []).append(line)
        if lines:
            joined = {name: b"".join(each) for name, each in lines.items()}
            await self._committer.give(joined, len(logs.lines))


class OtlpServer:
    """`POST /v1/logs` at *address*, as a `Source`."""

    def __init__(
        self,
        address: tuple[str, int],
        name: NameTemplate,
        metrics: Metrics,
        tls: ServerTls | None = None,
    ) -> None:
        self._address = address
        self._name = name
        self._metrics = metrics
        self._tls = tls
        self._is_open = False

    def why_not_ready(self) -> str | None:
        """Return why nothing can be received, or None."""
        return None if self._is_open else "it does not listen yet"

    async def run(self, committer: Committer, stop: asyncio.Event) -> None:
        """Answer requests until *stop* is set, and those that are there then.

        Raises:
            OSError: the address cannot be listened on.
        """
        tls = self._tls
        config = uvicorn.Config(
            Application(committer, self._name, self._metrics),
            lifespan="off", loop="asyncio", http=BoundedConnection, ws="none", log_config=None,
            access_log=False, server_header=False, limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=STOP_S_MAX,
        )  # fmt: skip
        server = _Server(config, None if tls is None else tls.context, self._metrics)
        listening = listening_at(self._address)
        try:
            log.info("listening", extra={"port": listening[0].getsockname()[1]})
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(server.serve())
                beside = [tasks.create_task(accept(each, server.take)) for each in listening]
                if tls is not None:
                    beside.append(tasks.create_task(tls.keep_looking()))
                self._is_open = True
                await stop.wait()
                self._is_open = False
                for task in beside:
                    task.cancel()
                await asyncio.gather(*beside, return_exceptions=True)
                for each in listening:
                    each.close()
                server.should_exit = True
        finally:
            for each in listening:
                each.close()
