"""What is committed is what an Iceberg catalogue has, through compaction, retention and crashes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from logpipeline_spark.formats.iceberg import CATALOG_NAME, Iceberg
from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.table.commit import Range
from logpipeline_spark.table.local import LocalStorage
from logpipeline_spark.table.names import FileName
from logpipeline_spark.table.reading import files, tables
from logpipeline_spark.table.retain import Limits
from logpipeline_spark.table.table import Table
from logpipeline_spark.table.write import write_range
from tables_made import BEGIN, LIFE, OWNER, STREAM, batch, keys, lines, opened

IDENTIFIER = "logs.lines"
KEY_ORDER = [("stream", "ascending"), ("seq", "ascending"), ("idx", "ascending")]
OVER = BEGIN + timedelta(days=1)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "table")


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}


@pytest.fixture
def iceberg(storage: LocalStorage, properties: dict[str, str]) -> Iceberg:
    return Iceberg(storage.url, IDENTIFIER, properties)


def rows_of(properties: dict[str, str]) -> list[dict[str, object]]:
    """Read the table as somebody does who knows only the catalogue."""
    found = load_catalog(CATALOG_NAME, **properties).load_table(IDENTIFIER).scan().to_arrow()
    return list(found.select(LINES.names).sort_by(KEY_ORDER).to_pylist())


def rows_by_manifest(storage: LocalStorage) -> list[dict[str, object]]:
    found = pa.concat_tables(tables(storage, files(storage), LINES))
    return list(found.sort_by(KEY_ORDER).to_pylist())


def test_the_catalogue_follows_the_table(
    storage: LocalStorage, iceberg: Iceberg, properties: dict[str, str]
) -> None:
    """After batches, compaction and retention both have the same rows, and no file is missing."""
    table = opened(storage, format=iceberg)
    batch(table, storage, "0", 1, 40)
    batch(table, storage, "1", 41, 150)
    assert rows_of(properties) == rows_by_manifest(storage)
    assert len(rows_of(properties)) == len(keys(1, 150))

    table.compact(OVER)
    assert iceberg.paths() == {entry.path for entry in files(storage)}
    assert rows_of(properties) == rows_by_manifest(storage)
    table.retain(BEGIN + timedelta(hours=2), Limits(age=timedelta(hours=1)))

    assert rows_of(properties) == rows_by_manifest(storage)
    assert len(rows_of(properties)) == len(keys(61, 150))


def test_a_commit_that_is_repeated_does_nothing(
    storage: LocalStorage, iceberg: Iceberg, properties: dict[str, str]
) -> None:
    """The number of our commit tells that it is there already: no row is there twice."""
    table = opened(storage, format=iceberg)
    batch(table, storage, "0", 1, 10)

    iceberg.commit(files(storage), [], number=table.snapshot.number, schema=LINES)

    assert rows_of(properties) == rows_by_manifest(storage)


def test_what_a_crash_kept_from_being_registered_is_registered_at_the_next_start(
    storage: LocalStorage, iceberg: Iceberg, properties: dict[str, str]
) -> None:
    """A table that was written without the catalogue is in it after a start with it."""
    table = opened(storage)
    batch(table, storage, "0", 1, 40)
    batch(table, storage, "1", 41, 70)
    table.close()

    opened(storage, format=iceberg).close()
    assert rows_of(properties) == rows_by_manifest(storage)
    late = opened(storage)
    late.compact(OVER)
    late.close()
    opened(storage, format=iceberg).close()

    assert iceberg.paths() == {entry.path for entry in files(storage)}
    assert rows_of(properties) == rows_by_manifest(storage)


def test_a_new_column_is_a_new_column_there(
    storage: LocalStorage, iceberg: Iceberg, properties: dict[str, str]
) -> None:
    """Files without it read as null."""
    older = pa.schema([field for field in LINES if field.name != "piece"])
    table = Table.open(storage, OWNER, holder="test", schema=older, format=iceberg)
    rows = lines(1, 3).drop_columns(["piece"])
    added = write_range(storage, [rows], FileName(STREAM, LIFE, 1, 3))
    table.commit_batch("0", {STREAM: Range(LIFE, 1, 3)}, added)
    table.close()
    after = opened(storage, format=iceberg)
    batch(after, storage, "1", 4, 6)

    found = rows_of(properties)

    assert [row["seq"] for row in found] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
    assert all(row["piece"] is None for row in found)
