"""``logpipeline report``: one HTML page of plots, made from the table's counts.

The page contains everything that it needs, so that it can be sent, and opened without a network.
"""

from __future__ import annotations

import argparse
import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import plotly.graph_objects as go
import plotly.io

from logpipeline_cli.errors import EXIT_OK
from logpipeline_cli.output import bytes_text
from logpipeline_cli.tables.duck import opened
from logpipeline_cli.tables.target import logs_for, storage_for
from logpipeline_cli.time_arguments import moment
from logpipeline_spark.formats.log import Logs
from logpipeline_spark.table.counts import ERROR_LEVELS
from logpipeline_spark.table.files import LINES
from logpipeline_spark.table.storage import Storage
from logpipeline_spark.table.verify import state_of

# More series than this make a plot unreadable; the others are added up.
SERIES_MAX = 10
TALKERS_MAX = 20
OTHERS = "others"
# The drawn part of a row: lines whose time is not plausible are in no plot over time. Rows of
# earlier versions do not hold the size of these lines, so that it is estimated.
PLACED_LINES = "(lines - clamped)"
PLACED_BYTES = "(bytes - coalesce(clamped_bytes, bytes * clamped // lines))"
# Points of a line: a screen has a few thousand columns.
POINTS_MAX = 1500
# With the few lines of one minute a share means little.
SHARE_STEP_S = 300
STEPS_S = (60, 300, 900, 3600, 6 * 3600, 86_400)

# None where a value does not exist: a share of no lines.
Point = tuple[datetime, float | None]

HEIGHT = 340
_LEVELS = {
    "fatal": "#7f1d1d", "error": "#dc2626", "warn": "#f59e0b", "info": "#2563eb",
    "debug": "#94a3b8", "trace": "#cbd5e1", "unknown": "#64748b",
}  # fmt: skip
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto; padding: 0 1rem;
  color: #0f172a; }
h1 { margin-bottom: 0 } .when { color: #64748b; margin-top: 0 }
table { border-collapse: collapse; width: 100% } td, th { padding: .25rem .6rem; text-align: right;
  border-bottom: 1px solid #e2e8f0 } td:first-child, th:first-child { text-align: left }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The data of a page; series are by name, the largest first."""

    step_s: int
    first: datetime | None
    last: datetime | None
    lines: int
    bytes: int
    clamped: int
    by_level: dict[str, list[Point]]
    by_namespace: dict[str, list[Point]]
    by_host: dict[str, list[Point]]
    error_share: list[Point]
    talkers: list[tuple[str, int, int, int]]
    lags: list[Point]
    lost: list[tuple[str, int, int]]
    unlisted: dict[str, int]


def run(args: argparse.Namespace) -> int:
    """Write the page, and print its path."""
    now = datetime.now(UTC)
    storage = storage_for(args)
    logs = logs_for(args, storage)
    since, until = moment(args.since, now=now), moment(args.until, now=now)
    with opened(storage, logs, since=since, until=until) as connection:
        answers = ask(connection, storage, logs)
    target = Path(args.out)
    target.write_text(page(f"Logs of {storage.url}", answers, made=now), encoding="utf-8")
    print(f"{target}: {answers.lines} lines")
    return EXIT_OK


def ask(connection: duckdb.DuckDBPyConnection, storage: Storage, logs: Logs) -> Answers:
    """Return the data for the page of *storage*'s table; *connection* has its counts."""
    first, last, lines, size, clamped = _row(
        connection, "SELECT min(ts), max(ts), sum(lines), sum(bytes), sum(clamped) FROM minutes"
    )
    step_s = step_of(first, last)
    cover = state_of(storage, logs).cover
    return Answers(
        step_s=step_s,
        first=first,
        last=last,
        lines=int(lines or 0),
        bytes=int(size or 0),
        clamped=int(clamped or 0),
        by_level=_series(connection, "coalesce(level, 'unknown')", PLACED_LINES, step_s),
        by_namespace=_series(
            connection, "coalesce(namespace, 'plain files')", PLACED_BYTES, step_s
        ),
        by_host=_series(connection, "coalesce(host, 'unknown')", PLACED_BYTES, step_s),
        error_share=_error_share(connection, max(step_s, SHARE_STEP_S)),
        talkers=_talkers(connection),
        lags=_lags(logs),
        lost=[(stream, each.first, each.last) for stream, each in cover.missing()],
        unlisted=dict(cover.unlisted),
    )


def step_of(first: datetime | None, last: datetime | None) -> int:
    """Return the seconds between two points, so that there are at most `POINTS_MAX`."""
    span_s = (last - first).total_seconds() if first and last else 0.0
    return next((step for step in STEPS_S if span_s / step <= POINTS_MAX), STEPS_S[-1])


def _series(
    connection: duckdb.DuckDBPyConnection, name: str, value: str, step_s: int
) -> dict[str, list[Point]]:
    rows = connection.execute(
        f"""
        WITH named AS (SELECT {name} AS name, ts, {value} AS value FROM minutes),
        largest AS (SELECT name FROM named GROUP BY name ORDER BY sum(value) DESC, name
                    LIMIT {SERIES_MAX})
        SELECT CASE WHEN name IN (FROM largest) THEN name ELSE '{OTHERS}' END AS shown,
               time_bucket(INTERVAL {step_s} SECOND, ts) AS bucket, sum(value)
        FROM named WHERE value > 0 GROUP BY ALL ORDER BY bucket
        """
    ).fetchall()
    found: dict[str, dict[datetime, float]] = {}
    for shown, at, total in rows:
        found.setdefault(shown, {})[at] = float(total)
    steps = steps_between([at for _, at, _ in rows], step_s)
    return {
        shown: [(at, totals.get(at, 0.0)) for at in steps]
        for shown, totals in sorted(found.items(), key=lambda item: -sum(item[1].values()))
    }


def steps_between(times: Sequence[datetime], step_s: int) -> list[datetime]:
    """Return each step from the first to the last of *times*, which begin steps. A step without
    counts had no lines; if it were left out, the plot would draw a line across it.
    """
    if not times:
        return []
    step, first = timedelta(seconds=step_s), min(times)
    return [first + number * step for number in range((max(times) - first) // step + 1)]


def _error_share(connection: duckdb.DuckDBPyConnection, step_s: int) -> list[Point]:
    levels = ", ".join(f"'{level}'" for level in ERROR_LEVELS)
    rows = connection.execute(
        f"""
        SELECT time_bucket(INTERVAL {step_s} SECOND, ts) AS bucket,
               sum({PLACED_LINES}) FILTER (WHERE level IN ({levels})) / sum({PLACED_LINES})
        FROM minutes WHERE {PLACED_LINES} > 0 GROUP BY bucket ORDER BY bucket
        """
    ).fetchall()
    shares = {at: float(share or 0.0) for at, share in rows}
    return [(at, shares.get(at)) for at in steps_between(list(shares), step_s)]


def _talkers(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, int, int, int]]:
    rows = connection.execute(
        f"""
        SELECT concat_ws('/', host, namespace, pod, container), sum(bytes), sum(lines), sum(errors)
        FROM sources GROUP BY ALL ORDER BY sum(bytes) DESC, 1 LIMIT {TALKERS_MAX}
        """
    ).fetchall()
    return [(str(name), int(size), int(lines), int(errors)) for name, size, lines, errors in rows]


def _lags(logs: Logs) -> list[Point]:
    """Return, for each commit, how long after it was stored the newest line came into the table."""
    lags: list[Point] = []
    for version in logs[LINES].history():
        if newest_us := int(version.said.get("newest_us") or 0):
            at = datetime.fromtimestamp(version.time_us / 1e6, UTC)
            lags.append((at, max(0.0, (version.time_us - newest_us) / 1e6)))
    return lags


def _row(connection: duckdb.DuckDBPyConnection, sql: str) -> Sequence[Any]:
    row = connection.execute(sql).fetchone()
    assert row is not None
    return row


def page(title: str, answers: Answers, *, made: datetime) -> str:
    """Return the complete page."""
    step = _step(answers.step_s)
    plots = [
        _stacked(f"Lines per {step}, by level", answers.by_level, colours=_LEVELS),
        _shares(
            f"Share of errors, per {_step(max(answers.step_s, SHARE_STEP_S))}", answers.error_share
        ),
        _stacked(f"Bytes per {step}, by namespace", answers.by_namespace),
        _stacked(f"Bytes per {step}, by host", answers.by_host),
        _each("From stored to queryable, in seconds, for each commit", answers.lags),
    ]
    parts = [_figure(plot, is_first=number == 0) for number, plot in enumerate(plots)]
    return "\n".join(
        [
            "<!doctype html><html lang=en><head><meta charset=utf-8>",
            f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{html.escape(title)}</h1>",
            f"<p class=when>{_when(answers)}; made {made:%Y-%m-%d %H:%M} UTC</p>",
            f"<p>{_sum(answers)}</p>",
            *parts,
            "<h2>Containers with the most bytes</h2>",
            _table(
                ("Host / namespace / pod / container", "Bytes", "Lines", "Errors"),
                (
                    (name, bytes_text(size), f"{lines:,}", f"{errors:,}")
                    for name, size, lines, errors in answers.talkers
                ),
            ),
            "<h2>Gaps</h2>",
            _gaps(answers.lost, answers.unlisted),
            "</body></html>",
        ]
    )


def _when(answers: Answers) -> str:
    if answers.first is None or answers.last is None:
        return "no lines"
    return f"{answers.first:%Y-%m-%d %H:%M} to {answers.last:%Y-%m-%d %H:%M} UTC"


def _sum(answers: Answers) -> str:
    text = f"{answers.lines:,} lines, {bytes_text(answers.bytes)}"
    if answers.clamped:
        text += (
            f"; {answers.clamped:,} of these lines have a time that is more than a month before, "
            "or a day after, they were stored: they are in no plot over time"
        )
    return html.escape(text)


def _step(step_s: int) -> str:
    names = {60: "minute", 3600: "hour", 86_400: "day"}
    return names.get(step_s, f"{step_s // 60} minutes")


def _stacked(
    title: str, series: Mapping[str, Sequence[Point]], *, colours: Mapping[str, str] | None = None
) -> go.Figure:
    figure = go.Figure()
    for name, points in series.items():
        colour = (colours or {}).get(name)
        figure.add_trace(
            go.Scatter(
                x=[at for at, _ in points], y=[value for _, value in points], name=name,
                stackgroup="all", mode="lines", line={"width": 0.5, "color": colour},
            )
        )  # fmt: skip
    return _laid_out(figure, title)


def _shares(title: str, points: Sequence[Point]) -> go.Figure:
    figure = go.Figure(
        go.Scatter(
            x=[at for at, _ in points], y=[value for _, value in points],
            # A value without neighbours has no line; only its marker shows it.
            mode="lines+markers", marker={"size": 3}, connectgaps=False,
        )
    )  # fmt: skip
    _laid_out(figure, title)
    return figure.update_yaxes(tickformat=".2%")


def _each(title: str, points: Sequence[Point]) -> go.Figure:
    """Return a plot of separate points."""
    times, values = [at for at, _ in points], [value for _, value in points]
    figure = go.Figure(go.Scatter(x=times, y=values, mode="markers", marker={"size": 4}))
    return _laid_out(figure, title)


def _laid_out(figure: go.Figure, title: str) -> go.Figure:
    figure.update_layout(
        title=title, height=HEIGHT, template="plotly_white", hovermode="x unified",
        margin={"l": 60, "r": 10, "t": 45, "b": 35},
    )  # fmt: skip
    figure.update_yaxes(rangemode="tozero")
    return figure


def _figure(figure: go.Figure, *, is_first: bool) -> str:
    # The library is included once, with the first plot.
    text = plotly.io.to_html(figure, full_html=False, include_plotlyjs=is_first)
    return str(text)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(value)}</td>" for value in row) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{top}</tr>{body}</table>"


def _gaps(lost: Sequence[tuple[str, int, int]], unlisted: Mapping[str, int]) -> str:
    if not lost:
        return "<p>None: every message that the streams held was read.</p>"
    rows = [(name, f"{first:,}", f"{last:,}") for name, first, last in lost]
    rows += [(name, f"{count:,} more, longer ago", "") for name, count in sorted(unlisted.items())]
    return _table(("Stream", "Lost from", "to"), rows)
