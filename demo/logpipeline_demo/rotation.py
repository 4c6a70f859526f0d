"""Rotates files exactly as kubelet and logrotate do, step by step, because pipelines lose lines
between these steps.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple

GZIP_LEVEL = 1  # quick: the generator shares its machine with what it tests
_STAMP = "%Y%m%d-%H%M%S"
_NUMBERED = re.compile(r"\.(\d+)(\.gz)?$")


class Moved(NamedTuple):
    """A file was renamed or deleted."""

    old: Path
    new: Path | None
    what: str


def kubelet_prepare(live: Path, *, files_max: int | None) -> Iterator[Moved]:
    """Do what kubelet does before it renames *live*: clean up, remove the oldest, compress.

    Of *files_max* files two places are taken: by *live*, and by what it is about to become.
    """
    for path in _rotated_by_time(live):
        is_packed = path.suffix != ".gz" and path.with_name(path.name + ".gz").exists()
        if path.suffix == ".tmp" or is_packed:
            path.unlink()
    rotated = _rotated_by_time(live)
    if files_max is not None:
        surplus = max(0, len(rotated) - max(files_max - 2, 0))
        for path in rotated[:surplus]:
            path.unlink()
            yield Moved(path, None, "delete")
        rotated = rotated[surplus:]
    for path in rotated:
        if path.suffix != ".gz":
            yield compress_beside(path)


def compress_beside(path: Path) -> Moved:
    """Compress *path* as kubelet does: complete under a temporary name, then renamed."""
    target = path.with_name(path.name + ".gz")
    temporary = path.with_name(path.name + ".tmp")
    with path.open("rb") as source, gzip.open(temporary, "wb", GZIP_LEVEL) as packed:
        shutil.copyfileobj(source, packed)
    temporary.rename(target)
    path.unlink()
    return Moved(path, target, "gzip")


def kubelet_name(live: Path, now_s: float) -> Path:
    """Return the name that *live* gets: its time, and later than every one before it."""
    taken = [path.name[len(live.name) + 1 :][:15] for path in _rotated_by_time(live)]
    newest = max(taken, default="")
    while (stamp := time.strftime(_STAMP, time.gmtime(now_s))) <= newest:
        now_s += 1  # two rotations within a second must not meet in one name
    return live.with_name(f"{live.name}.{stamp}")


def numbered_name(live: Path) -> Path:
    """Return the name that *live* gets from logrotate."""
    return live.with_name(f"{live.name}.1")


def numbered_prepare(live: Path, *, files_max: int | None) -> Iterator[Moved]:
    """Make room for ``<live>.1`` as logrotate does with ``delaycompress``."""
    rotated = sorted(_rotated_by_number(live), reverse=True)
    for number, path in rotated:
        if files_max is not None and number + 2 > files_max:
            path.unlink()
            yield Moved(path, None, "delete")
            continue
        if path.suffix != ".gz":
            path = yield from _compressed_in_place(path)
        target = live.with_name(f"{live.name}.{number + 1}.gz")
        path.rename(target)
        yield Moved(path, target, "rename")


def _compressed_in_place(path: Path) -> Generator[Moved, None, Path]:
    """Compress *path* as logrotate does: under the final name at once, the original removed
    after.
    """
    target = path.with_name(path.name + ".gz")
    target.write_bytes(gzip.compress(path.read_bytes(), GZIP_LEVEL))
    path.unlink()
    yield Moved(path, target, "gzip")
    return target


def rotated_files(live: Path) -> list[Path]:
    """Return the older files of *live*, in either naming, oldest first."""
    numbered = sorted(_rotated_by_number(live), reverse=True)
    return _rotated_by_time(live) + [path for _, path in numbered]


def _rotated_by_time(live: Path) -> list[Path]:
    pattern = re.compile(re.escape(live.name) + r"\.\d{8}-\d{6}(\.gz|\.tmp)?$")
    return [live.with_name(name) for name in sorted(_names(live)) if pattern.fullmatch(name)]


def _rotated_by_number(live: Path) -> list[tuple[int, Path]]:
    found = []
    for name in _names(live):
        match = _NUMBERED.search(name)
        if match and name[: match.start()] == live.name:
            found.append((int(match[1]), live.with_name(name)))
    return found


def _names(live: Path) -> list[str]:
    return os.listdir(live.parent)
