"""The tables of a view for people: which columns each has, how cells read, and by what rows are
sorted and found. Pure text; a terminal or a page draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from logpipeline_cli.output import bytes_text, escaped_name, seconds_text
from logpipeline_cli.time_arguments import time_text
from logpipeline_cli.watching.rows import SourceRow, Stage, View
from logpipeline_cli.watching.series import sparkline

SPARK_WIDTH = 12
# A terminal shows no more at once; a filter finds the others.
ROWS_MAX = 200
PARTITIONS_LISTED_MAX = 8

# A line that waits for so long is late. A burst is over by then.
LATE_S = 30.0
FINE = "fine"

Row = Any
# The order of rows: the worst first.
WORST = ""


class Tone(StrEnum):
    """How a cell stands out: it is as it should be, it is late, or something is wrong."""

    PLAIN = ""
    LATE = "late"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its *title*, the text of a cell, and the *value* by which rows are sorted."""

    title: str
    text: Callable[[Row], str]
    value: Callable[[Row], Any]
    is_number: bool = True
    # What a page draws as a line in place of the text.
    history: Callable[[Row], Sequence[float]] | None = None
    # What its value means for a person who looks.
    tone: Callable[[Row], Tone] = lambda _: Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a view. *name* is its title; *key* names a row for good; *total* is how many
    rows there are, where not all are watched.
    """

    name: str
    rows: Callable[[View], Sequence[Row]]
    key: Callable[[Row], tuple[object, ...]]
    columns: tuple[Column, ...]
    total: Callable[[View], int] = lambda _: 0

    def count(self, view: View) -> str:
        """Return how many rows there are: ``12``, or ``2000 of 8000`` where not all are watched."""
        rows, total = len(self.rows(view)), self.total(view)
        return f"{rows} of {total}" if total > rows else str(rows)

    def chosen(self, view: View, *, text: str = "", by: str = WORST) -> list[Row]:
        """Return the rows of which a cell holds *text*, whatever its case, sorted *by* the column
        of that title: numbers from the largest on, names from A on.
        """
        rows = [row for row in self.rows(view) if self._holds(row, text.casefold())]
        column = next((each for each in self.columns if each.title == by), None)
        if column is not None:
            rows.sort(key=column.value, reverse=column.is_number)
        return rows

    def cells(self, row: Row) -> list[str]:
        """Return the texts of *row*, safe on a terminal."""
        return [escaped_name(column.text(row)) for column in self.columns]

    def tone(self, row: Row) -> Tone:
        """Return the worst tone of the cells of *row*."""
        tones = {column.tone(row) for column in self.columns}
        return next((tone for tone in (Tone.BAD, Tone.LATE) if tone in tones), Tone.PLAIN)

    def _holds(self, row: Row, text: str) -> bool:
        names = (column.text(row) for column in self.columns if not column.is_number)
        return not text or any(text in name.casefold() for name in names)


def _name(title: str, text: Callable[[Row], str]) -> Column:
    return Column(title, text, text, is_number=False)


def _count(title: str, value: Callable[[Row], float]) -> Column:
    return Column(title, lambda row: count_text(value(row)), value)


def _bytes(title: str, value: Callable[[Row], float]) -> Column:
    return Column(title, lambda row: _or_blank(value(row), bytes_text), value)


def _seconds(title: str, value: Callable[[Row], float]) -> Column:
    return Column(
        title,
        lambda row: _or_blank(value(row), seconds_text),
        value,
        tone=lambda row: Tone.LATE if value(row) > LATE_S else Tone.PLAIN,
    )


def _waiting() -> Column:
    """Return how long the oldest byte has waited at most: bad where its shipper is silent."""
    column = _seconds("WAITING", lambda row: row.waiting_s)
    return replace(column, tone=lambda row: Tone.BAD if row.silent_s else column.tone(row))


def _gone_bytes(title: str, value: Callable[[Row], float]) -> Column:
    return Column(
        title,
        lambda row: _or_blank(value(row), bytes_text),
        value,
        tone=lambda row: Tone.BAD if value(row) else Tone.PLAIN,
    )


def _state(text: Callable[[Row], str]) -> Column:
    return Column(
        "STATE",
        text,
        text,
        is_number=False,
        tone=lambda row: Tone.PLAIN if text(row) == FINE else Tone.BAD,
    )


def _spark(history: Callable[[Row], Sequence[float]]) -> Column:
    return Column(
        "LAST MINUTE",
        lambda row: sparkline(history(row), SPARK_WIDTH),
        lambda row: sum(history(row)),
        history=history,
    )


def _or_blank(value: float, text: Callable[[float], str]) -> str:
    """Return a number as *text* writes it, and an empty text for zero."""
    return text(value) if value else ""


def count_text(value: float) -> str:
    """Return a number as people read it: ``950``, ``12.3 k``, ``4.5 M``; a blank for 0."""
    if not value:
        return ""
    if value < 10 and value != int(value):
        return f"{value:.1f}"
    for unit in ("", " k", " M"):
        if value < 1000:
            return f"{value:.1f}{unit}" if unit else f"{value:.0f}"
        value /= 1000
    return f"{value:.1f} G"


def state_text(problem: str, silent_s: float) -> str:
    """Return the state of a component: its problem, or that it does not answer."""
    return f"no answer for {seconds_text(silent_s)}" if silent_s else problem or FINE


def silence_text(row: SourceRow) -> str:
    """Return that the shipper of a source does not answer; empty where it does."""
    if not row.silent_s:
        return ""
    silence = f"its shipper has not answered for {seconds_text(row.silent_s)}"
    return f"{silence}: what it ships is as it said then"


def rates_text(stage: Stage) -> str:
    """Return what passes a stage: ``1.2 MiB/s, 950 lines/s``."""
    parts = [f"{bytes_text(stage.rate.bytes_s)}/s"] if stage.rate.bytes_s else []
    if stage.rate.lines_s:
        parts.append(f"{count_text(stage.rate.lines_s)} lines/s")
    if stage.messages_s:
        parts.append(f"{count_text(stage.messages_s)} messages/s")
    return ", ".join(parts) or "idle"


def waiting_text(stage: Stage) -> str:
    """Return what waits at a stage: ``2.0 KiB waiting for 3.0 s``; empty where nothing does."""
    parts = [f"{bytes_text(stage.waiting_bytes)} waiting"] if stage.waiting_bytes else []
    if stage.waiting_s:
        parts.append(f"for {seconds_text(stage.waiting_s)}")
    return " ".join(parts)


def _partitions_text(numbers: Iterable[int]) -> str:
    listed = sorted(numbers)
    shown = " ".join(map(str, listed[:PARTITIONS_LISTED_MAX]))
    return shown + (f" … ({len(listed)})" if len(listed) > PARTITIONS_LISTED_MAX else "")


SOURCES = Table(
    "Sources",
    lambda view: view.sources,
    lambda row: (row.shipper, row.host, row.source),
    (
        _name("HOST", lambda row: row.host),
        _name("SOURCE", lambda row: row.source),
        _count("LINES/S", lambda row: row.rate.lines_s),
        _bytes("BYTES/S", lambda row: row.rate.bytes_s),
        _spark(lambda row: row.rate.history),
        _waiting(),
        _bytes("UNSHIPPED", lambda row: row.backlog_bytes),
        _bytes("ON THE WAY", lambda row: row.on_the_way_bytes),
        _gone_bytes("MISSING", lambda row: row.missing_bytes),
        _gone_bytes("LOST", lambda row: row.lost_bytes),
        _name("SHIPPER", lambda row: row.shipper or "none"),
        Column("PARTITION", lambda row: str(row.partition), lambda row: -row.partition),
    ),
    lambda view: view.sources_total,
)

HOSTS = Table(
    "Hosts",
    lambda view: view.hosts,
    lambda row: (row.host,),
    (
        _name("HOST", lambda row: row.host),
        _count("SOURCES", lambda row: row.sources),
        _count("LINES/S", lambda row: row.rate.lines_s),
        _bytes("BYTES/S", lambda row: row.rate.bytes_s),
        _spark(lambda row: row.rate.history),
        _waiting(),
        _bytes("UNSHIPPED", lambda row: row.backlog_bytes),
        _bytes("ON THE WAY", lambda row: row.on_the_way_bytes),
        _gone_bytes("MISSING", lambda row: row.missing_bytes),
        _gone_bytes("LOST", lambda row: row.lost_bytes),
        Column("PARTITION", lambda row: str(row.partition), lambda row: -row.partition),
    ),
    lambda view: view.hosts_total,
)

MISSING = Table(
    "Missing",
    lambda view: view.missing,
    lambda row: (
        *(row.host, row.source, row.what, row.generation, row.start),
        *(row.group, row.partition),
    ),
    (
        _name("HOST", lambda row: row.host),
        _name("SOURCE", lambda row: row.source),
        _gone_bytes("BYTES", lambda row: row.bytes),
        _name("WHAT", lambda row: row.what),
        _name("SAID BY", lambda row: row.by),
        _name("SINCE", lambda row: time_text(row.since_ns) if row.since_ns else ""),
    ),
)

PARTITIONS = Table(
    "Partitions",
    lambda view: view.partitions,
    lambda row: (row.partition,),
    (
        Column("PARTITION", lambda row: str(row.partition), lambda row: -row.partition),
        _name("OWNER", lambda row: row.owner or "none"),
        _state(lambda row: row.state or FINE),
        _count("MESSAGES/S", lambda row: row.stored_s),
        _count("LINES/S", lambda row: row.rate.lines_s),
        _bytes("BYTES/S", lambda row: row.rate.bytes_s),
        _spark(lambda row: row.rate.history),
        _seconds("LAG", lambda row: row.lag_s),
        _bytes("UNCOLLECTED", lambda row: row.lag_bytes),
        _bytes("STORED", lambda row: row.bytes),
        _gone_bytes("MISSING", lambda row: row.missing_bytes),
        _gone_bytes("LOST", lambda row: row.lost_bytes),
    ),
)

COLLECTORS = Table(
    "Collectors",
    lambda view: view.collectors,
    lambda row: (row.group, row.member),
    (
        _name("COLLECTOR", lambda row: row.member),
        _name("GROUP", lambda row: row.group),
        _state(lambda row: state_text(row.problem, row.silent_s)),
        _count("LINES/S", lambda row: row.rate.lines_s),
        _bytes("BYTES/S", lambda row: row.rate.bytes_s),
        _spark(lambda row: row.rate.history),
        _seconds("LAG", lambda row: row.lag_s),
        _bytes("PENDING", lambda row: row.pending_bytes),
        _bytes("UNCOMMITTED", lambda row: row.uncommitted_bytes),
        _gone_bytes("MISSING", lambda row: row.missing_bytes),
        _name("PARTITIONS", lambda row: _partitions_text(row.partitions)),
    ),
)

SHIPPERS = Table(
    "Shippers",
    lambda view: view.shippers,
    lambda row: (row.name,),
    (
        _name("SHIPPER", lambda row: row.name),
        _state(lambda row: state_text(row.problem, row.silent_s)),
        _count("HOSTS", lambda row: row.hosts),
        _count("SOURCES", lambda row: row.sources),
        _count("LINES/S", lambda row: row.rate.lines_s),
        _bytes("BYTES/S", lambda row: row.rate.bytes_s),
        _spark(lambda row: row.rate.history),
        _waiting(),
        _bytes("UNSHIPPED", lambda row: row.backlog_bytes),
        _bytes("ON THE WAY", lambda row: row.on_the_way_bytes),
        _gone_bytes("MISSING", lambda row: row.missing_bytes),
    ),
)

READERS = Table(
    "Readers",
    lambda view: view.readers,
    lambda row: (row.name,),
    (
        _name("READER", lambda row: row.name),
        _count("PARTITIONS", lambda row: row.partitions),
        _count("MESSAGES/S", lambda row: row.messages_s),
        _spark(lambda row: row.history),
        _count("PENDING", lambda row: row.pending_messages),
        _count("UNACKNOWLEDGED", lambda row: row.unacknowledged),
        _count("REDELIVERED", lambda row: row.redelivered),
        _count("MISSED MESSAGES", lambda row: row.missed_messages),
    ),
)

TABLES = Table(
    "Table",
    lambda view: view.tables,
    lambda row: (row.name,),
    (
        _name("TABLE", lambda row: row.name),
        _state(lambda row: row.problem or FINE),
        _count("LINES/S", lambda row: row.lines_s),
        _spark(lambda row: row.history),
        _count("LINES", lambda row: row.rows),
        _seconds("LAG", lambda row: row.lag_s),
        _bytes("NOT IN IT YET", lambda row: row.lag_bytes),
        _count("MISSED MESSAGES", lambda row: row.missed_messages),
        _name("PLACE", lambda row: row.path),
    ),
)

ALL = (SOURCES, HOSTS, MISSING, PARTITIONS, COLLECTORS, SHIPPERS, READERS, TABLES)
