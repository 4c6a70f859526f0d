"""Lines of a made-up stream, as tasks have them, and what any reader finds of them again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from logpipeline.listing import files_below
from logpipeline_spark.formats.choice import logs_of
from logpipeline_spark.formats.log import Logs
from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.table.counts import by_minute, by_source, counted
from logpipeline_spark.table.files import ROLLUP_MINUTE, ROLLUP_SOURCE, FileEntry, FileName, Range
from logpipeline_spark.table.parquet import write_range
from logpipeline_spark.table.s3 import S3Options
from logpipeline_spark.table.state import Kept
from logpipeline_spark.table.storage import Storage
from logpipeline_spark.table.upkeep import Upkeep
from logpipeline_spark.table.writer import TableWriter

STREAM = "LOGS_0"
LIFE = "18a1f3c2d4e5f607r0"
BEGIN = datetime(2026, 11, 21, 10, tzinfo=UTC)
PIPELINE = "default/demo"
SUBJECTS = "logs"
# One message a minute, of two lines: 60 messages fill an hour.
STEP = timedelta(minutes=1)

Key = tuple[str, str, int, int]


def lines(
    first: int,
    last: int,
    *,
    stream: str = STREAM,
    life: str = LIFE,
    begin: datetime = BEGIN,
    step: timedelta = STEP,
    idxs: Iterable[int] = (0, 1),
    text: str = "hello",
    off: timedelta = timedelta(),
) -> pa.Table:
    """Return the lines of messages *first* to *last*, whose own times are *off*."""
    rows = [
        {
            "stream": stream,
            "incarnation": life,
            "seq": seq,
            "idx": idx,
            "ts": begin + step * (seq - 1),
            "event_ts": begin + step * (seq - 1) + off,
            "partition": 0,
            "cluster": "c",
            "host": "node-a",
            "namespace": "shop",
            "pod": "cart-1",
            "container": "cart",
            "fd": "stdout",
            "level": "info" if seq % 3 else None,
            "line": f"{text} {seq}.{idx} é",
            "source": "shop/cart-1/uid/cart/0",
            "generation": "g",
            "offset": seq * 100 + idx,
            "resent": False,
        }
        for seq in range(first, last + 1)
        for idx in idxs
    ]
    return pa.Table.from_pylist(rows, schema=LINES)


def keys(first: int, last: int, *, stream: str = STREAM, life: str = LIFE) -> list[Key]:
    """Return the keys of `lines`."""
    return [(stream, life, seq, idx) for seq in range(first, last + 1) for idx in (0, 1)]


def logs(storage: Storage) -> Logs:
    """Return the logs of a Delta table."""
    return logs_of("delta", storage, catalog={}, s3=S3Options())


def opened(
    storage: Storage,
    *,
    holder: str = "test",
    pipeline: str = PIPELINE,
    schema: pa.Schema = LINES,
    of: Logs | None = None,
    wait: Callable[[float], object] = lambda seconds: None,
) -> TableWriter:
    """Take a table over without waiting."""
    return TableWriter.open(
        storage,
        of or logs(storage),
        pipeline=pipeline,
        subjects=SUBJECTS,
        holder=holder,
        schema=schema,
        wait=wait,
    )


def upkeep(storage: Storage, of: Logs | None = None, *, has_words: bool = False) -> Upkeep:
    """Return what looks after a table."""
    return Upkeep(storage, of or logs(storage), has_words=has_words)


def write(
    storage: Storage, first: int, last: int, *, stream: str = STREAM, writer: int = 1
) -> list[FileEntry]:
    """Write one range as a task does."""
    table = lines(first, last, stream=stream)
    return write_range(storage, [table], FileName(stream, LIFE, first, last, writer))


def kept(table: TableWriter, stream: str = STREAM, head: object = None) -> dict[str, Kept]:
    """Return what is kept of all streams, with another *head* of one of them, and no rows."""
    heads = {**table.state.heads, stream: head}
    return {name: Kept(each, {}, dict) for name, each in heads.items()}


def batch(
    table: TableWriter, storage: Storage, name: str, first: int, last: int, *, stream: str = STREAM
) -> None:
    """Write and commit one range, with a head that says how far it is."""
    added = write(storage, first, last, stream=stream, writer=table.writer)
    table.commit_batch(name, {stream: Range(LIFE, first, last)}, added, kept(table, stream, last))


def counted_batch(
    table: TableWriter,
    storage: Storage,
    first: int,
    last: int,
    *,
    begin: datetime = BEGIN,
    off: timedelta = timedelta(),
) -> None:
    """Write lines and counts of one range, as a task does, and commit them; the lines' own times
    are *off*.
    """
    rows = lines(first, last, begin=begin, off=off)
    name = FileName(STREAM, LIFE, first, last, table.writer)
    added = write_range(storage, [rows], name)
    for area, count in ((ROLLUP_MINUTE, by_minute), (ROLLUP_SOURCE, by_source)):
        added += write_range(storage, [count(counted(rows))], name, area=area)
    table.commit_batch(str(first), {STREAM: Range(LIFE, first, last)}, added, kept(table))


def table_files(folder: Path) -> set[str]:
    """Return all Parquet files of a table on this machine, needed or not."""
    names = (path.relative_to(folder).as_posix() for path in files_below(folder))
    return {name for name in names if name.endswith(".parquet") and "_delta_log" not in name}
