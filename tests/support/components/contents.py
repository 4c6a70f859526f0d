"""Reads folders in which other processes write, rename and remove files."""

from __future__ import annotations

import os
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


def content_of(path: Path) -> bytes:
    """Return what stands in *path*: nothing where it is not yet there, or gone."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


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


def modes_below(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield *folder*, and each file and folder below it, with its mode; not what is gone before it
    is looked at.
    """
    below = (
        Path(place, name)
        for place, folders, files in os.walk(folder)
        for name in (*folders, *files)
    )
    for path in (folder, *below):
        with suppress(FileNotFoundError):
            yield path, path.stat().st_mode
