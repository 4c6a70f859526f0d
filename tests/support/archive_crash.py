"""Writes known lines to an archive, in a process that a test has die between two steps of it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from archiving import Writer, opened
from logpipeline_collector.archive.partition import PartitionArchive

LINES = [f"line {number}\n".encode() for number in range(40)]
HOSTS = ("h", "other")
LIMITS: dict[str, Any] = {"rotate_bytes": 30, "compression": "zstd"}


def run(folder: Path, limits: dict[str, Any]) -> int:
    """Archive what is not archived yet, with commits and maintenance in between; return how many
    bytes of what was archived before were missed.
    """
    archive = opened(folder, **limits)
    writer = Writer(archive)
    now_s = time.time()
    for number in range(begun(archive), len(LINES)):
        for host in HOSTS:
            writer.start = sum(map(len, LINES[:number]))
            writer.take(LINES[number], host=host)
        writer.sequence = writer.committed = number + 1
        if number % 2:
            writer.commit()
            # Before what was taken after the commit is committed, too.
            archive.maintain(now_s + number)
    writer.commit()
    archive.maintain(now_s + 100)
    archive.close()
    return archive.damaged_bytes


def begun(archive: PartitionArchive) -> int:
    """Return how many lines are committed."""
    last = archive.committed()
    return last.position.sequence if last is not None else 0


def main() -> int:
    """Be such a process."""
    folder, limits = sys.argv[1:]
    run(Path(folder), LIMITS | json.loads(limits))
    return 0
