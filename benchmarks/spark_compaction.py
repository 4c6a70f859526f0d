"""What it costs to merge the files of an hour that is over, by how long the batches were that wrote
them, beside DuckDB, which puts the same rows in order into one file. A part of
``make bench-spark``.
"""

from __future__ import annotations

import multiprocessing
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataset import make_log
from logpipeline import zstd
from logpipeline_spark.lines.schema import LINES, LINES_ENCODED
from logpipeline_spark.source.planning import worth_starting
from logpipeline_spark.table.compaction import Merge, Sizes, write_merged
from logpipeline_spark.table.files import FileEntry, FileName, folder_of
from logpipeline_spark.table.parquet import write_ranges
from logpipeline_spark.table.storage import LocalStorage
from run import Row, row_of

STREAMS, HOSTS, TASKS = 10, 4, 2
# The compression of messages, and how many lines a small shipper has for one.
SHIPPED_LEVEL = 1
MESSAGE_LINES = 20
HOUR = datetime(2026, 11, 20, 10, tzinfo=UTC)
# By the batches of an hour.
CASES = {360: "batches of ten seconds", 36: "batches of 100 seconds", 2: "batches of half an hour"}
RIVAL = "DuckDB's COPY"
LEVELS, LEVELS_SHARE = ("info", "warn", "error"), (0.9, 0.07, 0.03)

Numbers = npt.NDArray[np.int64]


def compaction_rows(folder: Path, *, lines: int, rounds: int) -> list[Row]:
    """Return what the merge of an hour of *lines* lines costs, each as the median of *rounds*."""
    source = folder / "compacted.log"
    make_log(source, size=lines * 150)
    with source.open() as file:
        texts = [line.rstrip("\n") for line in islice(file, lines)]
    assert len(texts) == lines
    size = sum(map(len, texts)) + lines
    rows = []
    for batches, name in CASES.items():
        table = folder / "compacted"
        storage = LocalStorage(table)
        entries = Hour(texts, batches).write(storage)
        works = partial(_merge, storage, entries), partial(_copy, table, entries)
        with _process() as merging, _process() as copying:
            pairs = tuple(zip((merging, copying), works, strict=True))
            costs = [
                [process.submit(_cost_s, work).result() for process, work in pairs]
                for _ in range(rounds + 1)
            ]
        # Libraries are loaded in the first one.
        own, rival = ([cost * 1e9 / size for cost in each] for each in zip(*costs[1:], strict=True))
        rows.append(row_of(f"compaction, {name}", "cpu", "CPU s/GB", own, RIVAL, rival))
        shutil.rmtree(table)
    source.unlink()
    return rows


def _process() -> ProcessPoolExecutor:
    """Return a process for the work of one side: neither gets memory that the other has left. It
    loads Arrow with the settings of `logpipeline_spark`, which came too late for this process.
    """
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def _cost_s(work: Callable[[], None]) -> float:
    """Return the CPU time of *work*, in all threads."""
    pa.default_memory_pool().release_unused()
    before_s = time.process_time()
    work()
    return time.process_time() - before_s


def _merge(storage: LocalStorage, entries: list[FileEntry]) -> None:
    (folder,) = {folder_of(entry.path) for entry in entries}
    merged = write_merged(storage, Merge(folder, tuple(entries)), LINES, sizes=Sizes())
    storage.delete([entry.path for entry in merged])


def _copy(table: Path, entries: list[FileEntry]) -> None:
    made = table / "rival.parquet"
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        read = connection.read_parquet([str(table / entry.path) for entry in entries])
        read.order("host, ts").to_parquet(str(made), compression="zstd")
    made.unlink()


class Hour:
    """An hour of *texts*, as so many *batches* write it, with one task or two, as it is worth."""

    def __init__(self, texts: list[str], batches: int) -> None:
        self._texts = texts
        self._batches = batches
        self._lines = len(texts) // (batches * STREAMS)
        batch = "\n".join(texts[: self._lines * STREAMS]).encode()
        size_bytes = len(zstd.Compressor(SHIPPED_LEVEL).compress(batch))
        self._tasks = worth_starting(size_bytes, TASKS)
        self._random = np.random.default_rng(1)
        self._taken = 0
        self._last = [0] * STREAMS

    def write(self, storage: LocalStorage) -> list[FileEntry]:
        """Write the files of all batches."""
        entries: list[FileEntry] = []
        for batch in range(self._batches):
            for task in range(self._tasks):
                streams = range(task * STREAMS // self._tasks, (task + 1) * STREAMS // self._tasks)
                first = self._last[streams[0]] + 1
                name = FileName(
                    f"BENCH_{streams[0]}", "2026", first, first, batch + 1, more=len(streams) - 1
                )
                ranges = ([self._range(stream, batch)] for stream in streams)
                entries += write_ranges(storage, ranges, name)
        return entries

    def _range(self, stream: int, batch: int) -> pa.Table:
        """Return the rows of *stream* in *batch*."""
        texts = self._texts[self._taken : self._taken + self._lines]
        message = np.arange(len(texts)) // MESSAGE_LINES
        host = message % HOSTS
        sequences = self._last[stream] + 1 + message
        columns = {
            "stream": _few([f"BENCH_{stream}"], message * 0),
            "incarnation": _few(["2026-11-20T00:00:00.000000000Z"], message * 0),
            "seq": sequences,
            "idx": np.arange(len(texts)) % MESSAGE_LINES,
            "partition": message * 0 + stream,
            "host": _few([f"node-{stream}-{number}" for number in range(HOSTS)], host),
            "cluster": _few(["bench"], message * 0),
            "namespace": _few(["shop", "web"], host % 2),
            "pod": _few([f"cart-{stream}-{number}" for number in range(HOSTS)], host),
            "container": _few(["cart"], message * 0),
            "fd": _few(["stdout"], message * 0),
            "level": _few(LEVELS, self._random.choice(len(LEVELS), len(texts), p=LEVELS_SHARE)),
            "line": texts,
            "source": _few([f"shop/cart-{stream}/uid/{n}/0" for n in range(HOSTS)], host),
            "generation": _few([f"{number:016x}" for number in range(HOSTS)], host),
            "offset": (self._taken + np.arange(len(texts))) * 150,
            "resent": message > len(texts),
            **self._times(message, batch),
        }
        self._taken += len(texts)
        self._last[stream] = int(sequences[-1])
        arrays = [
            pa.nulls(len(texts), field.type)
            if field.name not in columns
            else pa.array(columns[field.name], field.type)
            for field in LINES_ENCODED
        ]
        return pa.table(arrays, schema=LINES_ENCODED)

    def _times(self, message: Numbers, batch: int) -> dict[str, Numbers]:
        """Return when each line was stored, spread over the *batch*, and when it was written."""
        long = timedelta(hours=1) / self._batches
        begin_us = int((HOUR + batch * long).timestamp() * 1e6)
        step_us = long // timedelta(microseconds=1) // (int(message[-1]) + 1)
        stored = begin_us + message * step_us
        return {"ts": stored, "event_ts": stored - self._random.integers(0, 500_000, len(message))}


def _few(values: list[str] | tuple[str, ...], which: Numbers) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(which, pa.int32()), pa.array(values))
