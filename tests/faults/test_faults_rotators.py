"""Real rotators at work: of each mode is counted what docs/guarantees.md says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from faults.rotators import handlers, jvm, logrotate, piped, table
from faults.rotators.cells import hurry, run
from logpipeline.embedded import EmbeddedServer

MODES = {mode.name: mode for mode in (*logrotate.MODES, *handlers.MODES, *piped.MODES, *jvm.MODES)}
ROWS = {row.name: row for row in table.rows()}
# What `make test` runs of it.
SMOKE = ("logrotate: create", "Python RotatingFileHandler: numbers")
CELLS = [
    pytest.param(name, how, marks=pytest.mark.smoke if name in SMOKE else (), id=f"{name}-{how}")
    for name, row in ROWS.items()
    for how, cell in row.cells.items()
    if cell != table.NOT_RUN
]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the shipper wait as little as its scans are apart."""
    hurry(monkeypatch)


@pytest.mark.smoke
def test_the_table_names_each_mode_once() -> None:
    """Tests are made from the table: a mode that it lacks would not run."""
    assert sorted(row.name for row in table.rows()) == sorted(MODES)


@pytest.mark.parametrize(("name", "how"), CELLS)
async def test_a_cell_of_the_table_is_what_is_counted(
    nats_server: EmbeddedServer, tmp_path: Path, name: str, how: str, seed: int
) -> None:
    """Lost, twice, and named as lost; what arrives is in order within each source."""
    counted = await run(MODES[name], how, nats_server, tmp_path, f"{seed} {name}")

    row = ROWS[name]
    if row.has_sources_of_its_own and counted.sources > 1:
        counted = replace(counted, named_bytes=0, unseen=0)
    expected = row.cells[how]
    assert counted.cell(like=expected) == expected, counted
    assert counted.alien == 0, counted
    if not row.has_sources_of_its_own:
        assert counted.sources == 1, counted
        assert counted.late == 0 or MODES[name].loses, counted
