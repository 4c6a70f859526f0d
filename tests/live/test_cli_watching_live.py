"""`logpipeline top` and `logpipeline console` beside a real pipeline."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, RichLog, Static

import warm
from components.pipeline_up import PipelineUp
from logpipeline.partition import partition_of
from logpipeline_cli.console.access import TOKEN_HEADER
from logpipeline_cli.target import connected, find_target
from logpipeline_cli.watching.gathering import gathering
from logpipeline_cli.watching.screen import LifeScreen, TailScreen, TopApp
from waiting import eventually

WITHIN_S = 60.0
ATTACK = "<script>alert(1)</script>\x1b[2J"


@pytest.fixture
async def up(tmp_path: Path) -> AsyncIterator[PipelineUp]:
    """A pipeline with the log file of host web1."""
    async with PipelineUp(tmp_path) as pipeline:
        yield pipeline


def cells(pilot: Pilot[None]) -> list[list[str]]:
    """Return the rows that are shown."""
    table = pilot.app.screen.query_one(DataTable)
    return [[str(cell) for cell in table.get_row_at(row)] for row in range(table.row_count)]


def shown(pilot: Pilot[None], name: str) -> str:
    """Return what the widget *name* shows."""
    return str(pilot.app.screen.query_one(f"#{name}", Static).content)


async def until(pilot: Pilot[None], is_so: Callable[[], bool], what: str) -> None:
    """Return once *is_so*, the screen being drawn meanwhile."""

    async def drawn() -> bool:
        await pilot.pause()
        return is_so()

    await eventually(drawn, within_s=WITHIN_S, what=what)


@asynccontextmanager
async def written(up: PipelineUp) -> AsyncIterator[None]:
    """Append some lines again and again while the context is open."""

    async def write() -> None:
        number = 0
        while True:
            up.append([f"line {number + each}" for each in range(20)])
            number += 20
            await asyncio.sleep(0.1)

    task = asyncio.create_task(write())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_top_shows_a_source_its_rate_its_life_and_its_lines(up: PipelineUp) -> None:
    """From the list to one source, with its generation, and to its lines as they pass."""
    up.append(["first"])
    await up.arrived(["first"])
    target = find_target(file=None, data=str(up.layout.data), nats=None)

    async with gathering(target, "top") as watched, written(up):
        app = TopApp(watched)
        async with app.run_test(size=(200, 50)) as pilot:
            await until(pilot, lambda: len(cells(pilot)) == 1, "a row")
            await until(pilot, lambda: bool(cells(pilot)[0][2]), "a rate of lines")
            host, path, *_ = cells(pilot)[0]
            # A long path is shortened in its middle.
            assert (host, path[:5], path[-13:]) == ("web1", str(up.logs)[:5], "/logs/app.log")
            assert "no problems" in shown(pilot, "problems")

            await pilot.press("4")
            await until(pilot, lambda: len(cells(pilot)) == 2, "partitions")
            assert {row[1] for row in cells(pilot)} == {"collector-0"}
            await pilot.press("1", "enter")

            await until(pilot, lambda: isinstance(app.screen, LifeScreen), "its page")
            await until(pilot, lambda: "collected 0 to " in shown(pilot, "life"), "a generation")
            await pilot.press("t")

            await until(pilot, lambda: isinstance(app.screen, TailScreen), "its lines")
            log = app.screen.query_one(RichLog)
            await until(pilot, lambda: any("line " in row.text for row in log.lines), "lines")
            await pilot.press("escape", "escape", "q")


@pytest.mark.long
async def test_a_top_outlives_its_server(up: PipelineUp) -> None:
    """While the server is away the head says so, and then rows are new again."""
    up.append(["first"])
    await up.arrived(["first"])
    target = find_target(file=None, data=str(up.layout.data), nats=None)

    async with (
        gathering(target, "top") as watched,
        TopApp(watched).run_test(size=(200, 50)) as pilot,
    ):
        await until(pilot, lambda: len(cells(pilot)) == 1, "a row")
        up.freeze("nats-server")
        try:
            await until(pilot, lambda: "does not answer" in shown(pilot, "head"), "trouble")
            assert len(cells(pilot)) == 1
        finally:
            up.thaw("nats-server")
        await until(pilot, lambda: "does not answer" not in shown(pilot, "head"), "new rows")


async def test_a_reader_of_the_streams_is_shown(up: PipelineUp) -> None:
    """A consumer beside the collectors stands in the status, and the collectors' own does not."""
    up.append(["one", "two"])
    await up.arrived(["one", "two"])
    target = find_target(file=None, data=str(up.layout.data), nats=None)
    async with connected(target, "test") as js:
        for stream in ("0", "1"):
            name = target.pipeline.names.stream(int(stream))
            config = {"name": "billing", "durable_name": "billing", "ack_policy": "explicit"}
            await js.consumer_create(name, config)

    status, text = await up.json("status"), (await up.run("status")).stdout

    (reader,) = status["readers"]
    assert reader["name"] == "billing"
    assert sum(each["pendingMessages"] for each in reader["streams"]) >= 1
    assert "READER" in text


class Browser:
    """What a page of the console at *address* asks, with the token that the address holds."""

    def __init__(self, address: str) -> None:
        self.root, _, self._token = address.partition("#token=")

    async def open(self) -> str:
        """Return the page."""
        return (await asyncio.to_thread(self._get, self.root)).decode()

    async def ask(self, path: str) -> Any:
        """Return what *path* answers."""
        return json.loads(await asyncio.to_thread(self._get, f"{self.root}{path}"))

    def _get(self, address: str) -> bytes:
        # A proxy of this machine is none of loopback's.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        request = urllib.request.Request(address, headers={TOKEN_HEADER: self._token})
        with opener.open(request, timeout=20) as answer:
            return bytes(answer.read())


@asynccontextmanager
async def console(up: PipelineUp) -> AsyncIterator[tuple[Browser, warm.AnyProcess]]:
    """Run the command, and yield what asks it, and its process."""
    async with running_console(up) as (printed, process):
        await eventually(lambda: "token=" in printed.read_text(), within_s=WITHIN_S, what="it runs")
        yield Browser(address_in(printed.read_text())), process


@asynccontextmanager
async def running_console(
    up: PipelineUp, *more: str
) -> AsyncIterator[tuple[Path, warm.AnyProcess]]:
    """Run the command, and yield the file with what it prints, and its process."""
    printed = up.folder / "console.out"
    words = ["console", "--data", str(up.layout.data), "--http", "127.0.0.1:0", *more]
    with printed.open("wb") as out, (up.folder / "console.log").open("wb") as log:
        process = warm.start(words, stdout=out, stderr=log)
    try:
        yield printed, process
    finally:
        if process.poll() is None:
            process.kill()
            await asyncio.to_thread(process.wait)


async def found(ask: Callable[[], Awaitable[Any]], is_so: Callable[[Any], bool], what: str) -> Any:
    """Return the first answer that *is so*."""
    answers: list[Any] = []

    async def came() -> bool:
        answers.append(await ask())
        return is_so(answers[-1])

    await eventually(came, within_s=WITHIN_S, what=what)
    return answers[-1]


async def test_the_console_shows_a_pipeline_and_ends_with_ctrl_c(up: PipelineUp) -> None:
    """Its rows, the life of a source, and lines; each line of a stranger is text."""
    up.append(["first"])
    await up.arrived(["first"])

    async with console(up) as (browser, process):
        assert '<script type="module" src="/static/main.js">' in await browser.open()
        answer = await found(
            lambda: browser.ask("api/view?table=sources"),
            lambda each: bool(each["view"]["table"]["rows"]),
            "a row",
        )
        (row,) = answer["view"]["table"]["rows"]
        assert row["cells"][0] == "web1"
        life = await browser.ask(f"api/source?id={row['source']}")
        assert life["answered"]
        (generation,) = life["generations"]
        assert (generation["collected"], generation["holes"]) == (len("first\n"), [])

        # The tail begins with the first question.
        await browser.ask("api/lines?host=web1")
        async with written(up):

            async def ask() -> Any:
                up.append([ATTACK])
                return await browser.ask("api/lines?host=web1")

            lines = await found(
                ask, lambda each: any("script" in line["text"] for line in each["lines"]), "lines"
            )
        texts = [line["text"] for line in lines["lines"]]
        assert "<script>alert(1)</script>\\x1b[2J" in texts

        process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(process.wait, WITHIN_S) == 130


@pytest.mark.long
async def test_a_tail_goes_on_once_its_stream_is_there_again(up: PipelineUp) -> None:
    """A page that is open meanwhile is told why nothing comes, and need not be opened anew."""
    up.append(["first"])
    await up.arrived(["first"])
    target = find_target(file=None, data=str(up.layout.data), nats=None)
    names, partitions = target.pipeline.names, target.pipeline.spec.partitions
    stream = names.stream(partition_of("web1", partitions))

    async with console(up) as (browser, _), connected(target, "test") as js:

        async def texts(*wanted: str, more: Iterable[int] = ()) -> None:
            async def ask() -> Any:
                # A page keeps a thousand lines, so not many more may come than it asks.
                for number in islice(more, 1):
                    up.append([f"line {number}"])
                return await browser.ask("api/lines?host=web1")

            await found(
                ask,
                lambda each: all(
                    any(text in line["text"] for line in each["lines"]) for text in wanted
                ),
                f"lines with {wanted}",
            )

        await browser.ask("api/lines?host=web1")
        # `up` puts a stream back within seconds.
        pid = up.record().pid
        os.kill(pid, signal.SIGSTOP)
        try:
            await js.call(f"STREAM.DELETE.{stream}")
            await texts(f"cannot read stream {stream}")
        finally:
            os.kill(pid, signal.SIGCONT)
        await texts("cannot read stream", "line 7", more=count(70))


async def test_a_port_that_is_taken_is_named(up: PipelineUp) -> None:
    """In one line, with what to do."""
    async with console(up) as (browser, _):
        address = browser.root.removeprefix("http://").rstrip("/")

        done = await up.run("console", "--http", address)

        assert done.returncode == 1
        assert f"cannot serve at {address}: " in done.stderr
        assert "give another --http HOST:PORT" in done.stderr


def address_in(log: str) -> str:
    """Return the address with the token that `up` printed."""
    found = re.search(r"http://\S+#token=\S+", log)
    assert found is not None, log
    return found.group()


async def test_up_serves_the_page_of_its_pipeline_and_ends_it(tmp_path: Path) -> None:
    """With the same token as the command's; nothing answers any more when `up` has ended."""
    async with PipelineUp(tmp_path, "--console", "127.0.0.1:0") as up:
        up.append(["first"])
        await up.arrived(["first"])
        await eventually(lambda: "token=" in up.full_log(), within_s=WITHIN_S, what="its address")
        browser = Browser(address_in(up.full_log()))
        stranger = Browser(browser.root)

        with pytest.raises(urllib.error.HTTPError, match="401"):
            await stranger.ask("api/view")
        assert '<script type="module" src="/static/main.js">' in await browser.open()
        answer = await found(
            lambda: browser.ask("api/view?table=sources"),
            lambda each: bool(each["view"]["table"]["rows"]),
            "a row",
        )
        assert answer["view"]["table"]["rows"][0]["cells"][0] == "web1"

        # The page leaves the signals to `up`, which drains.
        up.append(["last"])
        assert await up.stop(signal.SIGINT) == 0
        assert up.collected() == ["first", "last"]
        with pytest.raises(urllib.error.URLError, match="refused"):
            await browser.open()


async def test_a_page_whose_port_is_taken_stops_no_pipeline(tmp_path: Path) -> None:
    """It is said once, lines arrive meanwhile, and the page is there once the port is free."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        address = f"127.0.0.1:{stranger.getsockname()[1]}"
        async with PipelineUp(tmp_path, "--console", address) as up:
            up.append(["first"])
            await up.arrived(["first"])
            await eventually(lambda: "the console is not served" in up.full_log(), what="a word")
            assert "give another with --console HOST:PORT" in up.full_log()
            stranger.close()

            await eventually(lambda: "token=" in up.full_log(), within_s=WITHIN_S, what="the page")
            assert "script" in await Browser(address_in(up.full_log())).open()
            assert up.full_log().count("the console is not served") == 1


async def test_a_token_of_ones_own_opens_the_page_and_is_not_printed(up: PipelineUp) -> None:
    """What a command prints may be kept as a log."""
    token = "0123456789abcdef-mine"
    (up.folder / "token").write_text(token)

    async with running_console(up, "--token-file", str(up.folder / "token")) as (printed, _):
        await eventually(lambda: "http://" in printed.read_text(), within_s=WITHIN_S, what="it")
        said = printed.read_text()
        assert token not in said
        assert f"token=… of {up.folder / 'token'}" in said
        root = said.partition("http://")[2].partition("#")[0]
        assert "view" in await Browser(f"http://{root}#token={token}").ask("api/view")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            await Browser(f"http://{root}#token=another").ask("api/view")
