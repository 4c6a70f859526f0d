"""Up to when a shipper has seen what happened in its folders.

A file that a listing lacks may be being renamed: it is gone when a later look does not show it
either. Where the machine is busy, or was asleep, that look may come long after the one before. So
what is missing is judged by the time of looks, not by a clock alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(slots=True)
class Sight:
    """See the module. Shared by discovery, which moves it, and by chains."""

    until_s: float = math.inf

    def at(self, now_s: float) -> float:
        """Return up to when all that happened has been told, at *now_s*."""
        return min(now_s, self.until_s)
