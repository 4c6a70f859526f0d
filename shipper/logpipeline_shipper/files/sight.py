"""Up to when a shipper has seen what happened in its folders.

A file that a listing lacks may be being renamed: it is gone when a later look does not show it
either. Where the machine is busy, or was asleep, that look may come long after the one before. So
what is missing is judged by the time of looks, not by a clock alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class Sight(Protocol):
    """What a source knows of the folders."""

    def at(self, now_s: float) -> float:
        """Return up to when all that happened has been told, at *now_s*."""


@dataclass(slots=True)
class FolderSight:
    """What discovery saw of all folders; it moves *until_s*."""

    until_s: float = math.inf

    def at(self, now_s: float) -> float:
        """Return up to when all that happened has been told, at *now_s*."""
        return min(now_s, self.until_s)


@dataclass(frozen=True, slots=True)
class SourceSight:
    """What one source knows: all that *folders* has seen, up to the time *undecided_since_s* when
    a file was seen first that may be the source's own under another name, which cannot be told yet.
    """

    folders: FolderSight
    undecided_since_s: Callable[[], float]

    def at(self, now_s: float) -> float:
        """Return up to when all that happened has been told, at *now_s*."""
        return min(self.folders.at(now_s), self.undecided_since_s())
