"""The job keeps an Iceberg table where it is asked to, and says in a sentence where it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from logpipeline_spark.errors import Refused
from logpipeline_spark.formats.iceberg import CATALOG_NAME, IcebergLog
from logpipeline_spark.formats.log import Change
from tables.jobs import Table
from tables.streams import Streams

pytest_plugins = ["tables.table_fixtures"]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
IDENTIFIER = "logs.lines"


@pytest.fixture
def catalog(tmp_path: Path) -> dict[str, str]:
    """A catalogue as a resource names it."""
    return {"table": IDENTIFIER, "type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}


@pytest.fixture
def table(streams: Streams, tmp_path: Path, catalog: dict[str, str]) -> Table:
    """A table that is to be an Iceberg table."""
    return Table(streams, tmp_path / "table", format="iceberg", catalog=catalog)


def lines_in(catalog: dict[str, str]) -> list[tuple[str, str]]:
    """Read the table as somebody does who knows only the catalogue."""
    properties = {name: value for name, value in catalog.items() if name != "table"}
    found = load_catalog(CATALOG_NAME, **properties).load_table(IDENTIFIER).scan().to_arrow()
    return sorted((row["host"], row["line"]) for row in found.to_pylist())


def test_what_the_job_keeps_is_an_iceberg_table(
    streams: Streams, table: Table, catalog: dict[str, str]
) -> None:
    """Over several runs, each line is there once."""
    for number in range(3):
        streams.send("node-a", f"line {number}")
        streams.send("node-b", f"line {number}")
        table.keep()

    assert lines_in(catalog) == sorted(table.lines())
    assert len(table.lines()) == 6


@pytest.mark.parametrize("is_committed", [True, False], ids=["after", "before"])
def test_a_crash_at_the_commit_costs_and_doubles_nothing(
    streams: Streams,
    table: Table,
    catalog: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    is_committed: bool,
) -> None:
    """Whether the catalogue had taken the batch or not, the next run goes on where it is."""
    streams.send("node-a", "before")
    table.keep()
    streams.send("node-a", "cut")
    commit = IcebergLog.commit

    def dies(self: IcebergLog, change: Change) -> None:
        if not change.added:
            # The beginning of a writer.
            return commit(self, change)
        if is_committed:
            commit(self, change)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(IcebergLog, "commit", dies)
        with pytest.raises(KeyboardInterrupt):
            table.keep()
    assert len(lines_in(catalog)) == 1 + is_committed
    table.keep()

    assert lines_in(catalog) == [("node-a", "before"), ("node-a", "cut")]


def test_a_catalogue_that_is_away_is_said_in_a_sentence(
    streams: Streams, table: Table, catalog: dict[str, str], tmp_path: Path
) -> None:
    """And once it is back, what was sent meanwhile is in it."""
    streams.send("node-a", "one")
    table.change(catalog=catalog | {"uri": f"sqlite:///{tmp_path}/no/folder.db"})
    with pytest.raises(Refused, match=r"Iceberg catalogue of logs.lines .* spec.table.catalog"):
        table.keep()
    table.change(catalog=catalog)
    table.keep()

    assert lines_in(catalog) == [("node-a", "one")]
