"""Open files of all partitions, the least recently used closed first: there may be far more files
than descriptors.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable


class Descriptors:
    """At most *limit* descriptors, each found by a key."""

    def __init__(self, limit: int) -> None:
        self._limit = max(limit, 1)
        self._open: OrderedDict[object, int] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    def pwrite(
        self, key: object, open_file: Callable[[], int], data: bytes | memoryview, offset: int
    ) -> int:
        """Write at *offset* into the file of *key*, opened by *open_file* where it is not; return
        the bytes.
        """
        with self._lock:
            descriptor = self._open.get(key)
            if descriptor is None:
                while len(self._open) >= self._limit:
                    os.close(self._open.popitem(last=False)[1])
                descriptor = self._open[key] = open_file()
            else:
                self._open.move_to_end(key)
            return os.pwrite(descriptor, data, offset)

    def close(self, key: object) -> None:
        """Close the file of *key*, if it is open."""
        with self._lock:
            descriptor = self._open.pop(key, None)
            if descriptor is not None:
                os.close(descriptor)

    def close_all(self, belongs: Callable[[object], bool]) -> None:
        """Close the files whose key *belongs*."""
        for key in [key for key in self._open if belongs(key)]:
            self.close(key)
