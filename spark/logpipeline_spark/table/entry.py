"""What a table's log speaks of: files, and ranges of streams."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of the table; times are microseconds since 1970, of the lines' `ts`. A log may know
    them by the millisecond only: then they reach a little further than the lines.
    """

    path: str
    rows: int
    bytes: int
    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True)
class Range:
    """Sequences of one life of a stream, from *first* to *last*, both included."""

    incarnation: str
    first: int
    last: int

    def __post_init__(self) -> None:
        if not 0 < self.first <= self.last:
            raise ValueError(f"no range of sequences: {self.first}-{self.last}")
