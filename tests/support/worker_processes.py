"""The workers of a collector, as the kernel knows them."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def workers_of(pid: int) -> dict[int, int]:
    """Return the process of each worker that the collector *pid* runs, by the worker's number."""
    found: dict[int, int] = {}
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return {}
    for child in children:
        try:
            environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for entry in environment:
            name, _, value = entry.partition(b"=")
            if name == b"LOGPIPELINE_WORKER":
                found[int(value.split(b"/")[0])] = int(child)
    return found


def is_gone(pid: int) -> bool:
    """Return whether *pid* runs no more; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def kill(pid: int) -> None:
    """End *pid* as a crash would."""
    os.kill(pid, signal.SIGKILL)
