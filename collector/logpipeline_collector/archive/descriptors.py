"""Open files of all partitions, the least recently used closed first: there may be far more files
than descriptors. Also the one place where bytes meet the disk.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from logpipeline_collector.archive.usage import Usage

Key = tuple[object, int]


@dataclass(slots=True)
class _Open:
    descriptor: int
    users: int = 0
    is_wanted: bool = True


class Descriptors:
    """At most *limit* descriptors, each found by its owner and a number.

    One that is borrowed is never closed, so that a thread that makes a file durable does not find
    another file under its number; *limit* gives way by as many as there are threads.
    """

    def __init__(self, limit: int, usage: Usage | None = None) -> None:
        self.usage = usage or Usage()
        self._limit = max(limit, 1)
        self._open: OrderedDict[Key, _Open] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    @contextlib.contextmanager
    def borrow(self, key: Key, open_file: Callable[[], int]) -> Iterator[int]:
        """Yield the descriptor of *key*, opened by *open_file* where it is not."""
        with self._lock:
            held = self._open.get(key)
            if held is None:
                self._make_room()
                held = self._open[key] = _Open(open_file())
            else:
                self._open.move_to_end(key)
            held.users += 1
        try:
            yield held.descriptor
        finally:
            with self._lock:
                held.users -= 1
                if not held.users and not held.is_wanted:
                    os.close(held.descriptor)

    def close(self, key: Key) -> None:
        """Close the file of *key*, if it is open."""
        with self._lock:
            self._close(key)

    def close_all(self, owner: object) -> None:
        """Close the files of *owner*."""
        with self._lock:
            for key in [key for key in self._open if key[0] is owner]:
                self._close(key)

    def write(self, descriptor: int, data: bytes | memoryview, offset: int) -> int:
        """Write at *offset*, and return how many bytes were."""
        return os.pwrite(descriptor, data, offset)

    def sync(self, descriptor: int) -> None:
        """Make a file's bytes durable."""
        # macOS has no fdatasync.
        getattr(os, "fdatasync", os.fsync)(descriptor)

    def sync_all(self, root: Path) -> bool:
        """Make everything on the volume of *root* durable; return False where that cannot be."""
        if sys.platform != "linux":
            return False
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(root))
        finally:
            os.close(descriptor)
        return True

    def free_bytes(self, root: Path) -> tuple[int, int]:
        """Return how many bytes are free for us on the volume of *root*, and how many it has."""
        status = os.statvfs(root)
        return status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize

    def _make_room(self) -> None:
        surplus = len(self._open) + 1 - self._limit
        if surplus <= 0:
            return
        idle = (key for key, held in self._open.items() if not held.users)
        for key in [key for _, key in zip(range(surplus), idle, strict=False)]:
            self._close(key)

    def _close(self, key: Key) -> None:
        held = self._open.pop(key, None)
        if held is None:
            return
        held.is_wanted = False
        if not held.users:
            os.close(held.descriptor)
