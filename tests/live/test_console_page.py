"""The console in a real browser, of a made-up pipeline; PICTURES=docs/images keeps its pictures."""

from __future__ import annotations

import asyncio
import math
import re
import socket
import time
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from aiohttp import web

from browsing import Tab, browsing
from components.console_page import TOKEN, console
from components.watched_status import collector, owned, partition, shipper, source, status
from logpipeline.records import Committed, Progress
from logpipeline_cli.console.server import config_of
from logpipeline_cli.following import Line
from logpipeline_cli.watching.gathering import Gathering
from logpipeline_cli.watching.line_tail import LineTail
from logpipeline_cli.watching.rows import View
from logpipeline_cli.watching.screen import TopApp
from logpipeline_cli.watching.watch import Watch
from pictures import browser, folder
from waiting import eventually

ATTACK = "<script>window.attacked=1</script><img src=x onerror=window.attacked=1>"
HOSTILE = f"/var/log/{ATTACK}\x1b[2J.log"
BYTES_MAX = 250_000
SECONDS = 61
BEGIN_S = 1_795_000_000.0
HOSTS = ("web1", "web2", "db1", "mail", "batch", "proxy")
PNG = b"\x89PNG\r\n\x1a\n"
TERMINAL = (150, 28)
FONTS = re.compile(r"@font-face \{.*?\}\n", re.DOTALL)
RICH = "https://www.textualize.io"
WIDE, NARROW = (1200, 860), (400, 860)
pytestmark = pytest.mark.long


def busy() -> View:
    """Return the view of a made-up minute: most is well, and one host is in trouble."""
    watch = Watch()
    for second in range(SECONDS):
        view = watch.observe(_status(second), BEGIN_S + second)
    return view


def _status(second: int) -> dict[str, Any]:
    rows = []
    for number, host in enumerate(HOSTS):
        for name in ("app", "access"):
            rows.append(_source(host, f"/var/log/{name}.log", number, second))
    stuck = {"backlog_bytes": 40_960 * (1 + second), "waiting_s": 60.0 + second}
    rows[4] |= {"lines": 0, "acked_bytes": 0} | stuck
    rows.append(source("web2", HOSTILE, position=["9d22c4", 230_000]))
    hole = {"host": "web2", "source": HOSTILE, "bytes": 8_192}
    total = sum(row["acked_bytes"] for row in rows)
    lines = sum(row["lines"] for row in rows)
    members = ("collector-0", "collector-1")
    partitions = [
        partition(
            number,
            owner=members[number // 2],
            assigned=members[number // 2],
            last_sequence=total // 40_000 + number,
            messages=9_000 + number,
            bytes=300_000_000,
        )
        for number in range(4)
    ]
    share = {"lines": lines // 4, "bytes": total // 4}
    lag = {"messages": 30, "bytes": 1_200_000, "age_s": 12.0}
    streams = [{"lag": lag, "passed": True, "holds_back": False}]
    table = {"name": "default.prod", "path": "s3://logs/prod", "commit": 7, "problem": ""}
    reading: dict[str, Any] = {"pendingMessages": 3, "unacknowledged": 1, "redelivered": 0}
    reading |= {"missedMessages": 0, "missed": []}
    return status(
        shippers=[shipper(*rows, name="machine")],
        partitions=partitions,
        collectors=[
            collector(
                owned(0, **share),
                owned(1, **share, missing_bytes=8_192, missing=[hole]),
                member=members[0],
            ),
            collector(owned(2, **share), owned(3, **share), member=members[1]),
        ],
        tables=[table | {"rows": lines, "missed_messages": 0, "streams": streams}],
        readers=[
            {"name": "billing", "streams": [{"stream": "LOGS_0", "read": second * 9} | reading]}
        ],
    )


def _source(host: str, path: str, number: int, second: int) -> dict[str, Any]:
    wave = 1.0 + 0.6 * math.sin(second / 6 + number)
    done = int(second * 60_000 * (1 + number % 3) + 400_000 * wave)
    fields = {"lines": done // 150, "acked_bytes": done, "on_the_way_bytes": 4_096 * (number % 3)}
    return source(host, path, position=[f"7f3a{number}c", done], **fields)


async def _life(*_: object) -> list[Progress]:
    """Answer as a collector of the hostile source would."""
    known = (
        Committed(HOSTILE, "5b1e90", 500_000),
        Committed(HOSTILE, "9d22c4", 200_000, holes=(("9d22c4", 90_000, 98_192),)),
    )
    return [Progress("main", 1, 3, 0, known)]


async def _tail(self: LineTail) -> None:
    """Show lines as a busy and hostile host would write them."""
    for number in range(30):
        self._show(Line("web1", "/var/log/app.log", b"GET /cart/%d 200" % number))
    self._show(Line("web2", HOSTILE, ATTACK.encode() + b"\x1b[2J"))
    await asyncio.Event().wait()


@asynccontextmanager
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[str, Gathering]]:
    """Serve the console, and yield its address with the token."""
    monkeypatch.setattr(LineTail, "run", _tail)
    monkeypatch.setattr("logpipeline_cli.console.pages.ask_collectors", _life)
    # What was made up is long ago, and no page is to say so.
    clock = SimpleNamespace(time=lambda: BEGIN_S + SECONDS, monotonic=time.monotonic)
    monkeypatch.setattr("logpipeline_cli.console.pages.time", clock)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        async with console(busy()) as (guard, gathering, _):
            server = uvicorn.Server(config_of(guard))
            running = asyncio.create_task(server.serve(sockets=[listening]))
            try:
                yield f"http://127.0.0.1:{port}/#token={TOKEN}", gathering
            finally:
                server.should_exit = True
                await running


@pytest.fixture
def program() -> str:
    """A browser, if there is one."""
    found = browser()
    if found is None:
        pytest.skip("no chromium here, which shows the page")
    return found


async def _drawn(tab: Tab) -> None:
    await tab.until("document.querySelectorAll('tbody tr').length > 10")


def _kept(picture: Path) -> bytes:
    drawn = picture.read_bytes()
    assert drawn.startswith(PNG)
    # An empty page of this size has a tenth of that.
    assert 20_000 < len(drawn) < BYTES_MAX
    return drawn


async def test_the_picture_of_top_shows_the_same_pipeline(tmp_path: Path) -> None:
    """As a terminal shows it, without the fonts that a viewer would fetch from elsewhere."""
    async with console() as (_, gathering, _):
        app = TopApp(gathering)
        async with app.run_test(size=TERMINAL) as pilot:
            await gathering.views.publish(busy())

            async def drawn() -> bool:
                await pilot.pause()
                return "db1" in app.export_screenshot()

            await eventually(drawn, what="rows")
            svg = FONTS.sub("", app.export_screenshot())
    (folder(tmp_path) / "top.svg").write_text(svg)

    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "").replace(RICH, "")
    assert len(svg) < BYTES_MAX
    assert "readers" in "".join(ET.fromstring(svg).itertext())


@pytest.mark.optional_elsewhere("needs chromium")
async def test_the_page_is_drawn_in_light_in_dark_and_narrow(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fits the window at each size, and nothing of it is refused by its own policy."""
    pictures = {
        "console-light.png": (WIDE, False),
        "console-dark.png": (WIDE, True),
        "console-narrow.png": (NARROW, False),
    }
    async with served(monkeypatch) as (address, _), browsing(program) as tab:
        for name, ((width, height), is_dark) in pictures.items():
            await tab.open(address, width=width, height=height, is_dark=is_dark)
            await _drawn(tab)
            place = folder(tmp_path) / name
            await tab.draw(place)
            _kept(place)
            wide = await tab.ask("document.documentElement.scrollWidth")
            assert wide <= width, f"{name} is wider than its window"
        assert TOKEN not in await tab.ask("location.href")
        assert tab.errors == []


@pytest.mark.optional_elsewhere("needs chromium")
async def test_names_and_lines_of_strangers_are_only_text(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path and a line that are markup are shown as they are, on each page."""
    async with served(monkeypatch) as (address, _), browsing(program) as tab:
        await tab.open(address, width=WIDE[0], height=WIDE[1])
        await _drawn(tab)
        for hash_ in ("#/sources", "#/missing"):
            await tab.ask(f"location.hash = '{hash_}'")
            await tab.until("document.querySelector('tbody').textContent.includes('<script>')")
        await tab.ask("document.querySelector('tbody a[href^=\"#/source/\"]').click()")
        await tab.until("document.querySelector('.generation .badtext') !== null")
        assert "<script>window.attacked=1" in await tab.ask(
            "document.querySelector('h2').innerText"
        )
        await tab.draw(folder(tmp_path) / "console-source.png")
        assert "null" not in await tab.ask("document.body.innerText")
        await tab.ask("location.hash = '#/lines'")
        await tab.until("document.querySelector('#lines').textContent.includes('<script>')")
        await tab.draw(tmp_path / "lines.png")

        assert await tab.ask("window.attacked") is None
        assert await tab.ask("document.scripts.length") == 1
        assert await tab.ask("document.images.length") == 0
        assert "\x1b" not in await tab.ask("document.body.textContent")
        assert tab.errors == []


@pytest.mark.optional_elsewhere("needs chromium")
async def test_the_page_is_used_by_keyboard(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search, another table, one source, and back; and what changes is drawn."""
    async with served(monkeypatch) as (address, gathering), browsing(program) as tab:
        await tab.open(address, width=WIDE[0], height=WIDE[1])
        await _drawn(tab)
        for key in "/mail":
            await tab.press(key)
        await tab.until("document.querySelectorAll('tbody tr').length === 2")
        await tab.press("Enter")
        await tab.press("Tab")
        assert await tab.ask("document.activeElement.tagName") != "INPUT"
        await tab.press("4")
        await tab.until("document.querySelector('tbody').innerText.includes('collector-0')")
        await tab.press("9")
        await tab.until("document.querySelector('#lines') !== null")
        await tab.press("Escape")
        await tab.until("location.hash === '#/sources'")

        trouble = "the server does not answer: gone"
        await gathering.views.publish(replace(busy(), trouble=trouble))

        await tab.until(f"document.querySelector('#state').innerText === '{trouble}'")
        assert tab.errors == []


@asynccontextmanager
async def neighbour() -> AsyncIterator[tuple[str, list[str]]]:
    """Serve a page of another user of this machine, which asks its own server on; yield its address
    and all that a browser sent there.
    """
    sent: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        sent.append(f"{request.path_qs} {dict(request.headers)}")
        script = "<script>fetch('/asked').then(() => { document.title = 'asked' })</script>"
        return web.Response(text=script, content_type="text/html")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        await web.SockSite(runner, listening).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/", sent
        finally:
            await runner.cleanup()


@pytest.mark.optional_elsewhere("needs chromium")
async def test_a_program_on_another_port_gets_no_token(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither with the request for its page, nor with those that the page makes."""
    async with (
        served(monkeypatch) as (address, _),
        neighbour() as (stranger, sent),
        browsing(program) as tab,
    ):
        await tab.open(address, width=WIDE[0], height=WIDE[1])
        await _drawn(tab)

        await tab.open(stranger, width=WIDE[0], height=WIDE[1])
        await tab.until("document.title === 'asked'")

        assert any(each.startswith("/asked") for each in sent)
        assert not any(TOKEN in each for each in sent)


@pytest.mark.optional_elsewhere("needs chromium")
async def test_the_page_opens_by_an_old_address_and_in_a_new_tab(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new tab has the token of those that are open; without one it says what to open."""
    async with served(monkeypatch) as (address, _), browsing(program) as tab:
        root = address.partition("#")[0]
        await tab.open(root, width=WIDE[0], height=WIDE[1])
        await tab.until(
            "document.querySelector('#state').innerText === "
            "'this tab has no token: open the address that the command printed'"
        )

        await tab.open(f"{root}?token={TOKEN}", width=WIDE[0], height=WIDE[1])
        await _drawn(tab)
        assert TOKEN not in await tab.ask("location.href")

        async with tab.beside() as other:
            await other.open(f"{root}#/hosts", width=WIDE[0], height=WIDE[1])
            await other.until("document.querySelectorAll('tbody tr').length > 4")
            assert await other.ask("location.hash") == "#/hosts"


@pytest.mark.optional_elsewhere("needs chromium")
async def test_an_open_page_takes_a_new_token(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command was begun anew: its new address, opened in the same tab, loads no page again."""
    async with served(monkeypatch) as (address, _), browsing(program) as tab:
        await tab.open(f"{address}-of-before", width=WIDE[0], height=WIDE[1])
        await tab.until(
            "document.querySelector('#state').innerText === "
            "'the token has changed: open the address that the command printed'"
        )
        await tab.ask("window.stays = true")

        await tab.open(address, width=WIDE[0], height=WIDE[1])
        await _drawn(tab)

        assert await tab.ask("window.stays")
        assert TOKEN not in await tab.ask("location.href")
