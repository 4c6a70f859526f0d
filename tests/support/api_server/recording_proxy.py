"""Between an operator and the API server: counts what is written, and does to requests and watches
what a network, a busy server or an old cache does.

It runs in a thread of its own, so that a test that waits for kubectl never holds it up. It speaks
plain HTTP to the operator, and to the API server with the rights of the given kubeconfig.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

from api_server.writes import Writes
from logpipeline_operator.cluster.client import configuration
from waiting import WITHIN_S

BODY_BYTES_MAX = 8 * 1024 * 1024
ASKED_SHOWN_MAX = 30
WRITING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
PASSED_ON = ("Accept", "Content-Type", "User-Agent")


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A request: *write* is its number among those that write, 0 for one that does not (Leases do
    not count); *at* is monotonic.
    """

    method: str
    path: str
    query: Mapping[str, str]
    write: int
    at: float

    @property
    def is_watch(self) -> bool:
        """Whether it asks for events rather than objects."""
        return self.query.get("watch") in ("true", "1")

    @property
    def is_lease(self) -> bool:
        """Whether it is about leading."""
        return "/leases" in self.path


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with *status* instead of asking the server."""

    status: int
    reason: str = ""
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class Lose:
    """Have the server do it, and close the connection without an answer."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Neither ask the server nor answer."""


@dataclass(frozen=True, slots=True)
class Old:
    """Answer what the server answered to the very same request when it was asked first."""


Fault = Refuse | Lose | Hang | Old


@dataclass(frozen=True, slots=True)
class Wait:
    """Let *seconds* go by before the watch goes on."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Cut:
    """End the watch."""


# What becomes of one event: lines to send, waits, and an end.
Relayed = Iterable[bytes | Wait | Cut]


def as_it_is(asked: Asked, event: bytes) -> Relayed:
    """Relay an event unharmed."""
    return [event]


@dataclass(eq=False)
class ClusterProxy:
    """Use it as a context manager; *judge* and *relay* may be changed at any time."""

    kubeconfig: Path
    writes: Writes = field(default_factory=Writes)
    judge: Callable[[Asked], Fault | None] = lambda asked: None
    relay: Callable[[Asked, bytes], Relayed] = as_it_is
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    unanswered: set[Asked] = field(default_factory=set)
    _numbered: int = 0
    _first: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _end: asyncio.Event = field(default_factory=asyncio.Event)
    _is_up: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _session: aiohttp.ClientSession | None = None
    _server: str = ""

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="cluster-proxy", daemon=True)
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

    def kubeconfig_for(self, folder: Path, *, namespace: str = "default") -> Path:
        """Write a kubeconfig that leads here, and return where it is."""
        name = "proxy"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": name, "user": {"token": "the-proxy-has-its-own"}}],
            "contexts": [
                {"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}
            ],
        }
        path = folder / f"proxy-{self.port}.kubeconfig"
        # Whole or not at all: another operator may be reading it.
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(content))
        temporary.replace(path)
        return path

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        settings = await configuration(str(self.kubeconfig))
        context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
        if settings.cert_file:
            context.load_cert_chain(settings.cert_file, settings.key_file)
        self._server = str(settings.host)
        token = (settings.api_key or {}).get("BearerToken")
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # A watch whose operator is gone must end at the server as well.
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            headers={"Authorization": token} if token else {},
            auto_decompress=False,
        ) as self._session:
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", self.port)
            await site.start()
            self.port = runner.addresses[0][1]
            self._is_up.set()
            await self._end.wait()
            await runner.cleanup()

    def traffic(self) -> str:
        """List the last requests with their ages, and those that have no answer yet."""
        now = time.monotonic()

        def row(what: str, asked: Asked) -> str:
            return f"{what}: {asked.method} {asked.path}, {now - asked.at:.1f} s ago"

        rows = [row("asked", each) for each in self.asked[-ASKED_SHOWN_MAX:]]
        # The proxy's thread changes the set meanwhile.
        waiting = [each for each in list(self.unanswered) if not each.is_watch]
        return "\n".join(rows + [row("without an answer", each) for each in waiting])

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        asked = self._note(request)
        self.unanswered.add(asked)
        try:
            return await self._answer(asked, request)
        finally:
            self.unanswered.discard(asked)

    async def _answer(self, asked: Asked, request: web.Request) -> web.StreamResponse:
        fault = self.judge(asked)
        if isinstance(fault, Refuse):
            return _refusal(fault)
        if isinstance(fault, Hang):
            await self._end.wait()
        if isinstance(fault, Old) and request.path_qs in self._first:
            status, body = self._first[request.path_qs]
            return web.Response(status=status, body=body, content_type="application/json")
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        assert self._session is not None
        async with self._session.request(
            request.method,
            self._server + request.path_qs,
            # An empty body would be given a type, which the server refuses.
            data=await request.read() or None,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None),
        ) as answer:
            if asked.is_watch and answer.status == 200:
                return await self._watch(asked, request, answer)
            body = await answer.read()
        if asked.write and answer.status < 400:
            self.writes.add(f"{asked.method} {asked.path}")
        if asked.method == "GET":
            self._first.setdefault(request.path_qs, (answer.status, body))
        if isinstance(fault, Lose):
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=answer.status, body=body, content_type="application/json")

    def _note(self, request: web.Request) -> Asked:
        is_write = request.method in WRITING and "/leases" not in request.path
        self._numbered += is_write
        asked = Asked(
            request.method,
            request.path,
            dict(request.query),
            self._numbered if is_write else 0,
            time.monotonic(),
        )
        self.asked.append(asked)
        return asked

    async def _watch(
        self, asked: Asked, request: web.Request, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        rest = b""
        async for chunk in answer.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                for step in self.relay(asked, line):
                    if isinstance(step, Cut):
                        return response
                    if isinstance(step, Wait):
                        await asyncio.sleep(step.seconds)
                    else:
                        await response.write(step + b"\n")
        return response


def _refusal(fault: Refuse) -> web.Response:
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": "the proxy says so",
        "reason": fault.reason,
        "code": fault.status,
    }
    after = fault.retry_after_s
    headers = {} if after is None else {"Retry-After": str(after)}
    return web.json_response(status, status=fault.status, headers=headers)
