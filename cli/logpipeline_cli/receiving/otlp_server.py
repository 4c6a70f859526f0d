"""Receives logs in OpenTelemetry's protocol over HTTP, and answers once they are durable."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import uvicorn

from logpipeline.observe.metrics import Metrics
from logpipeline_cli.receiving.committer import Committer
from logpipeline_cli.receiving.file_names import NameTemplate
from logpipeline_cli.receiving.otlp import BODY_BYTES_MAX, BadRequest, Logs, parse, unpack
from logpipeline_cli.receiving.spool import SpoolFull

VARIABLES = frozenset({"service"})
DEFAULT_NAME = "{service}.log"
PATH = "/v1/logs"
CONNECTIONS_MAX = 200
STOP_S_MAX = 10
# What clients are asked to wait for; OTLP's exporters obey it.
BUSY_RETRY_S = 1
FULL_RETRY_S = 5

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Answer = tuple[int, dict[str, Any], int]

log = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the receiver."""
        yield


class OtlpServer:
    """`POST /v1/logs` at *address*, as a `Source`."""

    def __init__(self, address: tuple[str, int], name: NameTemplate, metrics: Metrics) -> None:
        self._address = address
        self._name = name
        self._is_open = False
        self._answers = metrics.counter("requests", "Answers, by their status.", ["status"])
        self._rejected = metrics.counter("rejected_records", "Records that were none.").labels()

    def why_not_ready(self) -> str | None:
        """Return why nothing can be received, or None."""
        return None if self._is_open else "it does not listen yet"

    async def run(self, committer: Committer, stop: asyncio.Event) -> None:
        """Answer requests until *stop* is set, and those that are there then.

        Raises:
            OSError: the address cannot be listened on.
        """

        async def application(
            scope: MutableMapping[str, Any], receive: Receive, send: Send
        ) -> None:
            status, content, retry_s = await self._answer(committer, scope, receive)
            self._answers.labels(status).inc()
            headers = [(b"content-type", b"application/json")]
            headers += [(b"retry-after", b"%d" % retry_s)] if retry_s else []
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": json.dumps(content).encode()})

        config = uvicorn.Config(
            application, lifespan="off", loop="asyncio", http="h11", ws="none", log_config=None,
            access_log=False, server_header=False, limit_concurrency=CONNECTIONS_MAX,
            timeout_graceful_shutdown=STOP_S_MAX,
        )  # fmt: skip
        host = self._address[0]
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server(self._address, family=family) as listening:
            log.info("listening", extra={"port": listening.getsockname()[1]})
            server = _Server(config)
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            self._is_open = True
            await stop.wait()
            self._is_open = False
            server.should_exit = True
            await serving

    async def _answer(
        self, committer: Committer, scope: MutableMapping[str, Any], receive: Receive
    ) -> Answer:
        if scope["path"] != PATH:
            return 404, _status(f"there is only {PATH}"), 0
        if scope["method"] != "POST":
            return 405, _status("send POST"), 0
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        kind = headers.get(b"content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return 415, _status("send application/json (in exporters: encoding json)"), 0
        # Before the body is read: what is refused costs no memory.
        if not committer.has_room:
            return 429, _status("too much is in flight"), BUSY_RETRY_S
        body = await _body(receive)
        if body is None:
            return 413, _status(f"a body may have {BODY_BYTES_MAX} bytes"), 0
        try:
            logs = parse(unpack(body, headers.get(b"content-encoding", "").strip().lower()))
        except BadRequest as error:
            return 400, _status(str(error)), 0
        try:
            await self._commit(committer, logs)
        except SpoolFull:
            return 503, _status("the disk is full: nothing of this was written"), FULL_RETRY_S
        return 200, self._accepted(logs), 0

    async def _commit(self, committer: Committer, logs: Logs) -> None:
        lines: dict[str, list[bytes]] = {}
        for service, line in logs.lines:
            name = committer.spool.name_of(self._name.fill({"service": service}))
            lines.setdefault(name, []).append(line)
        if lines:
            joined = {name: b"".join(each) for name, each in lines.items()}
            await committer.give(joined, len(logs.lines))

    def _accepted(self, logs: Logs) -> dict[str, Any]:
        if not logs.rejected:
            return {}
        self._rejected.inc(logs.rejected)
        why = "a log record has to be an object"
        return {"partialSuccess": {"rejectedLogRecords": str(logs.rejected), "errorMessage": why}}


def _status(message: str) -> dict[str, Any]:
    return {"message": message}


async def _body(receive: Receive) -> bytes | None:
    """Return the body; None if it is too long."""
    body = bytearray()
    while True:
        part = await receive()
        if part["type"] == "http.disconnect":
            return bytes(body)
        body += part.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            return None
        if not part.get("more_body"):
            return bytes(body)
