"""The answers of the console to a browser. Many open pages cost a pipeline what one does: all are
answered from the newest view, and only while one asks is there a new one.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import aclosing
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from logpipeline.nats.connection import NotSent
from logpipeline.records import Progress
from logpipeline.subjects import BadHost, check_host
from logpipeline_cli.console.answers import TABLES, life_json, named, view_json
from logpipeline_cli.console.tails import TEXT_MAX, Tails, TooMany, Wish
from logpipeline_cli.watching.columns import SOURCES
from logpipeline_cli.watching.gathering import Gathering
from logpipeline_cli.watching.life import ask_collectors, life_of
from logpipeline_cli.watching.rows import View

# A page asks each second; after so long without a question none is open.
IDLE_S = 10.0
# Collectors are asked about one host so often at most, and about so many hosts at once.
HOST_EVERY_S = 2.0
HOSTS_AT_ONCE = 4
HOSTS_KEPT_MAX = 64
# Answers for different tables and filters that are kept while a view is the newest.
KEPT_MAX = 64

FILES = {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    **dict.fromkeys(
        ("main.js", "token.js", "dom.js", "picture.js", "table.js", "life.js", "tail.js"),
        "text/javascript; charset=utf-8",
    ),
}


class Pages:
    """The console of one pipeline. `run` gathers while pages ask; *tasks* end with it."""

    def __init__(self, gathering: Gathering, tasks: asyncio.TaskGroup) -> None:
        self._gathering = gathering
        call_later = asyncio.get_running_loop().call_later
        self._tails = Tails(gathering.js, gathering.target.pipeline, tasks, call_later)
        self._asked_s = 0.0
        self._is_asked = asyncio.Event()
        self._kept: dict[tuple[str, str, str], bytes] = {}
        self._kept_of: View | None = None
        self._hosts: dict[str, tuple[float, list[Progress]]] = {}
        self._asking = asyncio.Semaphore(HOSTS_AT_ONCE)
        folder = resources.files("logpipeline_cli.console") / "static"
        self._files = {name: (folder / name).read_bytes() for name in FILES}

    def application(self) -> Starlette:
        """Return what answers requests, without a guard."""
        return Starlette(
            routes=[
                Route("/", self._index),
                Route("/static/{name}", self._file),
                Route("/api/view", self._view),
                Route("/api/source", self._source),
                Route("/api/lines", self._lines),
            ]
        )

    async def run(self) -> None:
        """Have the status gathered while pages ask, until cancelled."""
        while True:
            await self._is_asked.wait()
            async with aclosing(self._gathering.views.follow()) as views:
                async for _ in views:
                    if time.monotonic() - self._asked_s > IDLE_S:
                        self._is_asked.clear()
                        break

    def close(self) -> None:
        """End what pages follow."""
        self._tails.close()

    async def _index(self, _: Request) -> Response:
        return self._of_file("index.html")

    async def _file(self, request: Request) -> Response:
        return self._of_file(request.path_params["name"])

    def _of_file(self, name: str) -> Response:
        if name not in self._files:
            return PlainTextResponse("there is no such file", 404)
        return Response(self._files[name], media_type=FILES[name])

    async def _view(self, request: Request) -> Response:
        self._asked_s = time.monotonic()
        self._is_asked.set()
        query = request.query_params
        table = TABLES.get(query.get("table", ""), SOURCES)
        wanted = table.name, query.get("text", "")[:TEXT_MAX], query.get("by", "")
        view = self._gathering.views.newest
        if view is not self._kept_of or len(self._kept) > KEPT_MAX:
            self._kept, self._kept_of = {}, view
        if wanted not in self._kept:
            found = view_json(view, table, text=wanted[1], by=wanted[2])
            self._kept[wanted] = json.dumps(found, separators=(",", ":")).encode()
        # The view may be old where no page has asked for long.
        age_s = max(0.0, time.time() - view.at_s) if view.at_s else -1.0
        body = b'{"age_s":%.1f,"view":%s}' % (age_s, self._kept[wanted])
        return Response(body, media_type="application/json")

    async def _source(self, request: Request) -> Response:
        pipeline, view = self._gathering.target.pipeline, self._gathering.views.newest
        found = named(view, request.query_params.get("id", ""))
        if found is None:
            return _json({"error": "this source is not watched now"}, 404)
        host, source = found
        try:
            answers = await self._progress(host)
        except (NotSent, BadHost) as error:
            return _json({"error": f"collectors cannot be asked: {error}"}, 503)
        partitions = pipeline.spec.partitions
        life = life_of(view, answers, host=host, source=source, partitions=partitions)
        return _json(life_json(life))

    async def _progress(self, host: str) -> list[Progress]:
        """Return what collectors know of *host*, asked lately."""
        async with self._asking:
            asked_s, answers = self._hosts.get(host, (0.0, []))
            if time.monotonic() - asked_s > HOST_EVERY_S:
                gathering = self._gathering
                answers = await ask_collectors(
                    gathering.js.connection, gathering.target.pipeline, host
                )
                self._hosts[host] = time.monotonic(), answers
                while len(self._hosts) > HOSTS_KEPT_MAX:
                    del self._hosts[next(iter(self._hosts))]
            return answers

    async def _lines(self, request: Request) -> Response:
        query = request.query_params
        after = query.get("after", "0")
        wish = self._wish(query)
        if isinstance(wish, str):
            return _json({"error": wish}, 400)
        try:
            return _json(self._tails.ask(wish, int(after) if after.isdecimal() else 0))
        except TooMany as error:
            return _json({"error": str(error)}, 503)

    def _wish(self, query: Mapping[str, str]) -> Wish | str:
        """Return the tail that *query* asks for, or the mistake in it."""
        text = query.get("text", "")[:TEXT_MAX]
        if id := query.get("id", ""):
            found = named(self._gathering.views.newest, id)
            return Wish(*found, text) if found is not None else "this source is not watched now"
        try:
            host = check_host(query["host"]) if query.get("host") else None
        except BadHost as error:
            return str(error)
        return Wish(host, None, text)


def _json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value, separators=(",", ":")), status, media_type="application/json")
