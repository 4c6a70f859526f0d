"""Which of this machine's own log files the demo ships, and why it leaves the others out."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from logpipeline.codecs import codec_of, unpacked

# A binary log (wtmp, the journal) shows a NUL in its first bytes; a text log never does.
HEAD_BYTES = 4096
FILES_MAX = 10_000
# logrotate's names for the generations of NAME, unpacked: NAME.1.
_ROTATED = re.compile(r"(?P<live>.+)\.(?P<number>[0-9]+)")


@dataclass(frozen=True, slots=True)
class Found:
    """A file of the machine; *reason* says why it is left out, and is empty where it is shipped.

    *older* are its rotated generations, the oldest first.
    """

    path: Path
    reason: str
    older: tuple[Path, ...] = ()

    @property
    def archived_as(self) -> Path:
        """The file whose lines it holds: a packed one is shipped as what it was packed from."""
        return self.path.with_name(unpacked(self.path.name))


def look_below(root: Path, exclude: Sequence[str]) -> list[Found]:
    """Return every file below *root* with what is done about it, in the order of their paths."""
    paths = sorted(path for path, _ in zip(_walk(root), range(FILES_MAX), strict=False))
    live = {path for path in paths if not _reason(path, exclude)}
    older: dict[Path, list[tuple[int, Path]]] = {}
    found = []
    for path in paths:
        rotated = _ROTATED.fullmatch(unpacked(str(path)))
        if rotated and (of := Path(rotated["live"])) in live:
            older.setdefault(of, []).append((int(rotated["number"]), path))
            live.discard(path)
            found.append(Found(path, f"rotated: it is shipped before {of.name}"))
    for path in paths:
        if not any(entry.path == path for entry in found):
            generations = sorted(older.get(path, []), reverse=True)
            reason = _reason(path, exclude)
            found.append(Found(path, reason, tuple(name for _, name in generations)))
    return sorted(found, key=lambda entry: entry.path)


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
    if codec_of(path.name) is not None:
        return "compressed, and no live file is beside it: it is shipped, and not checked"
    if not head:
        return "empty"
    if b"\0" in head:
        return "binary"
    return "" if b"\n" in head else "no complete line yet"
