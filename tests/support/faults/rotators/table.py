"""The table of rotators in docs/guarantees.md: tests run each cell, so that it cannot be wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

PAGE = Path(__file__).parents[4] / "docs" / "guarantees.md"
TITLE = "## Rotators"
HOWS = ("up", "down", "killed")
# The note on modes whose files may be sources of their own, and what a cell without a run says.
OWN = "[^own]"
NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Row:
    """What is to be counted of one rotator and mode, by how the shipper is."""

    name: str
    cells: dict[str, str]
    has_sources_of_its_own: bool


def rows() -> list[Row]:
    """Return the rows of the table."""
    _, found, section = PAGE.read_text(encoding="utf-8").partition(f"\n{TITLE}\n")
    assert found, f"{PAGE.name} has no section {TITLE}"
    lines = section.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("|--"))
    return [_row(line) for line in takewhile(lambda line: line.startswith("|"), lines[begin + 1 :])]


def _row(line: str) -> Row:
    rotator, mode, *cells = (cell.strip() for cell in line.strip("|").split("|"))
    plain = dict(zip(HOWS, map(_without_notes, cells), strict=True))
    return Row(f"{rotator}: {_without_notes(mode)}", plain, OWN in mode)


def _without_notes(text: str) -> str:
    return re.sub(r"\[\^\w+\]", "", text)
