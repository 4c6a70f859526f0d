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
HEAD = ("Fault", "Rounds", "Lines", "Lost", "Twice", "Out of order", "Seconds")


@dataclass(frozen=True, slots=True)
class Settled:
    """What came of one pipeline: *rounds* is how often it was hurt, *seconds* how long it took from
    the last line that was written until everything was collected.
    """

    rounds: int
    lines: int
    lost: int
    twice: int
    out_of_order: int
    seconds: float


# The pipelines that the running test has judged.
settled: list[Settled] = []


def rendered(rows: Iterable[tuple[str, Settled]]) -> str:
    """Return *rows*, each with the id of its test, as a table in Markdown."""
    cells = [HEAD, ("---",) * len(HEAD)]
    for test, row in sorted(rows, key=lambda pair: pair[0]):
        *counts, seconds = astuple(row)
        cells.append((f"`{test}`", *map(str, counts), f"{seconds:.1f}"))
    return "\n".join(f"| {' | '.join(each)} |" for each in cells) + "\n"


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
