"""One HTML page with everything in it: it can be sent, and opened where there is no network."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import plotly.graph_objects as go
import plotly.io

from logpipeline_cli.output import bytes_text
from logpipeline_cli.tables.questions import SHARE_STEP_S, Answers, Point

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


def page(title: str, answers: Answers, *, made: datetime) -> str:
    """Return the page, complete."""
    step = _step(answers.step_s)
    plots = [
        _stacked(f"Lines per {step}, by level", answers.by_level, colours=_LEVELS),
        _shares(
            f"Share of errors, per {_step(max(answers.step_s, SHARE_STEP_S))}", answers.error_share
        ),
        _stacked(f"Bytes per {step}, by namespace", answers.by_namespace),
        _stacked(f"Bytes per {step}, by host", answers.by_host),
        _each("From stored to queryable, seconds, of each commit", answers.lags),
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
            "<h2>The loudest</h2>",
            _table(
                ("Host / namespace / pod / container", "Bytes", "Lines", "Errors"),
                (
                    (name, bytes_text(size), f"{lines:,}", f"{errors:,}")
                    for name, size, lines, errors in answers.talkers
                ),
            ),
            "<h2>Gaps</h2>",
            _gaps(answers.lost),
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
            f"; {answers.clamped:,} of these lines say a time that is more than a month before, or "
            "a day after, they were stored: they are in no plot over time"
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
            # A value with none beside it has no line to be seen by.
            mode="lines+markers", marker={"size": 3}, connectgaps=False,
        )
    )  # fmt: skip
    _laid_out(figure, title)
    return figure.update_yaxes(tickformat=".2%")


def _each(title: str, points: Sequence[Point]) -> go.Figure:
    """Return a plot of what has no value in between."""
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
    # The library stands in the page once, with the first plot.
    text = plotly.io.to_html(figure, full_html=False, include_plotlyjs=is_first)
    return str(text)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(value)}</td>" for value in row) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{top}</tr>{body}</table>"


def _gaps(lost: Sequence[tuple[str, int, int]]) -> str:
    if not lost:
        return "<p>None: every message that the streams held was read.</p>"
    rows = ((name, f"{first:,}", f"{last:,}") for name, first, last in lost)
    return _table(("Stream", "Lost from", "to"), rows)
