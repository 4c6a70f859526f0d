"""What the page is given: a view as JSON, in texts that it only has to draw. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from logpipeline_cli.following import Line
from logpipeline_cli.output import bytes_text, escaped, escaped_name, seconds_text
from logpipeline_cli.time_arguments import time_text
from logpipeline_cli.watching.columns import (
    ALL,
    ROWS_MAX,
    SOURCES,
    Table,
    count_text,
    rates_text,
    silence_text,
    waiting_text,
)
from logpipeline_cli.watching.life import Generation, Life
from logpipeline_cli.watching.rows import HostRow, MissingRow, SourceRow, Stage, View

PROBLEMS_MAX = 50
# The unit of a stage's count, where its name does not say it.
COUNTED = {"files": " sources", "table": " lines"}
ID_BYTES = 9
TABLES = {table.name.lower(): table for table in ALL}


def id_of(host: str, source: str) -> str:
    """Return the id of a source in addresses: its names may hold bytes that are no text."""
    name = f"{host}\0{source}".encode("utf-8", "surrogateescape")
    return hashlib.blake2b(name, digest_size=ID_BYTES).hexdigest()


def named(view: View, id: str) -> tuple[str, str] | None:
    """Return host and source of an id; None where *view* has no such source."""
    rows: Sequence[SourceRow | MissingRow] = (*view.sources, *view.missing)
    return next(((row.host, row.source) for row in rows if id_of(row.host, row.source) == id), None)


def view_json(view: View, table: Table, *, text: str, by: str) -> dict[str, Any]:
    """Return what the page shows of *view*, with the rows of *table* that hold *text*."""
    rows = table.chosen(view, text=text, by=by)
    return {
        "name": escaped_name(view.name),
        "namespace": escaped_name(view.namespace),
        "server": escaped_name(view.server),
        "at": time_text(int(view.at_s * 1e9)) if view.at_s else "",
        "every_s": view.every_s,
        "trouble": escaped_name(view.trouble),
        "problems": [escaped_name(each) for each in view.problems[:PROBLEMS_MAX]],
        "problems_total": len(view.problems),
        "stages": [_stage(stage) for stage in view.stages],
        "tables": [
            {"id": each.name.lower(), "name": each.name, "count": each.count(view)} for each in ALL
        ],
        "table": {
            "id": table.name.lower(),
            "by": by,
            "columns": [
                {"title": each.title, "number": each.is_number, "line": each.history is not None}
                for each in table.columns
            ],
            "rows": [_row(table, row) for row in rows[:ROWS_MAX]],
            "found": len(rows),
        },
    }


def _stage(stage: Stage) -> dict[str, Any]:
    return {
        "name": stage.name,
        "count": f"{count_text(stage.count) or '0'}{COUNTED.get(stage.name, '')}",
        "rates": rates_text(stage),
        "waiting": waiting_text(stage),
        "moves": bool(stage.rate.bytes_s or stage.rate.lines_s or stage.messages_s),
        "line": _rounded(stage.rate.history),
    }


def _row(table: Table, row: Any) -> dict[str, Any]:
    history = next((each.history for each in table.columns if each.history is not None), None)
    # What is missing of sources that are not listed has no page.
    is_named = isinstance(row, SourceRow | MissingRow) and row.host
    source = id_of(row.host, row.source) if is_named else ""
    return {
        "key": hashlib.blake2b(repr(table.key(row)).encode("utf-8", "replace")).hexdigest()[:16],
        "cells": table.cells(row),
        "line": _rounded(history(row)) if history is not None else [],
        "source": source,
        "host": escaped_name(row.host) if isinstance(row, HostRow) else "",
        "tone": table.tone(row),
        "tones": [column.tone(row) for column in table.columns],
    }


def _rounded(values: Sequence[float]) -> list[int]:
    return [round(value) for value in values]


def life_json(life: Life) -> dict[str, Any]:
    """Return the page of one source."""
    facts = [("partition", str(life.partition))]
    if (row := life.row) is not None:
        facts += [
            ("shipper", escaped_name(row.shipper) or "none now"),
            ("lines/s", count_text(row.rate.lines_s) or "0"),
            ("bytes/s", bytes_text(row.rate.bytes_s)),
            ("not shipped", bytes_text(row.backlog_bytes)),
            ("the oldest waits for", seconds_text(row.waiting_s)),
            ("on the way", bytes_text(row.on_the_way_bytes)),
            ("missing", bytes_text(row.missing_bytes)),
            ("lost", bytes_text(row.lost_bytes)),
        ]
    return {
        "id": SOURCES.name.lower(),
        "host": escaped_name(life.host),
        "source": escaped_name(life.source),
        "answered": life.answered,
        "silent": silence_text(row) if row is not None else "",
        "facts": facts,
        "line": _rounded(row.rate.history) if row is not None else [],
        "generations": [_generation(each) for each in life.generations],
        "losses": [
            {
                "generation": escaped_name(str(loss["generation"])),
                "range": f"{loss['start']} to {loss['end']}",
                "bytes": bytes_text(loss["bytes"]),
                "cause": escaped_name(str(loss["cause"])),
                "since": time_text(loss["time_ns"]),
            }
            for loss in life.losses
        ],
    }


def _generation(generation: Generation) -> dict[str, Any]:
    end = max(generation.collected, generation.shipped or 0)
    return {
        "name": escaped_name(generation.name),
        "group": escaped_name(generation.group),
        "begun": generation.begun,
        "collected": generation.collected,
        "shipped": generation.shipped,
        "end": end,
        "holes": [
            {"start": start, "end": stop, "bytes": bytes_text(stop - start)}
            for start, stop in generation.holes
        ],
    }


def line_json(number: int, line: Line) -> dict[str, Any]:
    """Return one line as it passes."""
    return {
        "number": number,
        "host": escaped_name(line.host),
        "label": escaped_name(line.label),
        "text": escaped(line.text),
        "damaged": line.is_damaged,
    }
