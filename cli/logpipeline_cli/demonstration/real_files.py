"""Which of this machine's own log files the demo ships, and why it leaves the others out."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

# A binary log (wtmp, the journal) shows a NUL in its first bytes; a text log never does.
HEAD_BYTES = 4096
COMPRESSED = (".gz", ".xz", ".bz2", ".zst")
FILES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class RealFile:
    """A file of the machine; *reason* says why it is left out, and is empty where it is shipped."""

    path: Path
    reason: str


def look_below(root: Path, exclude: Sequence[str]) -> list[RealFile]:
    """Return every file below *root* with what is done about it, in the order of their paths."""
    files = []
    for path in sorted(_walk(root)):
        files.append(RealFile(path, _reason(path, exclude)))
        if len(files) >= FILES_MAX:
            break
    return files


def _walk(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        yield from (Path(folder, name) for name in names)


def _reason(path: Path, exclude: Sequence[str]) -> str:
    matching = next((pattern for pattern in exclude if fnmatchcase(str(path), pattern)), None)
    if matching is not None:
        return f"excluded by {matching}"
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return "a symbolic link"
        if not stat.S_ISREG(mode):
            return "no regular file"
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if path.suffix in COMPRESSED:
        return "compressed: an older generation"
    if not head:
        return "empty"
    if b"\0" in head:
        return "binary"
    return "" if b"\n" in head else "no complete line yet"
