"""Tables in each format with lines of several hosts, and what each reader finds of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from logpipeline_cli.tables import duck
from logpipeline_spark.formats.choice import logs_of
from logpipeline_spark.formats.iceberg import CATALOG_NAME, IcebergLog
from logpipeline_spark.formats.log import GRACE_HOURS, Logs
from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.table.erasure import Condition, Erasure
from logpipeline_spark.table.files import FileEntry, FileName, Range
from logpipeline_spark.table.parquet import write_range
from logpipeline_spark.table.s3 import S3Options
from logpipeline_spark.table.storage import LocalStorage
from logpipeline_spark.table.verify import verify
from logpipeline_spark.table.writer import TableWriter
from tables.made import LIFE, STREAM, kept, lines, opened

IDENTIFIER = "logs.lines"
HOSTS = ("web1", "web2", "db1")
# A night: what no version names is old enough to be removed.
SLEPT_HOURS = GRACE_HOURS + 1
Row = dict[str, Any]


def mixed(first: int, last: int) -> pa.Table:
    """Return `lines` of three hosts in turn; those of `db1` have no namespace, and some are no
    text.
    """
    rows = lines(first, last).to_pylist()
    for row in rows:
        host = HOSTS[row["seq"] % len(HOSTS)]
        row |= {
            "host": host,
            "namespace": None if host == "db1" else row["namespace"],
            "source": f"/var/log/{host}/app[{row['idx']}].log",
            "raw": b"\xff%d" % row["seq"] if row["idx"] else None,
        }
    return pa.Table.from_pylist(rows, schema=LINES)


@dataclass
class Lake:
    """A table in a format; *read* is how a program reads it that knows only the format."""

    storage: LocalStorage
    new_logs: Callable[[], Logs]
    read: Callable[[], pa.Table]

    def open(self) -> TableWriter:
        """Take the table over."""
        return opened(self.storage, holder="same", of=self.new_logs())

    def write(self, table: TableWriter, first: int, last: int) -> list[FileEntry]:
        """Write a range as a task does."""
        name = FileName(STREAM, LIFE, first, last, table.writer)
        return write_range(self.storage, [mixed(first, last)], name)

    def batch(self, table: TableWriter, first: int, last: int) -> None:
        """Write and commit a range."""
        added = self.write(table, first, last)
        table.commit_batch(str(first), {STREAM: Range(LIFE, first, last)}, added, kept(table))

    def filled(self, batches: int = 2) -> TableWriter:
        """Take the table over, and commit batches of 20 messages."""
        table = self.open()
        for first in range(1, 20 * batches, 20):
            self.batch(table, first, first + 19)
        return table

    def erasure(self, **said: Any) -> Erasure:
        """Return what erases lines, as a command has it."""
        return Erasure(self.storage, self.new_logs(), Condition(**said))

    def rows(self) -> list[Row]:
        """Return all rows with all columns, by key; every reader finds the same."""
        found = in_order(self.read())
        with duck.opened(self.storage, self.new_logs()) as connection:
            asked = f"SELECT seq, idx, host, line, raw FROM lines ORDER BY {_ORDER}"
            assert connection.execute(asked).fetchall() == _five(found)
        return found

    def age(self, *, hours: float) -> None:
        """Let all that was done have been done *hours* earlier."""
        age(self.storage, self.new_logs(), hours=hours)

    @property
    def problems(self) -> tuple[str, ...]:
        """What verify finds."""
        return verify(self.storage, self.new_logs()).problems

    def stored_text(self) -> bytes:
        """Return all text that Parquet files of lines hold, needed or not."""
        folder = Path(self.storage.url) / "lines"
        tables = [pq.ParquetFile(path).read() for path in folder.rglob("dt=*/**/*.parquet")]
        return "\n".join(text for table in tables for text in _texts(table)).encode()


def rows_of(first: int, last: int, *, without: Callable[[Row], bool] = lambda row: False) -> Any:
    """Return the rows of `mixed`, but those *without*."""
    return [row for row in in_order(mixed(first, last)) if not without(row)]


def in_order(table: pa.Table) -> list[Row]:
    """Return the rows of *table* by key, with the columns of every table."""
    order = [(name, "ascending") for name in ("stream", "incarnation", "seq", "idx")]
    return list(table.select(LINES.names).cast(LINES).sort_by(order).to_pylist())


def delta(folder: Path) -> Lake:
    """Return a Delta table, read by delta-rs."""
    storage = LocalStorage(folder / "table")

    def new_logs() -> Logs:
        return logs_of("delta", storage, catalog={}, s3=S3Options())

    return Lake(storage, new_logs, lambda: DeltaTable(f"{storage.url}/lines").to_pyarrow_table())


def iceberg(folder: Path) -> Lake:
    """Return an Iceberg table, read by pyiceberg."""
    storage = LocalStorage(folder / "table")
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}

    def new_logs() -> Logs:
        catalog = {"table": IDENTIFIER, **properties}
        return logs_of("iceberg", storage, catalog=catalog, s3=S3Options())

    def read() -> pa.Table:
        return load_catalog(CATALOG_NAME, **properties).load_table(IDENTIFIER).scan().to_arrow()

    return Lake(storage, new_logs, read)


class Evening(datetime):
    """The clock as it was before the machine slept."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Evening:
        return super().now(tz) - timedelta(hours=SLEPT_HOURS)


def age(storage: LocalStorage, logs: Logs, *, hours: float) -> None:
    """Let all that was done to a table have been done *hours* earlier."""
    folder = Path(storage.url)
    for path in folder.rglob("*"):
        if path.is_file():
            old = path.stat().st_mtime - hours * 3600
            for_log = path.parent.name == "_delta_log" and path.suffix == ".json"
            if for_log:
                _age_commit(path, hours)
            os.utime(path, (old, old))
    log = logs["lines"]
    if isinstance(log, IcebergLog):
        _age_snapshots(log, hours)


def _age_commit(path: Path, hours: float) -> None:
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        if "remove" in action:
            action["remove"]["deletionTimestamp"] -= int(hours * 3_600_000)
    path.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def _age_snapshots(log: IcebergLog, hours: float) -> None:
    table = log._loaded()
    assert table is not None
    path = Path(table.metadata_location.removeprefix("file://"))
    data = json.loads(path.read_text())
    for snapshot in data["snapshots"]:
        snapshot["timestamp-ms"] -= int(hours * 3_600_000)
    path.write_text(json.dumps(data))


FORMATS = {"delta": delta, "iceberg": iceberg}
_ORDER = "stream, incarnation, seq, idx"


def _five(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in ("seq", "idx", "host", "line", "raw")) for row in rows]


def _texts(table: pa.Table) -> list[str]:
    pairs = zip(table["host"].to_pylist(), table["line"].to_pylist(), strict=True)
    return [f"{host} {line}" for host, line in pairs]
