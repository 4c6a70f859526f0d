"""Those who are at one table at a time: a writer, upkeep, somebody who erases, and readers. Each is
a process of its own, so that a test can kill it.

Files that no version needs stay for `GRACE_S` here instead of `GRACE_HOURS`. Time is never ahead of
those who are at work: who reads for longer than that keeps files for as long, as none reads for
longer than `GRACE_HOURS`.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import duckdb
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from logpipeline_cli.tables import duck
from logpipeline_spark.errors import Refused, sentence_of
from logpipeline_spark.formats import delta as delta_module
from logpipeline_spark.formats.choice import Format, logs_of
from logpipeline_spark.formats.delta import DeltaLog
from logpipeline_spark.formats.iceberg import CATALOG_NAME
from logpipeline_spark.formats.log import GRACE_HOURS, Logs
from logpipeline_spark.lines.schema import LINES as SCHEMA
from logpipeline_spark.table.counts import by_minute, by_source, counted
from logpipeline_spark.table.erasure import Condition, Erasure
from logpipeline_spark.table.files import (
    LINES,
    ROLLUP_MINUTE,
    ROLLUP_SOURCE,
    SUFFIX,
    FileName,
    Range,
)
from logpipeline_spark.table.parquet import write_range
from logpipeline_spark.table.s3 import S3Options, storage_of
from logpipeline_spark.table.scan import files, urls
from logpipeline_spark.table.storage import LocalStorage, Storage
from logpipeline_spark.table.upkeep import Limits, Upkeep, expired
from logpipeline_spark.table.writer import TableWriter
from tables.board import BATCH, Board, Facts, Row, complaints, may_fail
from tables.erased import HOSTS, IDENTIFIER, mixed
from tables.local_spark import local_spark
from tables.made import BEGIN, LIFE, STEP, STREAM, kept, opened

WRITER, UPKEEP, ERASER = "writer", "upkeep", "eraser"
PHASES = ("begin", "batch", "compact", "retain", "clean", "erase", "query")
COLUMNS = ("stream", "incarnation", "seq", "idx", "host", "line")
GRACE_S = 3.0
# Between the time that a commit says and the moment from which it is seen.
SLACK_S = GRACE_S / 2
# Hours of lines that retention leaves: a query is cheap, and still over many files.
HOURS_KEPT = 4
HOUR_MESSAGES = 60
# All hours are over: whatever there is can be merged.
OVER = BEGIN + timedelta(days=3650)
# Batches and queries come often, and leave room for others on two processors.
PAUSE_S = 0.05
QUERY_PAUSE_S = 0.25
# A reader that has chosen its version waits so long for that to be a former one.
LINGER_S = 0.25
POLL_S = 0.002
# What an erasure says when others were faster each time.
OVERTAKEN = "nothing was erased: try again"

Linger = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table is, and in which format; *folder* holds an Iceberg table's catalogue, and
    *keys* the keys of a bucket. Spark is a reader where *has_spark* says so: a JVM takes seconds.
    """

    format: Format
    url: str
    folder: str
    endpoint: str | None = None
    region: str | None = None
    keys: str | None = None
    has_spark: bool = False

    @property
    def _s3(self) -> S3Options:
        keys = None if self.keys is None else Path(self.keys)
        return S3Options(
            endpoint=self.endpoint,
            region=self.region,
            access_key_file=keys and keys / "access",
            secret_key_file=keys and keys / "secret",
        )

    @property
    def storage(self) -> Storage:
        """The place of the table's files."""
        return storage_of(self.url, self._s3)

    def new_logs(self) -> Logs:
        """Return logs that nobody else has."""
        catalog = {} if self.format == "delta" else {"table": IDENTIFIER, **self._catalog}
        return logs_of(self.format, self.storage, catalog=catalog, s3=self._s3)

    @property
    def _catalog(self) -> dict[str, str]:
        return {"type": "sql", "uri": f"sqlite:///{self.folder}/catalog.db"}

    @property
    def is_catalog_locked(self) -> bool:
        """Whether a process has a lock on the catalogue. It is a file here: if that process is
        suspended, all others wait for the lock. A server would end its transaction.
        """
        if self.format == "delta":
            return False
        connection = sqlite3.connect(f"{self.folder}/catalog.db", timeout=0)
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            return True
        finally:
            connection.close()
        return False

    @property
    def readers(self) -> Mapping[str, Callable[[Linger], pa.Table]]:
        """How programs read this table, by their names; each lingers once it has its version."""
        common = {"query": self._by_query, "polars, files": self._by_polars_files}
        if self.format == "iceberg":
            return {**common, "pyiceberg": self._by_pyiceberg}
        return {
            **common,
            "polars": self._by_polars,
            "deltalake": self._by_deltalake,
            "DuckDB": self._by_duckdb,
            **({"Spark": self._by_spark} if self.has_spark else {}),
        }

    def _by_query(self, linger: Linger) -> pa.Table:
        """Read as `logpipeline query` does."""
        with duck.opened(self.storage, self.new_logs()) as connection:
            linger()
            return connection.sql(f"SELECT {', '.join(COLUMNS)} FROM lines").to_arrow_table()

    def _by_polars_files(self, linger: Linger) -> pa.Table:
        """Read the files that the log names."""
        paths = urls(self.storage, files(self.new_logs()))
        linger()
        if not paths:
            # All lines are erased; polars reads no list without files.
            return SCHEMA.empty_table().select(COLUMNS)
        options = {
            name.lower(): value for name, value in self.storage.lake_options().items()
        } or None
        frame = pl.scan_parquet(paths, storage_options=options, hive_partitioning=False)
        return frame.select(COLUMNS).collect().to_arrow()

    def _by_polars(self, linger: Linger) -> pa.Table:
        options = self.storage.lake_options() or None
        frame = pl.scan_delta(f"{self.url}/{LINES}", storage_options=options).select(COLUMNS)
        linger()
        return frame.collect().to_arrow()

    def _by_deltalake(self, linger: Linger) -> pa.Table:
        dataset = self._delta().to_pyarrow_dataset()
        linger()
        return dataset.to_table(columns=list(COLUMNS))

    def _by_duckdb(self, linger: Linger) -> pa.Table:
        dataset = self._delta().to_pyarrow_dataset()
        linger()
        with duckdb.connect() as connection:
            found = connection.from_arrow(dataset)
            return found.project(", ".join(COLUMNS)).to_arrow_table()

    def _by_spark(self, linger: Linger) -> pa.Table:
        # By its number: Spark would go on to the newest version when it begins to read.
        reader = local_spark().read.format("delta").option("versionAsOf", self._delta().version())
        frame = reader.load(f"{self.url}/{LINES}").select(*COLUMNS)
        linger()
        return frame.toArrow()

    def _delta(self) -> DeltaTable:
        options = self.storage.lake_options() or None
        return DeltaTable(f"{self.url}/{LINES}", storage_options=options)

    def _by_pyiceberg(self, linger: Linger) -> pa.Table:
        s3 = self._s3.named("s3.endpoint", "s3.region", "s3.access-key-id", "s3.secret-access-key")
        table = load_catalog(CATALOG_NAME, **s3, **self._catalog).load_table(IDENTIFIER)
        linger()
        return table.scan(selected_fields=COLUMNS).to_arrow()


def rows_of(table: pa.Table) -> list[Row]:
    """Return the rows that a reader found."""
    return list(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))


def write(place: Place, board: Board) -> None:
    """Take the table over, and write one batch after the other."""
    storage = place.storage
    with board.busy(WRITER, "begin"):
        table = opened(storage, holder=WRITER, of=place.new_logs())
    end = table.state.cover.end_of(STREAM)
    last = 0 if end is None else end.last
    board.reach("committed", last)
    while not board["stop"]:
        with board.busy(WRITER, "batch"):
            _batch(table, storage, last + 1, last + BATCH)
            last += BATCH
            board.reach("committed", last)
            table.prune()
        time.sleep(PAUSE_S)


def _batch(table: TableWriter, storage: Storage, first: int, last: int) -> None:
    """Write and commit lines and counts, as the job does."""
    rows = mixed(first, last)
    name = FileName(STREAM, LIFE, first, last, table.writer)
    added = write_range(storage, [rows], name)
    for area, count in ((ROLLUP_MINUTE, by_minute), (ROLLUP_SOURCE, by_source)):
        added += write_range(storage, [count(counted(rows))], name, area=area)
    table.commit_batch(str(first), {STREAM: Range(LIFE, first, last)}, added, kept(table))


def keep(place: Place, board: Board, log: Path) -> None:
    """Merge, retain and clean, again and again, as a job's upkeep does: what is refused is tried
    again.
    """
    keeper = Upkeep(place.storage, place.new_logs())
    while not board["stop"]:
        hours = board["committed"] // HOUR_MESSAGES - HOURS_KEPT
        with refusals(board, UPKEEP, log):
            with board.busy(UPKEEP, "compact"):
                board["merges"] += len(keeper.compact(OVER))
            if hours > 0:
                with board.busy(UPKEEP, "retain"):
                    retain(keeper, board, hours)
            clean(keeper, board, UPKEEP)
        # Who erases has to be faster than merges, which a job does once a minute.
        time.sleep(QUERY_PAUSE_S)


def retain(keeper: Upkeep, board: Board, hours: int) -> None:
    """Take the first *hours* out of the table."""
    now, limits = BEGIN + timedelta(hours=hours + 1), Limits(age=timedelta(hours=1))
    board.reach("cut_meant", hours * HOUR_MESSAGES)
    keeper.retain(now, limits)
    # It gives way to whoever changes the same files again and again.
    if not expired(keeper.logs[LINES].files(), now, limits):
        board.reach("cut_done", hours * HOUR_MESSAGES)


def clean(keeper: Upkeep, board: Board, actor: str) -> None:
    """Remove what was needed by no version for `GRACE_S`, unless somebody may still read it."""
    with board.busy(actor, "clean"):
        now, needed_s = datetime.now(UTC), board.oldest_s(but=actor) + SLACK_S
        if not isinstance(keeper.logs[LINES], DeltaLog):
            keeper.clean(now + timedelta(hours=GRACE_HOURS, seconds=-max(needed_s, GRACE_S)))
        elif needed_s <= GRACE_S:
            # Its files are older than they are: see `shorten_grace`.
            keeper.clean(now)
        else:
            # Its library looks at its own clock as well.
            board["cleans_waiting"] += 1
            return
        board["cleans"] += 1


def erase(place: Place, board: Board, log: Path, *, number: int, has_grace: bool) -> None:
    """Erase what is committed of one host, as the command does: it cleans first."""
    storage, logs = place.storage, place.new_logs()
    committed = board["committed"]
    if not committed:
        return
    host = number % len(HOSTS)
    with refusals(board, ERASER, log):
        clean(Upkeep(storage, logs), board, ERASER)
    with refusals(board, ERASER, log), board.busy(ERASER, "erase"):
        board.reach(f"meant.{host}", committed)
        board["harsh_begun"] += not has_grace
        erasure(place, host, committed).erase(datetime.now(UTC), has_grace=has_grace)
        board["harsh_ended"] = board["harsh_begun"]
        board.reach(f"done.{host}", committed)
        board["erasures"] += 1


def erasure(place: Place, host: int, last: int) -> Erasure:
    """Return what erases the messages up to *last* of one host."""
    condition = Condition(host=HOSTS[host], until=BEGIN + STEP * last)
    return Erasure(place.storage, place.new_logs(), condition)


@contextmanager
def refusals(board: Board, actor: str, log: Path) -> Iterator[None]:
    """Note what is refused in the block, and go on."""
    before = board.facts()
    try:
        yield
    except (Refused, OSError) as error:
        is_overtaken = actor == ERASER and OVERTAKEN in str(error)
        if is_overtaken or may_fail(before, board.facts()):
            board["excused"] += 1
        else:
            note(log, f"{actor}: {sentence_of(error)}")


def read_on(place: Place, board: Board, reader: str, log: Path) -> None:
    """Read again and again, every other time a version that is a former one by then."""
    read = place.readers[reader]
    turn = 0
    while not board["stop"]:
        turn += 1
        linger = partial(_linger, board) if turn % 2 else lambda: None
        with board.busy(reader, "query"):
            before = board.facts()
            found: list[Row] | None
            try:
                found = rows_of(read(linger))
            except Exception as error:  # noqa: BLE001  # whatever it is, a reader fails by it
                found = None
                said = f"fails: {type(error).__name__}: {error}"
            after = board.facts()
        if found is not None:
            _judge(reader, found, before, after, log)
        elif may_fail(before, after):
            board["excused"] += 1
        else:
            note(log, f"{reader} {said}")
        time.sleep(QUERY_PAUSE_S)


def _judge(reader: str, found: list[Row], before: Facts, after: Facts, log: Path) -> None:
    for said in complaints(found, before, after):
        note(log, f"{reader}: {said}; {before}; {after}")


def _linger(board: Board) -> None:
    """Wait until files were replaced, or for a moment."""
    merges, deadline = board["merges"], time.monotonic() + LINGER_S
    while board["merges"] == merges and time.monotonic() < deadline:
        time.sleep(POLL_S)


def settle(place: Place, board: Board) -> None:
    """Finish what somebody who was killed had begun."""
    end = opened(place.storage, holder=WRITER, of=place.new_logs()).state.cover.end_of(STREAM)
    assert end is not None, "there is a batch"
    board.reach("committed", end.last)
    keeper = Upkeep(place.storage, place.new_logs())
    retain(keeper, board, board["cut_meant"] // HOUR_MESSAGES)
    for host in range(len(HOSTS)):
        last = board[f"meant.{host}"]
        if last:
            erasure(place, host, last).erase(datetime.now(UTC))
            board.reach(f"done.{host}", last)


def note(log: Path, text: str) -> None:
    """Append a line, as a whole, whoever else does."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, f"{' '.join(text.split())}\n".encode())
    finally:
        os.close(file)


def shorten_grace() -> None:
    """Let what is replaced from now on be older than it is: the former versions of Delta's files go
    by the times in its log, and files of no version by their own.

    Iceberg needs none of it: all of its times are compared with one that is given.
    """
    earlier_s = GRACE_HOURS * 3600 - GRACE_S

    def time_ns() -> int:
        return time.time_ns() - int(earlier_s * 1e9)

    vars(delta_module)["time"] = SimpleNamespace(time_ns=time_ns)
    place = LocalStorage._place

    def placed(
        self: LocalStorage, put: Callable[[Path, Path], None], source: Path, target: Path
    ) -> None:
        place(self, put, source, target)
        if target.suffix == SUFFIX:
            # Not before: what is being made is cleaned away by its own time as well.
            os.utime(target, ns=(time_ns(), time_ns()))

    LocalStorage._place = placed  # type: ignore[method-assign]
