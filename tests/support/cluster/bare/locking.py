"""Let one process at a time build or choose, also among those of other checkouts."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.bare.running import say


@contextmanager
def locked(file: Path, *, what: str) -> Iterator[None]:
    """Hold *file*'s lock meanwhile; the kernel frees it when the holder dies.

    *what* is what others are doing with it, told to a person who has to wait.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is {what}: waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
