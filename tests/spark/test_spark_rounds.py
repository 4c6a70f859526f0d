"""Kills of everything that makes a table, each with a batch in progress: the driver, its JVM, a
worker that computes, and the server that is read.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from deltalake import DeltaTable

from components.component import Component
from descendants import kill_if_there
from faults.settings import is_soak, seeds
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.options import NatsOptions
from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.table.scan import files, tables
from logpipeline_spark.table.storage import LocalStorage
from logpipeline_spark.table.verify import verify
from spark_versions import IS_NEWEST
from tables.backlog import Backlog, Digests, digests_of
from tables.local_spark import local_spark
from tables.made import logs
from tables.victims import busy_worker_of, jvm_of
from waiting import eventually

VICTIMS = ("driver", "jvm", "worker", "server")
# With each of a soak's seeds. Else each of them is struck twice, or once with the newest Spark.
ROUNDS = 50 if is_soak() else len(VICTIMS) if IS_NEWEST else 2 * len(VICTIMS)
PARTITIONS = 3
HOSTS = ("node-a", "node-b", "node-c", "node-d")
# Two tasks share a batch. It takes about half a second, so that one is in progress all the time
# between two commits.
BATCH_BYTES = "1536Ki"
BATCH_S = 0.5
# Messages of each host that wait when a round begins, some batches: the one that is struck is not
# the last.
MESSAGES = 14
START_S = 240.0
COMMIT_S = 240.0
ALL_S = 300.0
COLUMNS = ["host", "offset", "line"]


@dataclass(eq=False)
class Rounds:
    """A server, a backlog in it, and a job that brings the backlog into a table."""

    folder: Path
    server: EmbeddedServer
    backlog: Backlog
    job: Component = field(init=False)
    table: LocalStorage = field(init=False)
    struck: list[str] = field(default_factory=list)
    _seen: str = ""

    def __post_init__(self) -> None:
        resource = {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": "test"},
            "spec": {
                "partitions": PARTITIONS,
                "table": {"enabled": True, "every": "1s", "maxBytesPerBatch": BATCH_BYTES},
            },
        }
        file = self.folder / "pipeline.yaml"
        file.write_text(yaml.safe_dump(resource))
        table = self.folder / "table"
        self.table = LocalStorage(table)
        here = ["-f", str(file), "--data", str(self.folder / "data"), "--nats", self.server.url]
        words = ["table", "run", *here, "--path", str(table), "--master", "local[2]"]
        self.job = Component("table", words, self.folder / "table.log")
        apply = [sys.executable, "-m", "logpipeline_cli", "apply", *here]
        subprocess.run(apply, check=True, stdout=subprocess.DEVNULL, timeout=START_S)

    async def strike(self, victim: str, moment_s: float) -> None:
        """Kill *victim* so long after a commit behind which another batch has begun."""
        await self._top_up()
        before = self.rows
        if not self.job.is_running:
            self.job.start()
        await eventually(
            lambda: self._has(before + 1) or self._ended(), within_s=COMMIT_S, what="a batch"
        )
        await asyncio.sleep(moment_s)
        rows = self.rows
        assert rows < self.backlog.lines, "there is no batch in progress: the backlog is too small"
        await self._kill(victim)
        self.struck.append(f"{victim} after {rows} rows")

    async def settle(self) -> None:
        """Return once as many rows as there are lines are in the table."""
        if not self.job.is_running:
            self.job.start()
        await eventually(
            lambda: self._has(self.backlog.lines) or self._ended(),
            within_s=ALL_S,
            what=f"{self.backlog.lines} rows after {self.struck}",
        )

    def _has(self, rows: int) -> bool:
        """Whether a commit is there that was not seen yet, and *rows* with it."""
        # Reading the log costs more than the job: it is read once for each commit.
        if self._version == self._seen:
            return False
        self._seen = self._version
        return self.rows >= rows

    async def _top_up(self) -> None:
        """Let there be so much to read as a round may need."""
        nats = NatsOptions(servers=(self.server.url,))
        await self.backlog.top_up(nats, rows=self.rows, batches=MESSAGES)

    @property
    def _version(self) -> str:
        """The newest of the log's commits."""
        # Neither a checkpoint nor what a writer that was killed left is a commit.
        found = self.table.list("lines/_delta_log") if self._is_there else ()
        return max((each.path for each in found if each.path.endswith(".json")), default="")

    @property
    def rows(self) -> int:
        """How many rows the log says there are."""
        return sum(entry.rows for entry in files(logs(self.table))) if self._is_there else 0

    @property
    def _is_there(self) -> bool:
        return (self.folder / "table").is_dir()

    def _ended(self) -> bool:
        if not self.job.is_running:
            raise RuntimeError(f"the job ended with {self.job.exit_code}\n{self.job.log_tail()}")
        return False

    async def _kill(self, victim: str) -> None:
        driver = self.job.pid
        if victim == "server":
            self.server.kill()
            await self.server.start()
        elif victim == "worker":
            # One that ends by itself before it is killed does not die in the midst of its work.
            await eventually(lambda: self._has_killed_worker(driver), within_s=COMMIT_S)
        elif victim == "jvm":
            os.kill(jvm_of(driver), signal.SIGKILL)
            assert await self.job.wait() != 0
        else:
            self.job.kill()

    @staticmethod
    def _has_killed_worker(driver: int) -> bool:
        worker = busy_worker_of(driver)
        return worker is not None and kill_if_there(worker)


@pytest.fixture
async def rounds(
    nats_server: EmbeddedServer, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Rounds]:
    """Streams without lines, and a job that is not started yet."""
    backlog = Backlog("lp.default.test", PARTITIONS, HOSTS, seed=int(request.param))
    made = Rounds(tmp_path, nats_server, backlog)
    try:
        yield made
    finally:
        made.job.kill()


@pytest.mark.spark43
@pytest.mark.timeout(3600 if is_soak() else 900)
@pytest.mark.parametrize("rounds", seeds(), indirect=True)
async def test_each_line_is_there_once_whatever_is_killed_in_the_midst_of_a_batch(
    rounds: Rounds,
) -> None:
    """For each reader that there is; hashes are those of what was written."""
    chance = random.Random(rounds.backlog.seed)
    for number in range(ROUNDS):
        await rounds.strike(VICTIMS[number % len(VICTIMS)], chance.uniform(0, BATCH_S))
    await rounds.settle()
    assert await rounds.job.stop() == 0, rounds.job.log_tail()

    report = verify(rounds.table, logs(rounds.table))
    assert report.is_well, report.sentences()
    for reader, found in read_by_all(rounds.folder / "table").items():
        assert found == rounds.backlog.digests, f"{reader}: {rounds.struck}"


def read_by_all(table: Path) -> dict[str, Digests]:
    """What each reader finds in *table*, as hashes."""
    storage = LocalStorage(table)
    rows = (
        row
        for part in tables(storage, files(logs(storage)), LINES)
        for row in part.select(COLUMNS).to_pylist()
    )
    found = {"the job's own": digests_of(rows)}
    if IS_NEWEST:
        return found
    frame = local_spark().read.format("delta").load(f"{table}/lines").select(COLUMNS)
    # By `toLocalIterator`, the JVM keeps all that was read for as long as it lives.
    batches = frame.toArrow().to_batches()
    by_spark = digests_of(row for batch in batches for row in batch.to_pylist())
    return found | {"Spark": by_spark} | read_without_spark(f"{table}/lines")


def read_without_spark(lines: str) -> dict[str, Digests]:
    """What readers find that are not installed beside the newest Spark: they are the same there."""
    import duckdb
    import polars

    dataset = DeltaTable(lines).to_pyarrow_dataset()
    found = duckdb.from_arrow(dataset).project('host, "offset", line').fetchall()
    return {
        "DuckDB": digests_of(dict(zip(COLUMNS, row, strict=True)) for row in found),
        "polars": digests_of(polars.scan_delta(lines).select(COLUMNS).collect().to_dicts()),
    }
