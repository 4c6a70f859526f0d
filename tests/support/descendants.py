"""The processes that a process has started, and those that these have, zombies included."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def below(parent: int) -> Iterator[int]:
    """Return all that descend from *parent*."""
    for child in _children(parent):
        yield child
        yield from below(child)


def _children(pid: int) -> list[int]:
    # Each thread has children of its own.
    return [child for task in Path(f"/proc/{pid}/task").glob("*/children") for child in _read(task)]


def _read(path: Path) -> list[int]:
    try:
        return [int(child) for child in path.read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
