"""How much all partitions of a collector keep on their disk: limits are those of the whole folder,
and the oldest file of all has to go first.
"""

from __future__ import annotations

import math
import threading
from typing import NamedTuple


class Kept(NamedTuple):
    """So many bytes, and since when the oldest is that could be removed; None: nothing could."""

    size: int
    oldest_ns: int | None


class Usage:
    """What each owner keeps; owners report themselves, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[object, Kept] = {}

    def report(self, owner: object, *, size: int, oldest_ns: int | None) -> None:
        """Note that *owner* keeps *size* bytes, and that the oldest of what it could remove is of
        *oldest_ns*; None: there is nothing to remove.
        """
        with self._lock:
            self._kept[owner] = Kept(size, oldest_ns)

    def forget(self, owner: object) -> None:
        """Count *owner* no more."""
        with self._lock:
            self._kept.pop(owner, None)

    @property
    def size(self) -> int:
        """Bytes that all owners keep."""
        with self._lock:
            return sum(kept.size for kept in self._kept.values())

    def oldest_of_others(self, owner: object) -> float:
        """Return the time of the oldest that anybody but *owner* could remove; infinity for
        none.
        """
        with self._lock:
            times = [
                kept.oldest_ns
                for other, kept in self._kept.items()
                if other is not owner and kept.oldest_ns is not None
            ]
            return min(times, default=math.inf)
