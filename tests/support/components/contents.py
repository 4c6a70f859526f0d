"""What the files below a folder hold while collectors write, rename and remove there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from logpipeline.listing import files_below


class Content(NamedTuple):
    """A file, when it was last written in nanoseconds since 1970, and all its bytes."""

    path: Path
    written_ns: int
    data: bytes


def contents_below(*folders: Path) -> Iterator[Content]:
    """Yield the content of each file below *folders*, folder by folder, in the order of paths; not
    of one that is gone before it is read.
    """
    for folder in folders:
        for path in sorted(files_below(folder)):
            with suppress(FileNotFoundError):
                yield Content(path, path.stat().st_mtime_ns, path.read_bytes())


def lines_below(*folders: Path) -> list[str]:
    """Return the lines of all files below *folders*."""
    return [line for each in contents_below(*folders) for line in each.data.decode().splitlines()]
