"""The console of made-up views, without a pipeline: as an application to ask, or served."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlencode

from starlette.types import ASGIApp, Message

from logpipeline.layout import Layout
from logpipeline.nats.connection import NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.spec import parse
from logpipeline_cli.console.access import LOOPBACK, TOKEN_HEADER, Guard
from logpipeline_cli.console.pages import Pages
from logpipeline_cli.target import Target
from logpipeline_cli.watching.gathering import Gathering
from logpipeline_cli.watching.rows import View

TOKEN = "a-token-of-tests"
PORT = 8630
RESOURCE = {
    "apiVersion": "logpipeline.dev/v1alpha1",
    "kind": "LogPipeline",
    "metadata": {"name": "prod"},
    "spec": {"partitions": 4},
}


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to one request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body, which is JSON."""
        return json.loads(self.body)


async def asked(
    app: ASGIApp,
    path: str,
    query: Mapping[str, str] | None = None,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
) -> Answered:
    """Return the answer of *app* to one request, with the right token and name unless *headers*
    has others.
    """
    sent: list[Message] = []
    given = {"host": f"127.0.0.1:{PORT}", TOKEN_HEADER: TOKEN} | dict(headers or {})
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": urlencode(query or {}).encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "server": ("127.0.0.1", PORT),
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start, *bodies = sent
    return Answered(
        start["status"],
        {name.decode(): value.decode() for name, value in start["headers"]},
        b"".join(each.get("body", b"") for each in bodies),
    )


@asynccontextmanager
async def console(first: View | None = None) -> AsyncIterator[tuple[Guard, Gathering, Pages]]:
    """Yield the console of a pipeline of which *first* is known, and what it asks."""
    target = Target(parse(RESOURCE), Layout(Path("/nonexistent")), NatsOptions(), None)
    # No server is asked: what a page would ask of one, a test answers.
    js = cast(JetStream, SimpleNamespace(connection=None))
    gathering = Gathering(target, js)
    if first is not None:
        await gathering.views.publish(first)
    async with asyncio.TaskGroup() as tasks:
        pages = Pages(gathering, tasks)
        running = tasks.create_task(pages.run())
        yield Guard(pages.application(), token=TOKEN, hosts=LOOPBACK), gathering, pages
        running.cancel()
        pages.close()
