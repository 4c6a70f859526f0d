"""The screen of `logpipeline top`: what it draws, and what its keys do."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from components.watched_status import collector, owned, partition, shipper, source, status, watched
from logpipeline.layout import Layout
from logpipeline.nats.connection import NatsOptions
from logpipeline.nats.jetstream import JetStream
from logpipeline.records import Committed, Progress
from logpipeline.spec import parse
from logpipeline_cli.following import Line
from logpipeline_cli.main import main
from logpipeline_cli.target import Target
from logpipeline_cli.watching.columns import PARTITIONS, SOURCES, Tone, count_text, state_text
from logpipeline_cli.watching.gathering import Gathering
from logpipeline_cli.watching.life import life_of
from logpipeline_cli.watching.rows import View
from logpipeline_cli.watching.screen import TailScreen, TopApp, life_text, shortened

HOSTILE = "/var/log/\x1b]0;mine\x07[bold]<script>.log"
RESOURCE = {
    "apiVersion": "logpipeline.dev/v1alpha1",
    "kind": "LogPipeline",
    "metadata": {"name": "prod"},
    "spec": {"partitions": 4},
}


def view(**fields: Any) -> View:
    """Return a view of three sources, of which one misses bytes."""
    rows = [
        source(path="/var/log/busy.log", acked_bytes=5000, lines=50),
        source(path="/var/log/late.log", backlog_bytes=2048, waiting_s=90.0),
        source("web2", HOSTILE, missing_bytes=7),
    ]
    missing = [{"host": "web2", "source": HOSTILE, "bytes": 7, "toldBy": "shipper"}]
    found: dict[str, Any] = {
        "shippers": [shipper(*rows)],
        "missing": missing,
        "partitions": [partition(0), partition(1, owner="")],
        "collectors": [collector(owned(0), owned(1))],
    }
    return watched(status(**found | fields))


@asynccontextmanager
async def screen(first: View) -> AsyncIterator[tuple[Pilot[None], Gathering]]:
    """Run the program without a terminal, with *first* shown."""
    target = Target(parse(RESOURCE), Layout(Path("/nonexistent")), NatsOptions(), None)
    gathering = Gathering(target, cast(JetStream, None))
    app = TopApp(gathering)
    async with app.run_test(size=(180, 40)) as pilot:
        await gathering.views.publish(first)
        await pilot.pause()
        yield pilot, gathering


def text(pilot: Pilot[None], name: str) -> str:
    """Return what the widget *name* shows."""
    return str(pilot.app.screen.query_one(f"#{name}", Static).content)


def column(pilot: Pilot[None], title: str) -> list[str]:
    """Return the cells below *title*."""
    table = pilot.app.screen.query_one(DataTable)
    titles = [str(each.label).removesuffix(" ▼") for each in table.ordered_columns]
    at = titles.index(title)
    return [str(table.get_row_at(row)[at]) for row in range(table.row_count)]


async def test_the_worst_source_is_on_top() -> None:
    """One that misses bytes, then the one that waits, then the others."""
    async with screen(view()) as (pilot, _):
        assert column(pilot, "SOURCE")[1:] == ["/var/log/late.log", "/var/log/busy.log"]
        assert column(pilot, "MISSING") == ["7 B", "", ""]
        assert column(pilot, "WAITING") == ["", "90.0 s", ""]
        assert "default/prod on nats://127.0.0.1:4222" in text(pilot, "head")
        assert "2.0 KiB waiting" in text(pilot, "stages")
        assert "no collector owns partition 1: start one" in text(pilot, "problems")


async def test_a_name_of_a_stranger_acts_neither_on_the_terminal_nor_as_markup() -> None:
    """Control characters are escaped, and brackets are shown as they are."""
    async with screen(view()) as (pilot, _):
        assert column(pilot, "SOURCE")[0] == r"/var/log/\x1b]0;mine\x07[bold]<script>.log"


def test_a_long_name_leaves_room_for_numbers() -> None:
    """Its beginning and its end are shown; the page of the source has all of it."""
    path = f"/var/log/{'a' * 100}/app.log"
    shown = shortened(path)

    assert len(shown) == 48
    assert shown.startswith("/var/log/a")
    assert shown.endswith("a/app.log")


def test_what_is_wrong_or_late_stands_out() -> None:
    """Missing bytes, then bytes that wait for long; what is well does not."""
    tones = {row.source: SOURCES.tone(row) for row in view().sources}

    assert tones == {
        "/var/log/busy.log": Tone.PLAIN,
        "/var/log/late.log": Tone.LATE,
        HOSTILE: Tone.BAD,
    }
    assert {row.state: PARTITIONS.tone(row) for row in view().partitions} == {
        "": Tone.PLAIN,
        "no owner": Tone.BAD,
    }


async def test_s_sorts_by_the_next_column() -> None:
    """First by what is worst, then by each column, which is marked."""
    async with screen(view()) as (pilot, _):
        await pilot.press("s", "s")

        assert column(pilot, "SOURCE") == sorted(column(pilot, "SOURCE"))
        assert "by source" in text(pilot, "tabs")


async def test_a_slash_finds_rows_and_escape_shows_all_again() -> None:
    """Each key that is typed narrows what is shown, whatever the case."""
    async with screen(view()) as (pilot, _):
        await pilot.press("slash", *"LATE")
        assert column(pilot, "SOURCE") == ["/var/log/late.log"]

        await pilot.press("escape")

        assert len(column(pilot, "SOURCE")) == 3
        assert not pilot.app.screen.query_one(Input).display


async def test_keys_choose_the_table() -> None:
    """Numbers, and tab for the next one."""
    async with screen(view()) as (pilot, _):
        await pilot.press("4")
        assert column(pilot, "STATE") == ["no owner", "fine"]

        await pilot.press("tab")

        assert column(pilot, "COLLECTOR") == ["collector-0"]


async def test_what_is_missing_says_who_says_so() -> None:
    """A table of its own, and the hosts with their sums."""
    async with screen(view()) as (pilot, _):
        await pilot.press("3")
        assert column(pilot, "WHAT") == ["gone before it was read"]
        assert column(pilot, "SAID BY") == ["a shipper"]

        await pilot.press("2")

        assert column(pilot, "HOST") == ["web2", "web1"]
        assert column(pilot, "SOURCES") == ["1", "2"]


async def test_space_keeps_what_is_shown_and_goes_on() -> None:
    """While it is paused nothing moves, and the head says so."""
    other = replace(view(), sources=())
    async with screen(view()) as (pilot, gathering):
        await pilot.press("space")
        await gathering.views.publish(other)
        await pilot.pause()
        assert len(column(pilot, "SOURCE")) == 3
        assert "PAUSED" in text(pilot, "head")

        await pilot.press("space")
        await gathering.views.publish(other)
        await pilot.pause()

        assert column(pilot, "SOURCE") == []


async def test_the_cursor_stays_at_its_source_when_rows_move() -> None:
    """Enter opens what was looked at, and not what came to its place."""
    before = view()
    turned = replace(before, sources=tuple(reversed(before.sources)))
    async with screen(before) as (pilot, gathering):
        table = pilot.app.screen.query_one(DataTable)
        assert table.cursor_row == 0

        await gathering.views.publish(turned)
        await pilot.pause()

        assert table.cursor_row == 2


async def test_a_server_that_is_away_is_named_and_the_last_rows_stay() -> None:
    """A person sees that what is shown is old."""
    async with screen(view()) as (pilot, gathering):
        await gathering.views.publish(replace(view(), trouble="the server does not answer: gone"))
        await pilot.pause()

        assert "the server does not answer: gone" in text(pilot, "head")
        assert len(column(pilot, "SOURCE")) == 3


def test_the_life_of_a_source_has_its_generations_and_holes() -> None:
    """The newest first; a report on the newest one names the holes of all."""
    known = (
        Committed("/var/log/late.log", "g1", 500),
        Committed("/other", "x", 1),
        Committed("/var/log/late.log", "g2", 90, holes=(("g1", 10, 30), ("g2", 40, 50))),
    )
    losses = [
        {
            "host": "web1",
            "source": "/var/log/late.log",
            "generation": "g0",
            "start": 0,
            "end": 9,
            "bytes": 9,
            "cause": "removed",
            "acknowledged": False,
            "time_ns": 1,
        }
    ]
    answer = Progress("main", 0, 1, 0, known)

    life = life_of(
        view(lost=losses), [answer], host="web1", source="/var/log/late.log", partitions=4
    )

    assert [each.name for each in life.generations] == ["g2", "g1"]
    assert [each.holes for each in life.generations] == [((40, 50),), ((10, 30),)]
    assert [each.shipped for each in life.generations] == [None, 100]
    shown = life_text(life).plain
    assert "hole 10 to 30: 20 B" in shown
    assert "lost 9 B of g0, 0 to 9: removed" in shown


def test_a_source_without_an_answer_says_why() -> None:
    """A generation that is read now is shown, though no collector answers."""
    life = life_of(view(), [], host="web1", source="/var/log/late.log", partitions=4)

    assert [(each.name, each.shipped) for each in life.generations] == [("g1", 100)]
    assert "No collector answered" in life_text(life).plain


def test_rows_are_found_by_names_and_not_by_numbers() -> None:
    """A filter of digits does not match sizes that change each second."""
    assert SOURCES.chosen(view(), text="90.0") == []
    assert [row.host for row in SOURCES.chosen(view(), text="web2")] == ["web2"]
    assert [row.partition for row in PARTITIONS.chosen(view(), text="no owner")] == [1]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, ""), (0.5, "0.5"), (7, "7"), (950.4, "950"), (12_300, "12.3 k"), (4.5e9, "4.5 G")],
)
def test_numbers_are_short(value: float, shown: str) -> None:
    """A column stays narrow, whatever the load."""
    assert count_text(value) == shown


def test_a_silent_component_is_not_called_fine() -> None:
    """Its last answer says nothing of now."""
    assert state_text("", 0.0) == "fine"
    assert state_text("", 9.0) == "no answer for 9.0 s"


def test_without_a_terminal_top_names_what_to_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a pipe, `status -w` does it."""
    resource = tmp_path / "prod.yaml"
    resource.write_text(
        "apiVersion: logpipeline.dev/v1alpha1\nkind: LogPipeline\nmetadata: {name: prod}\n"
    )

    assert main(["top", "-f", str(resource), "--nats", "nats://127.0.0.1:1"]) == 1
    assert "use `status -w`" in capsys.readouterr().err


def test_without_its_packages_top_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, as with the other optional packages."""

    def missing(_: str) -> None:
        raise ModuleNotFoundError("No module named 'textual'", name="textual")

    monkeypatch.setattr("importlib.import_module", missing)

    assert main(["top"]) == 1
    message = capsys.readouterr().err
    assert message == "logpipeline: textual is not installed: pip install 'logpipeline[top]'\n"


class Quiet(TailScreen):
    """A screen that follows nothing: its test says which lines come."""

    def _follow(self, pattern: re.Pattern[bytes] | None) -> None:
        pass


async def test_lines_that_pass_while_they_are_paused_are_counted() -> None:
    """Going on says how many are not shown."""
    async with App[None]().run_test() as pilot:
        screen = Quiet(cast(Gathering, None), None, None)
        await pilot.app.push_screen(screen)
        await pilot.press("space")
        for _ in range(3):
            screen._show(Line("web1", "app", b"x"))
        await pilot.press("space")
        await pilot.pause()

        assert [line.text for line in screen._lines.lines] == ["… 3 lines passed meanwhile"]


async def test_a_line_that_comes_while_its_screen_goes_is_no_error() -> None:
    """Its widgets are gone before what follows the stream has ended."""
    async with App[None]().run_test() as pilot:
        screen = Quiet(cast(Gathering, None), None, None)
        await pilot.app.push_screen(screen)
        await pilot.pause()
        await pilot.app.pop_screen()
        await pilot.pause()

        screen._skipped(1)

        assert not screen.is_attached
