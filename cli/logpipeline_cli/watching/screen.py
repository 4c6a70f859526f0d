"""The screen of `logpipeline top`: draws views, and takes keys. What is shown is decided in
`columns`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, RichLog, Static

from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import ApiError
from logpipeline_cli.following import Line
from logpipeline_cli.output import bytes_text, escaped, escaped_name, seconds_text
from logpipeline_cli.time_arguments import time_text
from logpipeline_cli.watching.columns import (
    ALL,
    ROWS_MAX,
    SOURCES,
    WORST,
    Table,
    Tone,
    count_text,
    rates_text,
    silence_text,
    waiting_text,
)
from logpipeline_cli.watching.gathering import Gathering
from logpipeline_cli.watching.life import Life, ask_collectors, life_of
from logpipeline_cli.watching.line_tail import LineTail, skipped_text
from logpipeline_cli.watching.rows import SourceRow, View
from logpipeline_cli.watching.series import sparkline

PROBLEMS_SHOWN_MAX = 4
STAGE_SPARK_WIDTH = 10
NAME_CHARS_MAX = 48
STYLES = {Tone.PLAIN: "", Tone.LATE: "yellow", Tone.BAD: "bold red"}
TAIL_LINES_MAX = 2000
LIFE_EVERY_S = 2.0


def head(view: View, *, is_paused: bool) -> Text:
    """Return the head line: the pipeline, and whether the view is current."""
    text = Text(no_wrap=True)
    text.append(f"{view.namespace}/{view.name}", style="bold")
    if view.server:
        text.append(f" on {escaped_name(view.server)}")
    if view.at_s:
        text.append(f", {time_text(int(view.at_s * 1e9))}")
    if is_paused:
        text.append("  PAUSED", style="bold reverse")
    if view.trouble:
        text.append(f"  {escaped_name(view.trouble)}", style="bold red")
    return text


def stages(view: View) -> Text:
    """Return the way of the lines, one stage in a row."""
    text = Text(no_wrap=True)
    for number, stage in enumerate(view.stages):
        if number:
            text.append("\n")
        text.append(f"{'→ ' * bool(number):2}{stage.name:<10}", style="bold")
        text.append(f" {count_text(stage.count) or '0':>7}  ")
        text.append(f"{sparkline(stage.rate.history, STAGE_SPARK_WIDTH)}  ", style="green")
        text.append(f"{rates_text(stage):<32}")
        text.append(waiting_text(stage), style="yellow")
    return text


def problems(view: View) -> Text:
    """Return the first problems, each in a row."""
    shown = [escaped_name(each) for each in view.problems[:PROBLEMS_SHOWN_MAX]]
    if len(view.problems) > PROBLEMS_SHOWN_MAX:
        shown.append(f"and {len(view.problems) - PROBLEMS_SHOWN_MAX} more: logpipeline status")
    if not shown and view.at_s:
        return Text("no problems", style="green")
    return Text("\n".join(shown), style="red", no_wrap=True)


def life_text(life: Life) -> Text:
    """Return the life of one source as text."""
    text = Text()
    text.append(f"{escaped_name(life.host)} {escaped_name(life.source)}\n", style="bold")
    text.append(f"partition {life.partition}")
    if (row := life.row) is not None:
        text.append(
            f", shipped by {escaped_name(row.shipper) or 'none now'}: "
            f"{count_text(row.rate.lines_s) or '0'} lines/s, {bytes_text(row.rate.bytes_s)}/s\n"
            f"not shipped {bytes_text(row.backlog_bytes)}, the oldest for "
            f"{seconds_text(row.waiting_s)}; on the way {bytes_text(row.on_the_way_bytes)}; "
            f"missing {bytes_text(row.missing_bytes)}; lost {bytes_text(row.lost_bytes)}"
        )
        if silence := silence_text(row):
            text.append(f"\n{silence}", style=STYLES[Tone.BAD])
    text.append("\n\n")
    if not life.answered:
        text.append(
            "No collector answered: none owns the partition, or this login may only read.\n",
            style="yellow",
        )
    for each in life.generations:
        text.append(f"generation {escaped_name(each.name)}", style="bold")
        text.append(f"  {escaped_name(each.group)}\n" if each.group else "\n")
        if each.shipped is not None:
            text.append(f"  shipped up to {each.shipped}\n")
        text.append(f"  collected {each.begun} to {each.collected}\n")
        for start, end in each.holes:
            text.append(f"  hole {start} to {end}: {bytes_text(end - start)}\n", style="red")
    for loss in life.losses:
        text.append(
            f"lost {bytes_text(loss['bytes'])} of {escaped_name(str(loss['generation']))}, "
            f"{loss['start']} to {loss['end']}: {escaped_name(str(loss['cause']))}, since "
            f"{time_text(loss['time_ns'])}\n",
            style="red",
        )
    return text


class LifeScreen(Screen[None]):
    """The page of one source."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "app.pop_screen", "back"),
        Binding("t", "tail", "tail"),
    ]

    def __init__(self, gathering: Gathering, host: str, source: str) -> None:
        super().__init__()
        self._gathering = gathering
        self._host = host
        self._source = source

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        yield Static(id="life", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to ask."""
        self.run_worker(self._refresh())

    def action_tail(self) -> None:
        """Show the lines of the source as they pass."""
        self.app.push_screen(TailScreen(self._gathering, self._host, self._source))

    async def _refresh(self) -> None:
        pipeline = self._gathering.target.pipeline
        shown = self.query_one("#life", Static)
        async for view in self._gathering.views.follow():
            try:
                answers = await ask_collectors(self._gathering.js.connection, pipeline, self._host)
            except (NotSent, OutcomeUnknown, ApiError) as error:
                shown.update(Text(f"the server does not answer: {error}", style="red"))
                continue
            life = life_of(
                view,
                answers,
                host=self._host,
                source=self._source,
                partitions=pipeline.spec.partitions,
            )
            shown.update(life_text(life))
            await asyncio.sleep(LIFE_EVERY_S)


class TailScreen(Screen[None]):
    """Lines as they pass, of one source, or of all."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.pop_screen", "back"),
        Binding("slash", "filter", "filter (a regular expression)", key_display="/"),
        Binding("space", "pause", "pause"),
    ]

    def __init__(self, gathering: Gathering, host: str | None, source: str | None) -> None:
        super().__init__()
        self._gathering = gathering
        self._host = host
        self._source = source
        self._is_paused = False
        self._passed = 0
        # Kept, not looked up: lines still come for a moment while the screen is taken away.
        self._lines = RichLog(id="lines", max_lines=TAIL_LINES_MAX, wrap=True)

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        of = f"{self._host} {self._source}" if self._host else "all hosts"
        yield Static(Text(f"lines of {escaped_name(of)}", style="bold"), markup=False)
        yield Input(placeholder="only lines that match this regular expression", id="grep")
        yield self._lines
        yield Footer()

    def on_mount(self) -> None:
        """Begin to follow."""
        self.query_one("#grep", Input).display = False
        self._lines.focus()
        self._follow(None)

    def action_filter(self) -> None:
        """Ask for a pattern."""
        field = self.query_one("#grep", Input)
        field.display = True
        field.focus()

    def action_pause(self) -> None:
        """Show no further lines, or go on."""
        self._is_paused = not self._is_paused
        if passed := self._passed:
            self._passed = 0
            self._write(Text(f"… {passed} lines passed meanwhile", style="yellow"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Follow with another pattern."""
        try:
            pattern = re.compile(event.value.encode("utf-8", "surrogateescape"))
        except re.error as error:
            self.notify(f"{error}", severity="error", markup=False)
            return
        event.input.display = bool(event.value)
        self._lines.focus()
        self._follow(pattern if event.value else None)

    def _follow(self, pattern: re.Pattern[bytes] | None) -> None:
        tail = LineTail(
            self._gathering.js,
            self._gathering.target.pipeline,
            host=self._host,
            source=self._source,
            pattern=pattern,
            show=self._show,
            skipped=self._skipped,
        )
        self.run_worker(tail.run(), exclusive=True)

    def _show(self, line: Line) -> None:
        text = Text()
        if self._source is None and not line.is_damaged:
            text.append(f"{escaped_name(line.host)} {escaped_name(line.label)} ", style="cyan")
        text.append(escaped(line.text), style="red" if line.is_damaged else "")
        self._write(text)

    def _skipped(self, messages: int) -> None:
        self._write(Text(skipped_text(messages), style="yellow"))

    def _write(self, text: Text) -> None:
        if self._is_paused:
            self._passed += 1
        else:
            self._lines.write(text)


class RowTable(DataTable[Text]):
    """Rows of which one is under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "one source")]


class TopScreen(Screen[None]):
    """All of a pipeline at a glance; keys choose what is shown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("s", "sort", "sort"),
        Binding("space", "pause", "pause"),
        Binding("t", "tail", "tail"),
        Binding("tab", "next(1)", "next table"),
        Binding("shift+tab", "next(-1)", "former table", show=False),
        *(Binding(str(at), f"table({at - 1})", "", show=False) for at in range(1, len(ALL) + 1)),
        Binding("escape", "clear", "", show=False),
        Binding("q", "app.quit", "quit"),
    ]

    def __init__(self, gathering: Gathering) -> None:
        super().__init__()
        self._gathering = gathering
        self._table: Table = SOURCES
        self._by = WORST
        self._filter = ""
        self._is_paused = False
        self._view: View | None = None
        self._shown: Sequence[Any] = ()
        self._columns: tuple[Table, str] | None = None

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        yield Static(id="head", markup=False)
        yield Static(id="stages", markup=False)
        yield Static(id="problems", markup=False)
        yield Static(id="tabs", markup=False)
        yield Input(placeholder="only rows with this text", id="filter")
        yield RowTable(id="table", cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to watch."""
        self.query_one("#filter", Input).display = False
        self.query_one("#table").focus()
        self.run_worker(self._follow())

    async def _follow(self) -> None:
        async for view in self._gathering.views.follow():
            if not self._is_paused:
                self._view = view
                self._draw()

    def action_filter(self) -> None:
        """Ask for a text that rows must hold."""
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def action_clear(self) -> None:
        """Show all rows again."""
        field = self.query_one("#filter", Input)
        field.value = ""
        field.display = False
        self.query_one("#table").focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show the rows that hold what is typed."""
        self._filter = event.value
        self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go on with the rows."""
        event.input.display = bool(event.value)
        self.query_one("#table").focus()

    def action_sort(self) -> None:
        """Sort by the next column, and after the last one by what is worst."""
        titles = [WORST, *(column.title for column in self._table.columns)]
        self._by = titles[(titles.index(self._by) + 1) % len(titles)]
        self._draw()

    def action_pause(self) -> None:
        """Keep what is shown, or go on."""
        self._is_paused = not self._is_paused
        self._draw()

    def action_next(self, by: int) -> None:
        """Show the next table."""
        self.action_table((ALL.index(self._table) + by) % len(ALL))

    def action_table(self, number: int) -> None:
        """Show the table with this number."""
        self._table, self._by = ALL[number], WORST
        self._draw()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the page of the source that was chosen."""
        if isinstance(row := self._at(event.cursor_row), SourceRow):
            self.app.push_screen(LifeScreen(self._gathering, row.host, row.source))

    def action_tail(self) -> None:
        """Show lines as they pass: of the source under the cursor, or of all."""
        row = self._at(self.query_one(RowTable).cursor_row)
        if isinstance(row, SourceRow):
            self.app.push_screen(TailScreen(self._gathering, row.host, row.source))
        else:
            self.app.push_screen(TailScreen(self._gathering, None, None))

    def _at(self, number: int) -> Any:
        return self._shown[number] if number < len(self._shown) else None

    def _draw(self) -> None:
        view = self._view
        if view is None:
            return
        self.query_one("#head", Static).update(head(view, is_paused=self._is_paused))
        self.query_one("#stages", Static).update(stages(view))
        self.query_one("#problems", Static).update(problems(view))
        rows = self._table.chosen(view, text=self._filter, by=self._by)
        self.query_one("#tabs", Static).update(self._tabs(view, len(rows)))
        self._fill(rows[:ROWS_MAX])

    def _tabs(self, view: View, found: int) -> Text:
        text = Text(no_wrap=True)
        for number, table in enumerate(ALL, 1):
            style = "bold reverse" if table is self._table else "dim"
            text.append(f" {number} {table.name} {table.count(view)} ", style=style)
        text.append(f"  by {self._by.lower() or 'what is worst'}")
        if found > ROWS_MAX:
            text.append(f"; the first {ROWS_MAX} of {found}: / finds others")
        return text

    def _fill(self, rows: Sequence[Any]) -> None:
        """Draw *rows*, and keep the cursor at its row, wherever that is now."""
        table, chosen = self.query_one(RowTable), self._table
        is_same = self._columns is not None and self._columns[0] is chosen
        under = self._at(table.cursor_row) if is_same else None
        before, x, y = table.cursor_row if is_same else 0, table.scroll_x, table.scroll_y
        self._shown = rows
        if self._columns != (chosen, self._by):
            self._columns = chosen, self._by
            table.clear(columns=True)
            for column in chosen.columns:
                title = f"{column.title} ▼" if column.title == self._by else column.title
                table.add_column(_aligned(title, is_right=column.is_number))
        else:
            table.clear()
        for row in rows:
            cells = zip(chosen.columns, chosen.cells(row), strict=True)
            table.add_row(
                *(
                    _aligned(shortened(text), is_right=each.is_number, tone=each.tone(row))
                    for each, text in cells
                )
            )
        if rows:
            keys = [chosen.key(row) for row in rows]
            key = chosen.key(under) if under is not None else None
            at = keys.index(key) if key in keys else min(before, len(rows) - 1)
            table.move_cursor(row=at, scroll=False)
            if is_same:
                table.scroll_to(x, y, animate=False)


def shortened(text: str) -> str:
    """Return a name that leaves room for the other columns: its beginning and its end."""
    if len(text) <= NAME_CHARS_MAX:
        return text
    kept = NAME_CHARS_MAX - 1
    return f"{text[: kept // 3]}…{text[kept // 3 - kept :]}"


def _aligned(text: str, *, is_right: bool, tone: Tone = Tone.PLAIN) -> Text:
    justify: Literal["left", "right"] = "right" if is_right else "left"
    return Text(text, style=STYLES[tone], justify=justify, no_wrap=True)


class TopApp(App[None]):
    """The program of `logpipeline top`."""

    TITLE = "logpipeline top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: 1; background: $panel; padding: 0 1; }
    #stages, #problems, #tabs { height: auto; padding: 0 1; }
    #table, #lines { height: 1fr; }
    #life { height: 1fr; overflow-y: auto; padding: 1; }
    """

    def __init__(self, gathering: Gathering) -> None:
        super().__init__()
        self._gathering = gathering

    def on_mount(self) -> None:
        """Show the first screen."""
        self.push_screen(TopScreen(self._gathering))
