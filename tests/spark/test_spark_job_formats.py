"""The job keeps its table in each format, by the format's own library, and says before the first
batch where it cannot.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from logpipeline_spark.errors import Refused
from logpipeline_spark.formats import iceberg
from logpipeline_spark.formats.iceberg import CATALOG_NAME, Iceberg
from spark_jobs import Archive
from spark_streams import Streams

pytest_plugins = ["spark_archive_fixtures"]

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
IDENTIFIER = "logs.lines"
IS_42 = version("pyspark").startswith("4.2.")


@pytest.fixture
def catalog(tmp_path: Path) -> dict[str, str]:
    """A catalogue as a resource names it."""
    return {"table": IDENTIFIER, "type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}


@pytest.fixture
def archive(streams: Streams, tmp_path: Path, catalog: dict[str, str]) -> Archive:
    """A table that is to be an Iceberg table as well."""
    return Archive(streams, tmp_path / "archive", format="iceberg", catalog=catalog)


def lines_in(catalog: dict[str, str]) -> list[tuple[str, str]]:
    """Read the table as somebody does who knows only the catalogue."""
    properties = {name: value for name, value in catalog.items() if name != "table"}
    found = load_catalog(CATALOG_NAME, **properties).load_table(IDENTIFIER).scan().to_arrow()
    return sorted((row["host"], row["line"]) for row in found.to_pylist())


def test_what_the_job_keeps_is_an_iceberg_table(
    streams: Streams, archive: Archive, catalog: dict[str, str]
) -> None:
    """Over several runs, each line is there once."""
    for number in range(3):
        streams.send("node-a", f"line {number}")
        streams.send("node-b", f"line {number}")
        archive.keep()

    assert lines_in(catalog) == sorted(archive.lines())
    assert len(archive.lines()) == 6


def test_what_a_crash_kept_from_the_catalogue_is_there_after_the_next_run(
    streams: Streams,
    archive: Archive,
    catalog: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The manifest's commit was done and the registration was not: nothing is lost or doubled."""
    streams.send("node-a", "before")
    archive.keep()
    streams.send("node-a", "not registered")

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Iceberg, "commit", dies)
        with pytest.raises(KeyboardInterrupt):
            archive.keep()
    assert ("node-a", "not registered") in archive.lines()
    assert lines_in(catalog) == [("node-a", "before")]
    archive.keep()

    assert lines_in(catalog) == [("node-a", "before"), ("node-a", "not registered")]


def test_old_snapshots_of_the_catalogue_go(
    streams: Streams,
    archive: Archive,
    catalog: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that are kept stand in what each commit writes, so they may not grow with the table."""
    monkeypatch.setattr(iceberg, "EXPIRE_EVERY", 1)
    monkeypatch.setattr(iceberg, "SNAPSHOTS_KEPT", iceberg.SNAPSHOTS_KEPT * 0)
    for number in range(4):
        streams.send("node-a", f"line {number}")
        archive.keep()

    properties = {name: value for name, value in catalog.items() if name != "table"}
    table = load_catalog(CATALOG_NAME, **properties).load_table(IDENTIFIER)
    assert len(table.metadata.snapshots) == 1
    assert len(lines_in(catalog)) == 4


def test_a_catalogue_that_is_away_is_said_in_a_sentence(
    streams: Streams, archive: Archive, catalog: dict[str, str], tmp_path: Path
) -> None:
    """And once it is back, what was sent meanwhile is in it."""
    streams.send("node-a", "one")
    archive.change(catalog=catalog | {"uri": f"sqlite:///{tmp_path}/no/folder.db"})
    with pytest.raises(Refused, match=r"Iceberg catalogue of logs.lines .* spec.archive.catalog"):
        archive.keep()
    archive.change(catalog=catalog)
    archive.keep()

    assert lines_in(catalog) == [("node-a", "one")]


@pytest.mark.optional_elsewhere("here Delta's library is there")
@pytest.mark.skipif(IS_42, reason="here Delta's library is there")
def test_where_delta_cannot_be_the_job_says_so_before_it_begins(
    streams: Streams, archive: Archive
) -> None:
    """No batch is read, and the path is nobody's yet."""
    archive.change(format="delta")
    with pytest.raises(Refused, match=r"Delta's library works with Spark 4\.2, and this is .* pip"):
        archive.keep()

    assert not Path(archive.settings.path).exists()
    assert "Delta's library" in archive.told().problem
