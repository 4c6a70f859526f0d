"""The console: who may read it, and what it answers."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.console_page import RESOURCE, TOKEN, asked, console
from components.watched_status import owned, partition, shipper, source, status, watched
from logpipeline.layout import Layout
from logpipeline.nats.connection import NatsOptions
from logpipeline.spec import parse
from logpipeline_cli.commands.console import Page, token_in
from logpipeline_cli.console.access import TOKEN_HEADER, host_of
from logpipeline_cli.console.answers import id_of, view_json
from logpipeline_cli.console.pages import FILES
from logpipeline_cli.console.tails import IDLE_S, KEPT_MAX, TAILS_MAX, UNSEEN, Tails, TooMany, Wish
from logpipeline_cli.errors import UsageError
from logpipeline_cli.following import Line
from logpipeline_cli.main import main
from logpipeline_cli.target import Target
from logpipeline_cli.watching.line_tail import LineTail
from logpipeline_cli.watching.rows import View
from waiting import eventually

HOSTILE = "/var/log/<script>alert(1)</script>\x1b\udcff.log"


def view() -> View:
    """Return a view with a source that has a hostile name."""
    rows = [source("web1", "/app.log", backlog_bytes=9, waiting_s=5.0), source("web2", HOSTILE)]
    return watched(
        status(
            shippers=[shipper(*rows)],
            partitions=[partition(), partition(1, owner="")],
            collectors=[{"group": "main", "member": "collector-0", "partitions": [owned()]}],
        )
    )


async def test_without_the_token_nothing_of_the_pipeline_is_shown() -> None:
    """Neither an answer nor a hint of one; only the page is there, which is the same for all."""
    async with console(view()) as (app, _, _):
        for path in ("/api/view", "/api/source", "/api/lines", "/nothing"):
            for token in ("", "wrong", TOKEN + "x"):
                answer = await asked(app, path, headers={TOKEN_HEADER: token})
                assert answer.status == 401
                assert b"web1" not in answer.body
        for path in ("/", "/static/main.js"):
            page = await asked(app, path, headers={TOKEN_HEADER: ""})
            assert page.status == 200
            assert b"web1" not in page.body


async def test_the_token_is_in_no_cookie() -> None:
    """A browser sends a host's cookies to each of its ports, and so to programs of other users."""
    async with console(view()) as (app, _, _):
        for query in ({}, {"token": TOKEN}):
            page = await asked(app, "/", query)
            assert (page.status, page.headers.get("set-cookie")) == (200, None)
        for name in ("token", "logpipeline-console-8630"):
            for query in ({}, {"token": TOKEN}):
                given = {TOKEN_HEADER: "", "cookie": f"{name}={TOKEN}"}
                assert (await asked(app, "/api/view", query, headers=given)).status == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8630", "127.0.0.1.evil.example", "", "[::2]:8630"]
)
async def test_a_name_that_was_made_to_lead_here_is_refused(host: str) -> None:
    """DNS rebinding: a foreign site's own name with this machine's address."""
    async with console(view()) as (app, _, _):
        assert (await asked(app, "/api/view", headers={"host": host})).status == 421


@pytest.mark.parametrize("host", ["localhost:8630", "LOCALHOST", "[::1]:8630", "127.0.0.1:1"])
async def test_the_names_of_loopback_are_its_own(host: str) -> None:
    """With any port: one may be forwarded."""
    async with console(view()) as (app, _, _):
        assert (await asked(app, "/api/view", headers={"host": host})).status == 200


async def test_another_site_may_not_read_it() -> None:
    """Neither by a script, nor as an image, should it have the token."""
    async with console(view()) as (app, _, _):
        for site in ("cross-site", "same-site"):
            headers = {"sec-fetch-site": site, "sec-fetch-mode": "cors"}
            assert (await asked(app, "/api/view", headers=headers)).status == 403
        link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        assert (await asked(app, "/", headers=link)).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_it_is_only_read(method: str) -> None:
    """No request changes anything."""
    async with console(view()) as (app, _, _):
        assert (await asked(app, "/api/view", method=method)).status == 405


async def test_each_answer_forbids_foreign_content() -> None:
    """The refused ones, too: only own scripts and styles, no frames, no caches."""
    async with console(view()) as (app, _, _):
        known = [(path, TOKEN) for path in ("/", "/api/view", "/nothing")]
        for path, token in (*known, ("/api/view", "")):
            headers = (await asked(app, path, headers={TOKEN_HEADER: token})).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"
            assert "access-control-allow-origin" not in headers


async def test_files_are_the_known_ones() -> None:
    """No path leads out of the folder, and no file names another host."""
    async with console(view()) as (app, _, _):
        for name, kind in FILES.items():
            answer = await asked(app, f"/static/{name}")
            assert (answer.status, answer.headers["content-type"]) == (200, kind)
            text = answer.body.decode().replace("http://www.w3.org/2000/svg", "")
            assert "http:" not in text
            assert "https:" not in text
            assert "innerHTML" not in text
        for name in ("../pages.py", "..%2fpages.py", "nothing.js", "/etc/passwd"):
            assert (await asked(app, f"/static/{name}")).status == 404


async def test_the_view_has_the_worst_rows_and_the_problems() -> None:
    """What the page draws is decided here, and is text."""
    async with console(view()) as (app, _, _):
        found = (await asked(app, "/api/view", {"table": "sources"})).json()

        shown = found["view"]
        assert shown["name"] == "prod"
        assert shown["problems"] == ["no collector owns partition 1: start one"]
        assert [stage["name"] for stage in shown["stages"]][:2] == ["files", "shippers"]
        assert [row["cells"][1] for row in shown["table"]["rows"]] == [
            "/app.log",
            r"/var/log/<script>alert(1)</script>\x1b\xff.log",
        ]
        assert found["age_s"] > 0


async def test_the_view_is_searched_and_sorted_by_the_console() -> None:
    """A page holds no more than what it shows."""
    async with console(view()) as (app, _, _):
        query = {"table": "sources", "text": "APP", "by": "HOST"}
        table = (await asked(app, "/api/view", query)).json()["view"]["table"]

        assert (table["found"], table["by"]) == (1, "HOST")


async def test_before_the_first_view_the_page_says_so() -> None:
    """There is nothing to show yet, and no error."""
    async with console() as (app, _, _):
        assert (await asked(app, "/api/view")).json()["age_s"] == -1.0


async def test_ten_pages_are_one_watcher_and_none_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """While pages ask, the status is gathered once; when all are closed, not at all."""
    async with console(view()) as (app, gathering, _):
        assert gathering.views.watchers == 0

        for _ in range(10):
            await asked(app, "/api/view")
        await _until(lambda: gathering.views.watchers == 1)

        monkeypatch.setattr("logpipeline_cli.console.pages.IDLE_S", -1.0)
        await gathering.views.publish(view())
        await _until(lambda: gathering.views.watchers == 0)


async def test_equal_questions_are_answered_from_one_drawing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rows of a view are made once for all pages that show the same."""
    drawn = []

    def counted(*args: Any, **options: Any) -> dict[str, Any]:
        drawn.append(options)
        return view_json(*args, **options)

    monkeypatch.setattr("logpipeline_cli.console.pages.view_json", counted)
    async with console(view()) as (app, gathering, _):
        for _ in range(10):
            await asked(app, "/api/view", {"table": "hosts"})
        assert len(drawn) == 1

        await gathering.views.publish(view())
        await asked(app, "/api/view", {"table": "hosts"})

        assert len(drawn) == 2


async def test_a_source_that_is_not_watched_is_no_failure() -> None:
    """An old address, or a made-up one."""
    async with console(view()) as (app, _, _):
        answer = await asked(app, "/api/source", {"id": "nothing"})

        assert (answer.status, "error" in answer.json()) == (404, True)
        lines = await asked(app, "/api/lines", {"host": "no host"})
        assert lines.status == 400


def test_a_source_with_any_name_has_an_address() -> None:
    """Its id is short and plain, whatever its path holds."""
    assert id_of("web2", HOSTILE).isalnum()
    assert id_of("a", "b/c") != id_of("a/b", "c")


@pytest.mark.parametrize(
    ("header", "name"),
    [("a:80", "a"), ("[::1]:80", "::1"), ("A.", "a"), ("", ""), ("[::1]", "::1")],
)
def test_a_host_header_is_read_without_its_port(header: str, name: str) -> None:
    """As browsers write it."""
    assert host_of(header) == name


class Timers:
    """Calls at times of a clock that a test sets forward."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._due: list[tuple[float, asyncio.Handle]] = []

    def call_later(self, after_s: float, call: Callable[[], object]) -> asyncio.Handle:
        """Have *call* called when *after_s* are over."""
        handle = asyncio.Handle(call, (), asyncio.get_running_loop())
        self._due.append((self._now_s + after_s, handle))
        return handle

    def advance(self, seconds: float) -> None:
        """Call what is due when so many seconds are over."""
        self._now_s += seconds
        for due_s, handle in self._due:
            if due_s <= self._now_s and not handle.cancelled():
                handle._run()
        self._due = [each for each in self._due if each[0] > self._now_s]


async def test_a_tail_ends_by_itself_where_pages_ask_for_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where it was asked for last, after the last question for the view."""
    running: list[LineTail] = []

    async def run(self: LineTail) -> None:
        running.append(self)
        try:
            await asyncio.Event().wait()
        finally:
            running.remove(self)

    monkeypatch.setattr(LineTail, "run", run)
    monkeypatch.setattr("logpipeline_cli.console.tails.IDLE_S", 0.01)
    async with console(view()) as (app, _, _):
        await asked(app, "/api/view")
        await asked(app, "/api/lines")
        await _until(lambda: running)
        await eventually(lambda: not running)


async def test_pages_with_one_wish_share_a_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are few tails, they end when no page asks, and late pages get the kept lines."""
    running: list[LineTail] = []
    timers = Timers()

    async def run(self: LineTail) -> None:
        running.append(self)
        self._show(Line("web1", "app", b"<b>one</b>\x1b"))
        try:
            await asyncio.Event().wait()
        finally:
            running.remove(self)

    monkeypatch.setattr(LineTail, "run", run)
    async with console(view()) as (_, gathering, _), asyncio.TaskGroup() as tasks:
        pipeline = gathering.target.pipeline
        tails = Tails(gathering.js, pipeline, tasks, timers.call_later)
        wishes = [Wish("web1", None, str(number)) for number in range(TAILS_MAX)]
        for wish in wishes * 3:
            tails.ask(wish, 0)
        await _until(lambda: len(running) == TAILS_MAX)
        with pytest.raises(TooMany):
            tails.ask(Wish(None, None, "one more"), 0)

        answer = tails.ask(wishes[0], 0)
        assert [line["text"] for line in answer["lines"]] == [r"<b>one</b>\x1b"]
        assert tails.ask(wishes[0], answer["next"])["lines"] == []
        again = tails.ask(wishes[0], 10**6)["lines"]
        assert [line["text"] for line in again] == [UNSEEN, r"<b>one</b>\x1b"]

        timers.advance(IDLE_S - 1)
        tails.ask(wishes[0], 0)
        timers.advance(IDLE_S - 1)
        await _until(lambda: len(running) == 1)
        timers.advance(1)
        await _until(lambda: not running)


async def test_a_page_that_did_not_ask_sees_that_lines_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where more came than are kept, and where the tail had ended meanwhile."""
    running: list[LineTail] = []
    timers = Timers()

    async def run(self: LineTail) -> None:
        running.append(self)
        await asyncio.Event().wait()

    monkeypatch.setattr(LineTail, "run", run)
    async with console(view()) as (_, gathering, _), asyncio.TaskGroup() as tasks:
        tails = Tails(gathering.js, gathering.target.pipeline, tasks, timers.call_later)
        wish = Wish("web1", None, "")

        def texts(after: int) -> tuple[list[str], int]:
            answer = tails.ask(wish, after)
            return [line["text"] for line in answer["lines"]], answer["next"]

        assert texts(0)[0] == []
        await _until(lambda: running)
        running[-1]._show(Line("web1", "app", b"first"))
        shown, early = texts(0)
        assert shown == ["first"]
        for number in range(KEPT_MAX + 1):
            running[-1]._show(Line("web1", "app", b"%d" % number))
        assert texts(early)[0][:2] == [UNSEEN, "1"]

        timers.advance(IDLE_S)
        _, late = texts(0)
        await _until(lambda: len(running) == 2)
        for text in (b"a", b"b", b"c"):
            running[-1]._show(Line("web1", "app", text))
        assert texts(early)[0] == [UNSEEN, "a", "b", "c"]
        assert texts(late)[0] == ["a", "b", "c"]
        tails.close()


async def _until(is_so: Any) -> None:
    """Let other tasks run until *is_so*."""
    for _ in range(1000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never became so")


def test_without_its_packages_the_console_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, as with the other optional packages."""

    def missing(_: str) -> None:
        raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")

    monkeypatch.setattr("importlib.import_module", missing)

    assert main(["console"]) == 1
    message = capsys.readouterr().err
    assert message == "logpipeline: uvicorn is not installed: pip install 'logpipeline[console]'\n"


def test_a_page_that_is_served_again_keeps_its_address_and_token(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`kubectl logpipeline console` logs in anew every six hours, and open pages ask on."""
    served = []

    async def serve(_: Target, *, port: int, token: str, started: Any, **more: Any) -> None:
        served.append((port, token))
        started(f"http://127.0.0.1:{port or 4711}/#token={token}")

    monkeypatch.setattr("logpipeline_cli.commands.console.serve", serve)
    target = Target(parse(RESOURCE), Layout(Path("/nonexistent")), NatsOptions(), None)
    page = Page(argparse.Namespace(http="127.0.0.1:0", host_name=None, token_file=None))
    for _ in range(3):
        page.show(target, span_s=0.0)

    token = served[0][1]
    assert len(token) >= 2 * 16
    assert served == [(0, token), (4711, token), (4711, token)]
    said = capsys.readouterr().out
    assert said == f"The console of prod: http://127.0.0.1:4711/#token={token}\n"


def test_a_token_of_ones_own_is_read_from_a_file(tmp_path: Path) -> None:
    """With the line's end that an editor leaves."""
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")

    assert token_in(file) == "0123456789abcdef"


@pytest.mark.parametrize("text", ["", "short", "0123456789 abcdef", "ä" * 20, "a" * 257, None])
def test_what_is_no_token_is_refused_and_not_quoted(tmp_path: Path, text: str | None) -> None:
    """A weak one as well: the message says how to make another."""
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)

    with pytest.raises(UsageError) as refused:
        token_in(file)

    assert str(file) in str(refused.value)
    assert not text or text not in str(refused.value).replace(str(file), "")
