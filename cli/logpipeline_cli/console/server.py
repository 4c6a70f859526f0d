"""Serves the console until it is ended."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import uvicorn

from logpipeline_cli.console.access import LOOPBACK, Guard
from logpipeline_cli.console.pages import Pages
from logpipeline_cli.http_connections import BoundedConnection
from logpipeline_cli.target import Target
from logpipeline_cli.watching.gathering import gathering

# Connections at once, of all pages; a browser opens six. More are refused.
CONNECTIONS_MAX = 100
BACKLOG_MAX = 64
KEEP_ALIVE_S = 15
STOP_S_MAX = 3


class _Within(uvicorn.Server):
    """A server within a process that has its own answer to signals, which uvicorn would replace."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals as they are."""
        yield


async def serve(
    target: Target,
    *,
    host: str,
    port: int,
    names: Sequence[str],
    started: Callable[[str], None],
    token: str,
    until: asyncio.Event | None = None,
    span_s: float | None = None,
) -> None:
    """Serve the console of *target* at *host* and *port*, 0 being a free one, to those who call it
    by *host*, a name of this machine's loopback, or one of *names*. *started* gets its address,
    with the *token*. It ends with SIGINT or SIGTERM, and after *span_s*
    seconds if they are given; where *until* is given, it ends once that is set, and leaves signals
    alone.

    Raises:
        OSError: the address cannot be used.
        ConnectFailed: the server cannot be reached, or refuses us; the message says why.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=BACKLOG_MAX) as listening:
        bound = int(listening.getsockname()[1])
        async with gathering(target, "console") as watched, asyncio.TaskGroup() as tasks:
            pages = Pages(watched, tasks)
            running = tasks.create_task(pages.run())
            guard = Guard(pages.application(), token=token, hosts=(*LOOPBACK, host, *names))
            named = f"[{host}]" if ":" in host else host
            # What stands behind # is sent to no server, and so to none that has the port later.
            started(f"http://{named}:{bound}/#token={token}")
            server = (uvicorn.Server if until is None else _Within)(config_of(guard))
            await _serve(server, listening, until=until, span_s=span_s)
            running.cancel()
            pages.close()


async def _serve(
    server: uvicorn.Server,
    listening: socket.socket,
    *,
    until: asyncio.Event | None,
    span_s: float | None,
) -> None:
    async def end() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(span_s):
                await (until or asyncio.Event()).wait()
        server.should_exit = True

    ending = asyncio.create_task(end())
    try:
        await server.serve(sockets=[listening])
    finally:
        ending.cancel()


def config_of(guard: Guard) -> uvicorn.Config:
    """Return how *guard* is served: few connections, and nothing said of the server."""
    return uvicorn.Config(
        guard,
        lifespan="off",
        loop="asyncio",
        http=BoundedConnection,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S_MAX,
    )
