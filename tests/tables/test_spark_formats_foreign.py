"""Another program may change a table as its format allows. What logpipeline does not know of that
is refused with what to do, and never read or written wrongly.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake
from pyiceberg.table import Table
from pyiceberg.table.update import SetLocationUpdate

from logpipeline_cli.tables import duck
from logpipeline_spark.errors import Refused
from logpipeline_spark.formats.choice import logs_of
from logpipeline_spark.formats.iceberg import IcebergLog
from logpipeline_spark.formats.log import GRACE_HOURS, Change, Logs
from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.table.keys import groups_of
from logpipeline_spark.table.s3 import S3Options
from logpipeline_spark.table.scan import files
from logpipeline_spark.table.storage import LocalStorage
from logpipeline_spark.table.upkeep import Limits
from logpipeline_spark.table.verify import verify
from tables.erased import FORMATS, IDENTIFIER, Lake, in_order
from tables.foreign import delete_by_position
from tables.made import BEGIN, LIFE, batch, logs, opened, upkeep

OVER = BEGIN + timedelta(days=1)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def _query(lake: Lake) -> None:
    with duck.opened(lake.storage, lake.new_logs()) as connection:
        connection.execute("SELECT count(*) FROM lines").fetchall()


def _merge(lake: Lake) -> None:
    upkeep(lake.storage, lake.new_logs()).compact(OVER)


def _erase(lake: Lake) -> None:
    lake.erasure(host="web1").erase(OVER)


def _go_on(lake: Lake) -> None:
    lake.batch(lake.open(), 41, 60)


READERS = {"query": _query, "merge": _merge, "erase": _erase}
WRITERS = {"merge": _merge, "erase": _erase, "batch": _go_on}
ALL = READERS | WRITERS


@pytest.fixture
def two_batches(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    lake = FORMATS[request.param](tmp_path)
    lake.filled()
    return lake


def _iceberg_table(lake: Lake) -> Table:
    """Return the table as another program has it."""
    log = lake.new_logs()["lines"]
    assert isinstance(log, IcebergLog)
    loaded = log._loaded()
    assert loaded is not None
    return loaded


def _delete_a_row(lake: Lake) -> None:
    loaded = _iceberg_table(lake)
    delete_by_position(loaded, 3)


def _with_feature(lake: Lake, feature: TableFeatures) -> DeltaTable:
    """Return the table as another program has it, which gave it *feature*."""
    other = DeltaTable(f"{lake.storage.url}/lines")
    other.alter.add_feature(feature, allow_protocol_versions_increase=True)
    return other


@pytest.mark.parametrize("two_batches", ["iceberg"], indirect=True)
@pytest.mark.parametrize("act", READERS.values(), ids=READERS)
def test_rows_that_an_iceberg_client_deleted_by_position_do_not_come_back(
    two_batches: Lake, act: Callable[[Lake], None]
) -> None:
    """A file of deletes is not read here: so nothing is read past it, and no merge loses it."""
    before = in_order(two_batches.read())
    _delete_a_row(two_batches)
    left = in_order(two_batches.read())
    assert len(left) == len(before) - 1

    with pytest.raises(Refused, match=r"deleted rows of logs.lines .*rewrite_data_files"):
        act(two_batches)

    assert in_order(two_batches.read()) == left


@pytest.mark.parametrize("two_batches", ["iceberg"], indirect=True)
def test_batches_go_on_beside_rows_that_were_deleted_by_position(two_batches: Lake) -> None:
    """Adding lines needs nothing of what was deleted."""
    _delete_a_row(two_batches)
    before = len(two_batches.read())

    _go_on(two_batches)

    assert len(two_batches.read()) > before


@pytest.mark.parametrize("two_batches", ["delta"], indirect=True)
@pytest.mark.parametrize("act", ALL.values(), ids=ALL)
def test_a_delta_table_with_deletion_vectors_is_refused(
    two_batches: Lake, act: Callable[[Lake], None]
) -> None:
    """Rows that such a vector leaves out would be read, and a merge would write them again."""
    _with_feature(two_batches, TableFeatures.DeletionVectors)

    with pytest.raises(Refused, match=r"features .* \(deletionVectors\): .* DROP FEATURE"):
        act(two_batches)


@pytest.mark.parametrize("two_batches", ["delta"], indirect=True)
@pytest.mark.parametrize("act", WRITERS.values(), ids=WRITERS)
def test_a_delta_table_that_asks_more_of_writers_is_read_and_not_written(
    two_batches: Lake, act: Callable[[Lake], None]
) -> None:
    """A writer has to know all features of writers: what it does not know it would break."""
    other = _with_feature(two_batches, TableFeatures.ChangeDataFeed)
    before = other.version()

    _query(two_batches)
    with pytest.raises(Refused, match=r"features .* \(.*changeDataFeed.*\): .* DROP FEATURE"):
        act(two_batches)

    other.update_incremental()
    assert other.version() == before


def _through_a_link(lake: Lake) -> Callable[[], Logs]:
    """Return the logs of the same folder and catalogue, by another path."""
    folder = Path(lake.storage.url).parent
    link = folder.parent / "link"
    link.symlink_to(folder)
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "table": IDENTIFIER}
    storage = LocalStorage(link / "table")
    return lambda: logs_of("iceberg", storage, catalog=catalog, s3=S3Options())


def _clean(lake: Lake) -> None:
    upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))


def _keep_up(lake: Lake) -> None:
    lake.new_logs()["lines"].keep_up(datetime.now(UTC))


def _commit(lake: Lake) -> None:
    lake.new_logs()["lines"].commit(Change(operation="VACUUM START"))


def _begin(lake: Lake) -> None:
    lake.new_logs()["lines"].begin(LINES, {})


BY_PATH = ALL | {"clean": _clean, "keep up": _keep_up, "commit": _commit, "begin": _begin}


@pytest.mark.parametrize("act", BY_PATH.values(), ids=BY_PATH)
def test_an_iceberg_table_is_refused_by_another_spelling_of_its_path(
    tmp_path: Path, act: Callable[[Lake], None]
) -> None:
    """No URL of the catalogue would be below that path, so that no file would count as needed."""
    folder = tmp_path / "real"
    folder.mkdir()
    lake = FORMATS["iceberg"](folder)
    lake.filled()
    before = in_order(lake.read())
    lake.age(hours=GRACE_HOURS + 1)
    stored = {path for path in folder.rglob("*") if path.is_file()}
    linked = replace(
        lake,
        storage=LocalStorage(tmp_path / "link/table"),
        new_logs=_through_a_link(lake),
    )

    with pytest.raises(Refused, match=r"has files at file://.*/real/table.*spec.table.path"):
        act(linked)

    assert stored <= {path for path in folder.rglob("*") if path.is_file()}
    assert in_order(lake.read()) == before


def test_an_iceberg_table_whose_files_have_other_urls_is_not_cleaned(tmp_path: Path) -> None:
    """Another program may give a table another location: its files keep their URLs."""
    folder = tmp_path / "real"
    folder.mkdir()
    lake = FORMATS["iceberg"](folder)
    lake.filled()
    before = in_order(lake.read())
    new_logs = _through_a_link(lake)
    table = _iceberg_table(lake)
    with table.transaction() as transaction:
        moved = SetLocationUpdate(location=f"file://{tmp_path}/link/table/_iceberg/lines")
        transaction._apply((moved,))
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (0, 0))

    with pytest.raises(Refused, match=r"has files at file://.*/real/table.*spec.table.path"):
        new_logs()["lines"].keep_up(datetime.now(UTC))

    assert in_order(lake.read()) == before


def test_a_column_of_a_type_that_we_do_not_use_stays_as_it_is(tmp_path: Path) -> None:
    """It is carried along where files are merged, erased from and asked, and a new column of ours
    comes beside it.
    """
    lake = FORMATS["delta"](tmp_path)
    lake.filled()
    other = DeltaTable(f"{lake.storage.url}/lines")
    due = pa.field("due", pa.struct([("on", pa.date32()), ("cost", pa.decimal128(9, 2))]))
    # A host of their own, which `erase` does not name.
    rows = [row | {"host": "web9"} for row in other.to_pyarrow_table().slice(0, 3).to_pylist()]
    value = {"on": date(2026, 11, 24), "cost": Decimal("1.50")}
    columns = other.to_pyarrow_table().schema
    added = pa.Table.from_pylist(rows, columns).append_column(due, pa.array([value] * 3, due.type))
    write_deltalake(other, added, mode="append", schema_mode="merge")

    for go_on in ALL.values():
        go_on(lake)
    log = lake.new_logs()["lines"]
    log.begin(pa.schema([*LINES, ("status", pa.int32())]), {})

    found = log.schema()
    assert found is not None
    assert found.field("due").type == due.type
    assert "status" in found.names
    other.update_incremental()
    with_due = [row for row in other.to_pyarrow_table().to_pylist() if row["due"]]
    assert [row["due"] for row in with_due] == [value] * 3


@pytest.mark.parametrize("has_crashed", [False, True])
def test_erased_lines_go_from_iceberg_files_that_another_program_named(
    tmp_path: Path, has_crashed: bool
) -> None:
    """After its rewrite, files have its names; and after a crash between the end of their snapshot
    and their own, when no snapshot knows them, in three days.
    """
    lake = FORMATS["iceberg"](tmp_path)
    lake.filled()
    loaded = _iceberg_table(lake)
    loaded.overwrite(loaded.scan().to_arrow())
    lake.erasure(host="web1").erase(OVER)
    lake.batch(lake.open(), 41, 60)
    _erase(lake)
    assert b"web1" in _all_text(lake)
    if has_crashed:
        loaded.refresh()
        gone = [each.snapshot_id for each in loaded.snapshots()[:-1]]
        loaded.maintenance.expire_snapshots().by_ids(gone).commit()

    lake.age(hours=25 * 3 if has_crashed else GRACE_HOURS + 1)
    upkeep(lake.storage, lake.new_logs()).clean(datetime.now(UTC))

    assert b"web1" not in _all_text(lake)
    assert {row["seq"] for row in lake.rows()} <= set(range(1, 61))
    assert lake.problems == ()


def test_iceberg_files_that_another_program_put_elsewhere_have_upkeep_too(tmp_path: Path) -> None:
    """They are merged by who wrote them, and go when their last line is too old."""
    lake = FORMATS["iceberg"](tmp_path)
    lake.filled(4)
    loaded = _iceberg_table(lake)
    rows = loaded.scan().to_arrow()
    hour = pc.less(rows["ts"], pa.scalar(BEGIN + timedelta(hours=1), rows["ts"].type))
    loaded.overwrite(rows.filter(hour))
    loaded.append(rows.filter(pc.invert(hour)))
    assert not any(entry.path.startswith("lines/") for entry in lake.new_logs()["lines"].files())

    assert lake.problems == ()
    assert upkeep(lake.storage, lake.new_logs()).compact(OVER) == []
    limits = Limits(age=timedelta(days=1))
    upkeep(lake.storage, lake.new_logs()).retain(BEGIN + timedelta(days=1, hours=1), limits)

    assert {row["seq"] for row in lake.rows()} == set(range(61, 81))


def _all_text(lake: Lake) -> bytes:
    """Return the hosts of all lines in files below the table, whatever their names."""
    paths = Path(lake.storage.url).rglob("*.parquet")
    return b" ".join(
        str(pq.ParquetFile(path).read(columns=["host"])["host"].to_pylist()).encode()
        for path in paths
        if "words" not in path.parts
    )


def _optimize(table: DeltaTable) -> None:
    table.optimize.compact()


def _delete_a_line(table: DeltaTable) -> None:
    table.delete("stream = 'LOGS_1' AND seq = 2")


def _rewritten_alone(table: DeltaTable) -> None:
    _optimize(table)
    _delete_a_line(table)


@pytest.mark.parametrize("rewrite", [_optimize, _rewritten_alone])
def test_groups_of_several_streams_that_another_program_wrote_are_verified_and_merged(
    tmp_path: Path, rewrite: Callable[[DeltaTable], None]
) -> None:
    """Such a program knows nothing of streams; the merged files have groups of one stream again."""
    storage = LocalStorage(tmp_path)
    table = opened(storage)
    batch(table, storage, "0", 1, 3)
    batch(table, storage, "1", 1, 3, stream="LOGS_1")
    other = DeltaTable(f"{storage.url}/lines")
    rewrite(other)
    assert verify(storage, logs(storage)).problems == ()
    batch(table, storage, "2", 4, 6)
    batch(table, storage, "3", 4, 6, stream="LOGS_1")
    other.update_incremental()
    before = in_order(other.to_pyarrow_table())

    assert len(upkeep(storage).compact(OVER)) == 1

    [merged] = files(logs(storage))
    lives = [group.life for group in groups_of(storage, merged.path)]
    assert lives == [("LOGS_0", LIFE), ("LOGS_1", LIFE)]
    other.update_incremental()
    assert in_order(other.to_pyarrow_table()) == before
    assert verify(storage, logs(storage)).problems == ()


def test_a_line_that_another_program_doubled_is_found_in_groups_of_several_streams(
    tmp_path: Path,
) -> None:
    """Such groups are read by stream, not left out."""
    storage = LocalStorage(tmp_path)
    table = opened(storage)
    batch(table, storage, "0", 1, 3)
    batch(table, storage, "1", 1, 3, stream="LOGS_1")
    other = DeltaTable(f"{storage.url}/lines")
    rows = other.to_pyarrow_table()
    line = rows.filter(pc.equal(rows["stream"], "LOGS_1")).slice(0, 1)
    write_deltalake(other, line, mode="append")
    other.update_incremental()
    _optimize(other)

    problems = verify(storage, logs(storage)).problems

    assert any("twice: stream LOGS_1" in problem for problem in problems)
