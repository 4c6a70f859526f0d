"""Limits how many bytes an audit reads in a second."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(slots=True)
class Pace:
    """Lets no more than *rate* bytes a second be read; 0 means as fast as it goes."""

    rate: int = 0
    _due_s: float = 0.0

    def spend(self, size: int) -> None:
        """Wait until *size* more bytes may be read."""
        if not self.rate:
            return
        now_s = time.monotonic()
        time.sleep(max(self._due_s - now_s, 0.0))
        self._due_s = max(self._due_s, now_s) + size / self.rate
