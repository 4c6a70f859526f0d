"""What other programs may read of a collector's folder: only what is committed, while the
collector runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from logpipeline_collector.archive.state import read_files


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """A file of which the first *length* bytes are committed."""

    path: Path
    name: str
    host: str
    length: int
    is_rotated: bool
    is_compressed: bool


def committed_files(folder: Path) -> Iterator[CommittedFile]:
    """Yield the files of a collector's *folder*, of all its groups and partitions, by path."""
    found = []
    for state in sorted((folder / "state").glob("*/p*.sqlite")):
        for name, row in read_files(state):
            found.append(
                CommittedFile(
                    path=folder / "logs" / name,
                    name=name,
                    host=row.host,
                    length=row.length,
                    is_rotated=bool(row.rotated_ns),
                    is_compressed=row.is_compressed,
                )
            )
    yield from sorted(found, key=lambda file: file.name)
