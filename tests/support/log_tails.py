"""The ends of logs, for messages of failures."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def tail_of(file: Path, bytes_max: int) -> str:
    """Return the last *bytes_max* bytes of *file* as text.

    Raises:
        OSError: it cannot be read.
    """
    with file.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - bytes_max))
        return log.read().decode(errors="replace")


def tails_below(folder: Path, *, logs_max: int, bytes_max: int) -> Iterator[tuple[Path, str]]:
    """Yield up to *logs_max* logs below *folder*, in the order of their names, each with its last
    *bytes_max* bytes; not those that are empty, or cannot be read. Processes that still run may
    take files and folders away meanwhile.
    """
    # Path.rglob() fails where a folder goes before it is listed.
    found = sorted(
        Path(at, name)
        for at, _, names in os.walk(folder)
        for name in names
        if name.endswith(".log")
    )
    for file in found[:logs_max]:
        with contextlib.suppress(OSError):
            if text := tail_of(file, bytes_max):
                yield file, text
