"""Serves the console until it is ended."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import uvicorn

from logpipeline_cli.console.access import LOOPBACK, Guard, new_token
from logpipeline_cli.console.pages import Pages
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
    until: asyncio.Event | None = None,
) -> None:
    """Serve the console of *target* at *host* and *port*, 0 being a free one, to those who call it
    by *host*, a name of this machine's loopback, or one of *names*. *started* gets its address,
    with the token. It ends with SIGINT or SIGTERM, or, where *until* is given, once that is set.

    Raises:
        OSError: the address cannot be used.
        ConnectFailed: the server cannot be reached, or refuses us; the message says why.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=BACKLOG_MAX) as listening:
        bound = int(listening.getsockname()[1])
        token = new_token()
        async with gathering(target, "console") as watched, asyncio.TaskGroup() as tasks:
            pages = Pages(watched, tasks)
            running = tasks.create_task(pages.run())
            guard = Guard(
                pages.application(), token=token, hosts=(*LOOPBACK, host, *names), port=bound
            )
            named = f"[{host}]" if ":" in host else host
            started(f"http://{named}:{bound}/?token={token}")
            if until is None:
                await uvicorn.Server(config_of(guard)).serve(sockets=[listening])
            else:
                await _serve_until(until, _Within(config_of(guard)), listening)
            running.cancel()
            pages.close()


async def _serve_until(until: asyncio.Event, server: _Within, listening: socket.socket) -> None:
    async def end() -> None:
        await until.wait()
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
        http="h11",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S_MAX,
    )
