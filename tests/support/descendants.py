"""The processes that a process has started, and those that these have, zombies included; and the
end of processes that are not children of a test, so that they may end at any moment.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path


def below(parent: int) -> Iterator[int]:
    """Return all that descend from *parent*."""
    for child in _children(parent):
        yield child
        yield from below(child)


def kill_if_there(pid: int) -> bool:
    """Kill the process *pid*; return whether it was there until then."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _children(pid: int) -> list[int]:
    # Each thread has children of its own.
    return [child for task in Path(f"/proc/{pid}/task").glob("*/children") for child in _read(task)]


def _read(path: Path) -> list[int]:
    try:
        return [int(child) for child in path.read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
