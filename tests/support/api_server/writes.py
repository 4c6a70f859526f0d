"""What an operator wrote, to the API server and to NATS, in one order: so that a test can count,
and end the operator after each single write.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Write:
    """A request that changes something, as it was *taken* by its server; *at* is monotonic."""

    what: str
    at: float


@dataclass(slots=True)
class Writes:
    """All writes so far; *on_write* hears the number of each before the operator hears anything."""

    on_write: Callable[[int], None] = lambda number: None
    taken: list[Write] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, what: str) -> None:
        """Note a write that its server has taken."""
        with self._lock:
            self.taken.append(Write(what, time.monotonic()))
            number = len(self.taken)
        self.on_write(number)

    def forget(self) -> None:
        """Count from one again."""
        with self._lock:
            self.taken.clear()

    @property
    def quiet_s(self) -> float:
        """For how many seconds nothing was written; infinite before the first write."""
        with self._lock:
            last = self.taken[-1].at if self.taken else float("-inf")
        return time.monotonic() - last

    @property
    def last_at(self) -> float | None:
        """When the last write was taken, if there was one."""
        with self._lock:
            return self.taken[-1].at if self.taken else None

    def names(self) -> list[str]:
        """Return what was written, for messages."""
        with self._lock:
            return [write.what for write in self.taken]
