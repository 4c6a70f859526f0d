"""How tables stand, in sentences: how far they are, what trimming waits for, and what they miss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from logpipeline.tables.state import TableState
from logpipeline_cli.output import bytes_text

Status = Mapping[str, Any]


def as_json(state: TableState) -> dict[str, Any]:
    """Return *state* as `status -o json` prints it; before its job told anything a table has no
    path, and its commit is -1.
    """
    told = state.progress
    return {
        "name": state.name,
        "path": told.path if told is not None else "",
        "commit": told.commit if told is not None else -1,
        "rows": told.rows if told is not None else 0,
        "problem": told.problem if told is not None else "",
        "missed_messages": state.missed_messages,
        "streams": [asdict(each) for each in state.streams],
    }


def standing(status: Status) -> list[str]:
    """Return for each table of *status* a line with its state, and one with each problem."""
    lines = []
    for table in status.get("tables", []):
        messages = sum(row["lag"]["messages"] for row in table["streams"])
        size = bytes_text(sum(row["lag"]["bytes"] for row in table["streams"]))
        behind = f"{messages} messages, {size} are not in it yet"
        begun = f"commit {table['commit']}, {table['rows']} lines"
        if table["commit"] < 0:
            begun = "not begun: its job has told nothing of it, and its log says why"
        missed = f"; missed {table['missed_messages']} messages" * bool(table["missed_messages"])
        lines.append(f"table {table['name']}: {begun}; {behind}{missed}")
    return lines + list(troubles(status))


def troubles(status: Status) -> Iterator[str]:
    """Yield one sentence for each table that does not go on, that holds trimming back, or that
    misses lines and did not go on behind them yet.
    """
    for table in status.get("tables", []):
        name = f"table {table['name']}"
        if table["problem"]:
            yield f"{name}: its job says: {table['problem']}"
        for row in table["streams"]:
            if not row["passed"]:
                yield f"{name} misses {_missed(row)}. Bring its job back: it goes on behind them"
            elif row["holds_back"]:
                yield f"{name} holds trimming back: {_held(row, status['trimming'])}"


def _missed(row: Status) -> str:
    last = row["missed"][-1]
    return (
        f"messages {last['first']} to {last['last']} of {row['stream']}: the stream was filling "
        "up, and they were deleted unread; the files have them"
    )


def _held(row: Status, trimming: Status) -> str:
    skip = max(trimming["above"], trimming["skipTablesAbove"])
    then = f"above {skip} % they are deleted unread" if skip < 100 else "shippers wait at 100 %"
    return (
        f"{row['stream']} is {row['fill'] * 100:.0f} % full, and {bytes_text(row['lag']['bytes'])} "
        f"of it are not in the table yet; {then}. Bring its job back, have larger streams "
        "(spec.stream.maxBytes), or keep no table (spec.table.enabled: false)"
    )
