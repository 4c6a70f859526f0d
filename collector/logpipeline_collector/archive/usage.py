"""How much all partitions of a collector keep on their disk: limits are those of the whole folder,
and the oldest file of all has to go first.
"""

from __future__ import annotations

import math
import os
import struct
import threading
from pathlib import Path
from typing import NamedTuple

# Bytes, and the time of the oldest removable file, 0 for none.
_SLOT = struct.Struct("<qq")


class Kept(NamedTuple):
    """So many bytes, and since when the oldest is that could be removed; None: nothing could."""

    size: int
    oldest_ns: int | None


class Board:
    """Where the workers of one folder tell each other what they keep: a file with a slot for each.
    What a dead worker told stays true: its files are there.
    """

    def __init__(self, path: Path, *, index: int, count: int) -> None:
        self._index = index
        self._count = count
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def tell(self, kept: Kept) -> None:
        """Put what we keep into our slot."""
        slot = _SLOT.pack(kept.size, kept.oldest_ns or 0)
        os.pwrite(self._descriptor, slot, self._index * _SLOT.size)

    def others(self) -> list[Kept]:
        """Return what the other workers keep."""
        data = os.pread(self._descriptor, self._count * _SLOT.size, 0)
        whole = data[: len(data) // _SLOT.size * _SLOT.size]
        slots = [Kept(size, oldest or None) for size, oldest in _SLOT.iter_unpack(whole)]
        return [kept for number, kept in enumerate(slots) if number != self._index]


class Usage:
    """What each owner keeps; owners report themselves, from any thread. *board* knows what the
    other workers of the folder keep.
    """

    def __init__(self, board: Board | None = None) -> None:
        self._board = board
        self._lock = threading.Lock()
        self._kept: dict[object, Kept] = {}

    def report(self, owner: object, *, size: int, oldest_ns: int | None) -> None:
        """Note that *owner* keeps *size* bytes, and that the oldest of what it could remove is of
        *oldest_ns*; None: there is nothing to remove.
        """
        with self._lock:
            self._kept[owner] = Kept(size, oldest_ns)
            self._tell()

    def forget(self, owner: object) -> None:
        """Count *owner* no more."""
        with self._lock:
            self._kept.pop(owner, None)
            self._tell()

    @property
    def size(self) -> int:
        """Bytes that all owners keep."""
        with self._lock:
            return sum(kept.size for kept in (*self._kept.values(), *self._elsewhere()))

    def oldest_of_others(self, owner: object) -> float:
        """Return the time of the oldest that anybody but *owner* could remove; infinity for
        none.
        """
        with self._lock:
            here = [kept for other, kept in self._kept.items() if other is not owner]
            return _oldest([*here, *self._elsewhere()])

    def _elsewhere(self) -> list[Kept]:
        return self._board.others() if self._board is not None else []

    def _tell(self) -> None:
        if self._board is None:
            return
        kept = list(self._kept.values())
        oldest = _oldest(kept)
        size = sum(each.size for each in kept)
        self._board.tell(Kept(size, None if math.isinf(oldest) else int(oldest)))


def _oldest(kept: list[Kept]) -> float:
    return min((each.oldest_ns for each in kept if each.oldest_ns is not None), default=math.inf)
