"""One table of all faults of a run, and what came of each: a plugin of pytest that `make faults`
loads. It is printed at the end and written as Markdown to the file that FAULTS_TABLE names.

A row is a pipeline that was judged: the test, how often it was hurt, and the oracle's counts.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

import pytest

PROPERTY = "settled"
HEAD = ("Fault", "Rounds", "Lines", "Lost", "Twice", "Out of order", "Seconds", "Reason")


@dataclass(frozen=True, slots=True)
class Settled:
    """What came of one pipeline: *rounds* is how often it was hurt, *seconds* how long it took from
    the last line that was written until everything was collected, *reason* why lines had to be lost
    or to come twice; empty where none may.
    """

    rounds: int
    lines: int
    lost: int
    twice: int
    out_of_order: int
    seconds: float
    reason: str = ""


NOTHING = Settled(0, 0, 0, 0, 0, 0.0)
# The pipelines that the running test has judged.
settled: list[Settled] = []


def rendered(rows: Iterable[tuple[str, Settled]]) -> str:
    """Return *rows*, each with the id of its test, as a table in Markdown. Its last two rows are
    the sums of those that have no reason to lose or repeat lines, and of those that have one.
    """
    found = sorted(rows, key=lambda pair: pair[0])
    cells = [HEAD, ("---",) * len(HEAD), *(_cells(f"`{test}`", row) for test, row in found)]
    cells.append(_cells("all without a reason", _sum(row for _, row in found if not row.reason)))
    cells.append(_cells("all with a reason", _sum(row for _, row in found if row.reason)))
    return "\n".join(f"| {' | '.join(each)} |" for each in cells) + "\n"


def _cells(name: str, row: Settled) -> tuple[str, ...]:
    *counts, seconds, reason = astuple(row)
    return (name, *map(str, counts), f"{seconds:.1f}", reason)


def _sum(rows: Iterable[Settled]) -> Settled:
    counts = [astuple(row)[:-1] for row in (NOTHING, *rows)]
    return Settled(*(sum(each) for each in zip(*counts, strict=True)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Note what the test has judged, also where it fails: it goes with its report, from a worker as
    well.
    """
    settled.clear()
    try:
        return (yield)
    finally:
        item.user_properties += [(PROPERTY, list(astuple(row))) for row in settled]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, and write it where FAULTS_TABLE says."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    rows = [
        (report.nodeid.partition("test_faults_")[2], Settled(*values))
        for report in reports
        if report.when == "call"
        for name, values in report.user_properties
        if name == PROPERTY
    ]
    if not rows:
        return
    text = rendered(rows)
    terminalreporter.write_line(text)
    if given := os.environ.get("FAULTS_TABLE"):
        path = Path(given)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
