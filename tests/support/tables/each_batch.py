"""A query that hands its batches to a function as docs/spark.md shows it: in a process that dies in
the middle of one, and in the test's own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from pyspark.sql import DataFrame

import own_modules
from tables.local_spark import ENDS_WITHIN_S, local_spark

RUNS_WITHIN_S = 270
KILLED = -signal.SIGKILL


def written(folder: Path) -> dict[int, list[str]]:
    """Return the lines of each batch that is written in *folder*, sorted."""
    found: dict[int, list[str]] = {}
    for path in folder.glob("batch=*"):
        frame = local_spark().read.schema("line string").parquet(str(path))
        found[int(path.name.partition("=")[2])] = sorted(row.line for row in frame.collect())
    return found


def run(options: dict[str, str], folder: Path, *, dies_in: int = -1) -> None:
    """Write what is there now and was not written before, a folder for each batch; die when the
    batch *dies_in* is written, and the checkpoint does not say so yet.
    """

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.mode("overwrite").parquet(f"{folder}/copy/batch={batch_id}")
        if batch_id == dies_in:
            os.kill(os.getpid(), signal.SIGKILL)

    lines = local_spark().readStream.format("jetstream").options(**options).load()
    writer = lines.writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    assert writer.trigger(availableNow=True).start().awaitTermination(ENDS_WITHIN_S)


def run_and_die(options: dict[str, str], folder: Path, *, dies_in: int) -> int:
    """Do what `run` does in a process of its own, and return how that ended."""
    words = [json.dumps(options), str(folder), str(dies_in)]
    command = own_modules.command("tables.each_batch", *words)
    environment = own_modules.environment()
    return subprocess.run(command, check=False, env=environment, timeout=RUNS_WITHIN_S).returncode


if __name__ == "__main__":
    run(json.loads(sys.argv[1]), Path(sys.argv[2]), dies_in=int(sys.argv[3]))
