"""What other programs may read of a collector's folder: only what is committed, also while the
collector runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from logpipeline_collector.archive.rows import FileRow, Stage
from logpipeline_collector.archive.state import read_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedFile:
    """A file of which the first *length* bytes, uncompressed, are committed.

    *name* is its path below the logs; *place* is the active file that it was, or is, which names
    all files of one log alike. *size* is what it takes on the disk. Listed, it may still be rotated
    or removed before it is opened: then list again.
    """

    path: Path
    name: str
    place: str
    host: str
    group: str
    partition: int
    length: int
    size: int
    begun_ns: int
    rotated_ns: int
    is_rotated: bool
    is_compressed: bool


def committed_files(folder: Path, group: str | None = None) -> Iterator[CommittedFile]:
    """Yield the files of a collector's *folder*, of one group or all, by place, each place's oldest
    first.

    Raises:
        sqlite3.DatabaseError, ValueError, TypeError: a state cannot be read.
    """
    found = [
        _file(folder, state, row)
        for state in sorted((folder / "state").glob(f"{group or '*'}/p*.sqlite"))
        for row in read_rows(state)
        if row.stage not in (Stage.NEW, Stage.GONE)
    ]
    # An active file is the youngest of its place; the names of rotated ones sort by time.
    yield from sorted(found, key=lambda file: (file.place, not file.is_rotated, file.name))


def _file(folder: Path, state: Path, row: FileRow) -> CommittedFile:
    if row.moving_to and (folder / "logs" / row.moving_to).exists():
        # Renamed a moment ago; who finds no active file there looks again, and finds this.
        row = row._replace(path=row.moving_to, stage=Stage.ROTATED)
    is_compressed = row.stage is Stage.PACKED
    return CommittedFile(
        path=folder / "logs" / row.path,
        name=row.path,
        place=row.place,
        host=row.host,
        group=state.parent.name,
        partition=int(state.stem[1:]),
        length=row.length,
        size=row.size if is_compressed else row.length,
        begun_ns=row.begun_ns,
        rotated_ns=row.rotated_ns,
        is_rotated=row.stage is not Stage.ACTIVE,
        is_compressed=is_compressed,
    )
