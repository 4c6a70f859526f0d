"""What the commands that run one component have in common: signals, logs, addresses."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from logpipeline.credentials import nats_options
from logpipeline.nats.connection import NatsOptions
from logpipeline.observe import logs
from logpipeline.process import keep_freed_memory
from logpipeline.spec import LogPipeline
from logpipeline_cli.errors import CliError
from logpipeline_cli.local.parts import die_with_parent

# How the supervisor tells a part which user of the embedded server it is: by the folder of that
# user's files, never by a password.
LOGIN_VARIABLE = "LOGPIPELINE_NATS_LOGIN"


def run_until_stopped(component: str, serve: Callable[[asyncio.Event], Awaitable[int]]) -> int:
    """Run *serve* until SIGTERM or SIGINT sets its event; return its exit code."""
    die_with_parent()
    keep_freed_memory()
    logs.setup(component, format="text" if sys.stderr.isatty() else "json")

    async def main() -> int:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        return await serve(stop)

    return asyncio.run(main())


def http_address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``.

    Raises:
        CliError: it is not of that form.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise CliError(f"--http {text!r}: give HOST:PORT, such as 127.0.0.1:9100 or 0.0.0.0:9100")
    return host.strip("[]"), int(port)


def server_of(pipeline: LogPipeline, nats: str | None) -> NatsOptions:
    """Return how to reach the server: by --nats, ``NATS_URL``, or the resource, in this order.

    Raises:
        CliError: none of them names one.
    """
    given = nats or os.environ.get("NATS_URL") or ""
    servers = tuple(given.split(",")) if given else tuple(pipeline.spec.nats.servers)
    if not servers:
        raise CliError(
            "no NATS server is known: give --nats URL, set NATS_URL, or list spec.nats.servers"
        )
    login = os.environ.get(LOGIN_VARIABLE)
    return nats_options(pipeline, servers=servers, login=Path(login) if login else None)
