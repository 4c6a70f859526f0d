"""The status of tables as text: their progress, trimming that waits for them, and what they miss;
and why a pipeline keeps no table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from logpipeline.spec import LogPipeline
from logpipeline.tables.state import TableState
from logpipeline_cli.output import bytes_text
from logpipeline_spark.requirements import missing

Status = Mapping[str, Any]


def as_json(state: TableState) -> dict[str, Any]:
    """Return *state* as `status -o json` prints it; until its job reports progress, a table has no
    path, and its commit is -1.
    """
    progress = state.progress
    return {
        "name": state.name,
        "path": progress.path if progress is not None else "",
        "commit": progress.commit if progress is not None else -1,
        "rows": progress.rows if progress is not None else 0,
        "problem": progress.problem if progress is not None else "",
        "missed_messages": state.missed_messages,
        "streams": [asdict(each) for each in state.streams],
    }


def standing(status: Status) -> list[str]:
    """Return a line with the state of each table, and a line for each problem."""
    lines = []
    for table in status.get("tables", []):
        messages = sum(row["lag"]["messages"] for row in table["streams"])
        size = bytes_text(sum(row["lag"]["bytes"] for row in table["streams"]))
        behind = f"{messages} messages, {size} are not in it yet"
        begun = f"commit {table['commit']}, {table['rows']} lines"
        if table["commit"] < 0:
            begun = "not begun: its job has not reported progress; see the job's log"
        missed = f"; missed {table['missed_messages']} messages" * bool(table["missed_messages"])
        lines.append(f"table {table['name']}: {begun}; {behind}{missed}")
    return lines + list(troubles(status))


def troubles(status: Status) -> Iterator[str]:
    """Yield one sentence for each problem: a table that makes no progress, one that holds trimming
    back, or one that misses lines and has not continued behind them yet.
    """
    for table in status.get("tables", []):
        name = f"table {table['name']}"
        if table["problem"]:
            yield f"{name}: its job reports: {table['problem']}"
        for row in table["streams"]:
            if not row["passed"]:
                yield f"{name} misses {_missed(row)}. Start its job: it continues behind them"
            elif row["holds_back"]:
                yield f"{name} holds trimming back: {_held(row, status['trimming'])}"


def _missed(row: Status) -> str:
    last = row["missed"][-1]
    return (
        f"messages {last['first']} to {last['last']} of {row['stream']}: the stream was filling "
        "up, and they were deleted unread; the collectors' files have them"
    )


def _held(row: Status, trimming: Status) -> str:
    skip = max(trimming["above"], trimming["skipTablesAbove"])
    then = f"above {skip} % they are deleted unread" if skip < 100 else "shippers wait at 100 %"
    return (
        f"{row['stream']} is {row['fill'] * 100:.0f} % full, and {bytes_text(row['lag']['bytes'])} "
        f"of it are not in the table yet; {then}. Start its job, enlarge the streams "
        "(spec.stream.maxBytes), or keep no table (spec.table.enabled: false)"
    )


def why_no_table(pipeline: LogPipeline) -> str:
    """Return why *pipeline* keeps no table on this machine, and what to do, as a sentence; empty
    where it keeps one, or could.
    """
    asked = pipeline.spec.table.enabled
    if asked is False:
        return "spec.table.enabled is false"
    if asked is None and not pipeline.spec.stream.allow_direct:
        return "spec.stream.allowDirect is false, and a table is read by direct get"
    return missing()
