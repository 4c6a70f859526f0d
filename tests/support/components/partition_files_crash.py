"""Writes known lines to files, in a process that a test has die between two steps of it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from components.partition_files import Writer, opened
from logpipeline_collector.partition_writer import PartitionWriter

LINES = [f"line {number}\n".encode() for number in range(40)]
HOSTS = ("h", "other")
LIMITS: dict[str, Any] = {"rotate_bytes": 30, "compression": "zstd"}


def run(folder: Path, limits: dict[str, Any]) -> int:
    """Write what is not committed yet, with commits and maintenance in between; return how many
    bytes of what was committed before were missed.
    """
    partition = opened(folder, **limits)
    writer = Writer(partition)
    now_s = time.time()
    for number in range(begun(partition), len(LINES)):
        for host in HOSTS:
            writer.start = sum(map(len, LINES[:number]))
            writer.take(LINES[number], host=host)
        writer.sequence = writer.committed = number + 1
        if number % 2:
            writer.commit()
            # Before what was taken after the commit is committed, too.
            partition.sink.maintain(now_s + number)
    writer.commit()
    partition.sink.maintain(now_s + 100)
    partition.close()
    return partition.damaged_bytes


def begun(partition: PartitionWriter) -> int:
    """Return how many lines are committed."""
    last = partition.committed()
    return last.position.sequence if last is not None else 0


def main() -> int:
    """Be such a process."""
    folder, limits = sys.argv[1:]
    run(Path(folder), LIMITS | json.loads(limits))
    return 0
