"""The bytes that were read last, of all files of a shipper.

Who copies a log and then cuts it leaves out of the copy what was written in between. That may have
been read already: then the copy lacks the last bytes of what is known, and is known by the others.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from logpipeline.checksum import Checksum

# Between copying and cutting a rotator may write the copy to its disk: so much is written into all
# logs of a busy node meanwhile. Of what comes no more, a copy is read as a log of its own.
BYTES_MAX = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes that were read at *offset*, where the checksum of the file was *before*; the file was
    written to at *written_ns*, or before.
    """

    offset: int
    before: Checksum
    data: bytes
    written_ns: int

    @property
    def end(self) -> int:
        """Where they end."""
        return self.offset + len(self.data)


class Recent:
    """At most *bytes_max*, oldest forgotten first; all chains share it."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        # Chains may be read in threads.
        self._lock = threading.Lock()
        self._order: deque[tuple[str, Part]] = deque()
        self._parts: dict[str, deque[Part]] = {}

    def add(self, id: str, part: Part) -> None:
        """Note that *part* of the generation *id* was read, maybe again and with more."""
        with self._lock:
            parts = self._parts.setdefault(id, deque())
            while parts and parts[-1].offset >= part.offset:
                self._drop_last(parts)
            if parts and parts[-1].end != part.offset:
                parts.clear()
            parts.append(part)
            self._order.append((id, part))
            self._bytes += len(part.data)
            while self._bytes > self._bytes_max:
                self._forget_oldest()

    def of(self, id: str) -> Sequence[Part]:
        """Return what is there of the generation *id*, without gaps, up to its last byte."""
        with self._lock:
            return tuple(self._parts.get(id, ()))

    def _drop_last(self, parts: deque[Part]) -> None:
        part = parts.pop()
        if self._order and self._order[-1][1] is part:
            self._order.pop()
            self._bytes -= len(part.data)

    def _forget_oldest(self) -> None:
        id, part = self._order.popleft()
        self._bytes -= len(part.data)
        parts = self._parts.get(id)
        if parts and parts[0] is part:
            parts.popleft()
        if not parts:
            self._parts.pop(id, None)
