"""A writer of a table that is run as a process of its own, so that a test can kill it anywhere.

`python tables_crash.py <url> <holder>`: takes the table over, goes on from what is committed to the
last message, merges what is over, and drops the first hour.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta

from logpipeline_spark.table.compact import Sizes
from logpipeline_spark.table.opening import storage_of
from logpipeline_spark.table.retain import Limits
from logpipeline_spark.table.s3 import S3Options
from tables_made import BEGIN, STREAM, batch, opened

# Batches reach over hours: each hour has lines of several files.
BATCH = 35
LAST = 210
# The first hour goes in the end; what stays begins here.
KEPT_FROM = 61
NOW = BEGIN + timedelta(days=1)
AGE = NOW - BEGIN - timedelta(hours=1)


def main(url: str) -> None:
    """Do all that a writer does."""
    endpoint = os.environ.get("TABLES_ENDPOINT")
    storage = storage_of(url, S3Options(endpoint=endpoint, region="us-east-1"))
    table = opened(storage, holder="same")
    end = table.snapshot.end_of(STREAM)
    for first in range(1 if end is None else end.last + 1, LAST + 1, BATCH):
        batch(table, storage, str(first), first, min(first + BATCH - 1, LAST))
    table.compact(NOW, Sizes())
    table.retain(NOW, Limits(age=AGE))
    table.prune()
    table.close()


if __name__ == "__main__":
    main(sys.argv[1])
