"""Each lake format's log is the truth of a table: whoever knows only the format reads what was
committed, also beside upkeep, and of two writers the log takes one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from logpipeline_spark.formats.choice import logs_of
from logpipeline_spark.formats.iceberg import CATALOG_NAME
from logpipeline_spark.formats.log import Logs, Overtaken
from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.table.erasure import Condition, Erasure
from logpipeline_spark.table.files import FileName, Range
from logpipeline_spark.table.parquet import write_range
from logpipeline_spark.table.s3 import S3Options
from logpipeline_spark.table.scan import files
from logpipeline_spark.table.storage import LocalStorage, Storage
from logpipeline_spark.table.upkeep import Limits
from logpipeline_spark.table.verify import verify
from tables.made import BEGIN, LIFE, STREAM, Key, batch, kept, keys, lines, opened, upkeep
from tables.s3 import S3Server

pytest_plugins = ["tables.s3_fixtures"]

IDENTIFIER = "logs.lines"
NAMES = ["stream", "incarnation", "seq", "idx"]
OVER = BEGIN + timedelta(days=1)
BATCHES = 24

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@dataclass
class Lake:
    """A table in a format, and how it is read by somebody who knows only the format."""

    storage: Storage
    new_logs: Callable[[], Logs]
    read: Callable[[], pa.Table]

    @property
    def keys(self) -> list[Key]:
        """All keys, in their order."""
        found = self.read().select(NAMES)
        return sorted(zip(*(found[name].to_pylist() for name in NAMES), strict=True))

    def batch(self, table: Any, first: int, last: int) -> None:
        """Commit messages *first* to *last*."""
        batch(table, self.storage, str(first), first, last)


@pytest.fixture(params=["delta", "iceberg", "delta in a bucket"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    if request.param == "delta in a bucket":
        server: S3Server = request.getfixturevalue("server")
        place = server.storage(tmp_path.name)
        return _delta(place)
    storage = LocalStorage(tmp_path / "table")
    if request.param == "delta":
        return _delta(storage)
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}

    def read() -> pa.Table:
        catalog = load_catalog(CATALOG_NAME, **properties)
        try:
            return catalog.load_table(IDENTIFIER).scan().to_arrow()
        except NoSuchTableError:
            return LINES.empty_table()

    def new_logs() -> Logs:
        catalog = {"table": IDENTIFIER, **properties}
        return logs_of("iceberg", storage, catalog=catalog, s3=S3Options())

    return Lake(storage, new_logs, read)


def _delta(storage: Storage) -> Lake:
    url = f"{storage.url}/lines"

    def read() -> pa.Table:
        return DeltaTable(url, storage_options=storage.lake_options()).to_pyarrow_table()

    def new_logs() -> Logs:
        return logs_of("delta", storage, catalog={}, s3=S3Options())

    return Lake(storage, new_logs, read)


@pytest.mark.smoke
def test_what_is_committed_is_what_the_format_says(lake: Lake) -> None:
    """Every column of every row, after batches, compaction and retention."""
    table, keeper = opened(lake.storage, of=lake.new_logs()), upkeep(lake.storage, lake.new_logs())
    lake.batch(table, 1, 40)
    lake.batch(table, 41, 150)
    order = [(name, "ascending") for name in NAMES]
    found = lake.read().select(LINES.names).sort_by(order)
    assert found.to_pylist() == lines(1, 150).sort_by(order).to_pylist()

    assert len(keeper.compact(OVER)) > 0
    assert lake.keys == keys(1, 150)
    keeper.retain(BEGIN + timedelta(hours=2), Limits(age=timedelta(hours=1)))
    keeper.clean(OVER)
    lake.batch(table, 151, 160)

    assert lake.keys == keys(61, 160)
    assert verify(lake.storage, lake.new_logs()).problems == ()
    after = opened(lake.storage, of=lake.new_logs())
    assert after.state.cover.end_of(STREAM) == Range(LIFE, 1, 160)


def test_of_two_writers_the_log_takes_one(lake: Lake) -> None:
    """The former one's batch is refused, whatever it had written."""
    former = opened(lake.storage, of=lake.new_logs())
    lake.batch(former, 1, 10)
    successor = opened(lake.storage, of=lake.new_logs())
    with pytest.raises(Overtaken, match="a table has one writer"):
        lake.batch(former, 11, 30)
    lake.batch(successor, 11, 20)

    assert lake.keys == keys(1, 20)


def test_what_is_erased_is_gone_for_who_knows_the_format(lake: Lake) -> None:
    """Also from the disk or the bucket, and the next batch goes on."""
    table = opened(lake.storage, of=lake.new_logs())
    lake.batch(table, 1, 40)
    lake.batch(table, 41, 100)
    condition = Condition(host="node-a", until=BEGIN + timedelta(minutes=50))

    proof = Erasure(lake.storage, lake.new_logs(), condition).erase(OVER, has_grace=False)
    lake.batch(table, 101, 110)

    assert lake.keys == keys(51, 110)
    assert proof.lines == 100
    assert sorted(proof.dropped) == sorted(each.found.entry.path for each in proof.replaced)
    stored = {found.path for found in lake.storage.list("lines") if "/dt=" in found.path}
    assert stored == {entry.path for entry in files(lake.new_logs())}
    assert verify(lake.storage, lake.new_logs()).problems == ()


def test_of_two_who_merge_one_does_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other leaves the table as it is."""
    table = opened(lake.storage, of=lake.new_logs())
    for first in range(1, 60, 10):
        lake.batch(table, first, first + 9)
    one, other = (upkeep(lake.storage, lake.new_logs()) for _ in range(2))
    planned = other._files("lines")
    one.compact(OVER)
    monkeypatch.setattr(type(other), "_files", lambda self, area: planned)

    assert other.compact(OVER, merges_max=1) == []
    assert lake.keys == keys(1, 60)


def test_a_new_column_is_a_new_column_there(lake: Lake) -> None:
    """Files without it read as null."""
    older = pa.schema([field for field in LINES if field.name != "piece"])
    table = opened(lake.storage, of=lake.new_logs(), schema=older)
    rows = lines(1, 3).drop_columns(["piece"])
    added = write_range(lake.storage, [rows], FileName(STREAM, LIFE, 1, 3, table.writer))
    table.commit_batch("0", {STREAM: Range(LIFE, 1, 3)}, added, kept(table))
    table.close()
    lake.batch(opened(lake.storage, of=lake.new_logs()), 4, 6)

    found = lake.read()

    assert lake.keys == keys(1, 6)
    assert found["piece"].null_count == found.num_rows == 12


def test_no_reader_fails_or_sees_a_line_twice_beside_upkeep(lake: Lake) -> None:
    """Who reads in a loop beside batches, compaction and cleaning sees a beginning of the lines,
    each once, and never less than before.
    """
    table, keeper = opened(lake.storage, of=lake.new_logs()), upkeep(lake.storage, lake.new_logs())
    lake.batch(table, 1, 10)
    seen: list[int] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            found = lake.keys
            last = found[-1][2]
            assert found == keys(1, last), f"after {seen[-3:]}"
            seen.append(last)

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        try:
            for number in range(1, BATCHES):
                lake.batch(table, number * 10 + 1, number * 10 + 10)
                keeper.compact(OVER)
                keeper.clean(OVER)
        finally:
            done.set()
        reader.result()

    assert seen == sorted(seen)
    assert len(set(seen)) > 2
    assert lake.keys == keys(1, BATCHES * 10)


def test_polars_reads_what_delta_says(tmp_path: Path) -> None:
    """By its own reader of the format, before and after compaction."""
    lake = _delta(LocalStorage(tmp_path / "table"))
    table = opened(lake.storage, of=lake.new_logs())
    lake.batch(table, 1, 40)
    lake.batch(table, 41, 60)
    for _ in range(2):
        found = pl.scan_delta(f"{lake.storage.url}/lines").select(NAMES).collect()
        assert sorted(found.rows()) == keys(1, 60)
        upkeep(lake.storage, lake.new_logs()).compact(OVER)
    assert len(files(lake.new_logs())) == 1
