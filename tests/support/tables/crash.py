"""A writer of a table that is a process of its own, so that a test can kill it anywhere: it takes
the table over, goes on from what is committed to the last message, merges what is over, and drops
the first hour.

Loading what a writer needs takes longer than all that it does. So `python -m tables.crash` loads it
once and forks a writer for each line of JSON in its standard input, one after the other; for each
it prints the exit code.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from datetime import timedelta

from logpipeline import failpoints
from logpipeline_spark.table import writer
from logpipeline_spark.table.compaction import Sizes
from logpipeline_spark.table.s3 import S3Options, storage_of
from logpipeline_spark.table.upkeep import Limits
from tables.made import BEGIN, STREAM, batch, lines, opened, upkeep

# Batches reach over hours: each hour has lines of several files.
BATCH = 35
LAST = 210
# The first hour goes in the end; what stays begins here.
KEPT_FROM = 61
NOW = BEGIN + timedelta(days=1)
AGE = NOW - BEGIN - timedelta(hours=1)
# A writer that hangs ends by a signal, which no test expects.
ENDS_WITHIN_S = 240


def write(url: str) -> None:
    """Do all that a writer does."""
    endpoint = os.environ.get("TABLES_ENDPOINT")
    storage = storage_of(url, S3Options(endpoint=endpoint, region="us-east-1"))
    table = opened(storage, holder="same")
    end = table.state.cover.end_of(STREAM)
    for first in range(1 if end is None else end.last + 1, LAST + 1, BATCH):
        batch(table, storage, str(first), first, min(first + BATCH - 1, LAST))
    keeper = upkeep(storage)
    keeper.compact(NOW, Sizes())
    keeper.retain(NOW, Limits(age=AGE))
    keeper.clean(NOW)
    # Tests count the states that are left, and do not wait until these may go.
    writer.STATES_KEPT_S = 0.0
    table.prune()
    table.close()


def main() -> None:
    """Fork one writer after the other."""
    # With its first table pyarrow loads pandas, where that is installed.
    lines(1, 1)
    for text in sys.stdin:
        asked = json.loads(text)
        pid = os.fork()
        if pid == 0:
            _be_a_writer(asked["url"], asked["environment"], asked["log"])
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _be_a_writer(url: str, environment: dict[str, str], log: str) -> None:
    """Write, and end this process as the interpreter would."""
    code = 1
    try:
        signal.alarm(ENDS_WITHIN_S)
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), sys.stderr.fileno())
        os.environ.update(environment)
        # The place to die at is read from the environment when this is loaded.
        importlib.reload(failpoints)
        write(url)
        code = 0
    finally:
        if code:
            traceback.print_exc()
        # Nothing of the parent's is written or ended twice.
        os._exit(code)


if __name__ == "__main__":
    main()
