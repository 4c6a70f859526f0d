"""Small state on disk that a crash at any moment leaves whole: versioned, checked, written by
rename.
"""

from __future__ import annotations

import errno
import os
import zlib
from pathlib import Path
from typing import Any

from logpipeline import json_text

# The largest state kept this way is a shipper's positions: 100,000 sources of some 300 bytes. What
# is larger is not read, so it is not written either: a process would not begin with it again.
STATE_BYTES_MAX = 256 * 1024 * 1024


class StateBroken(Exception):
    """A state file that exists, and is damaged or of another kind."""


def write_state(path: Path, kind: str, version: int, data: Any) -> None:
    """Write *data* (JSON) to *path* so that after a crash either the old or the new state stands
    there.

    Raises:
        OSError: the disk is full or failing, or the state has more than `STATE_BYTES_MAX` bytes
            (EFBIG); the old state is untouched.
        ValueError: *data* is what `read_state` would refuse; the old state is untouched.
    """
    body = json_text.dump(data, sort_keys=True).encode()
    head = f"{kind} {version} {zlib.crc32(body):08x} {len(body)}\n".encode()
    if len(head) + len(body) > STATE_BYTES_MAX:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(head + body)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def read_state(path: Path, kind: str, version: int) -> Any | None:
    """Return the data of *path*, or None where there is no such file.

    Raises:
        StateBroken: it is of another kind or version, cut short, or damaged.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(STATE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    head, newline, body = raw.partition(b"\n")
    fields = head.split(b" ")
    if not newline or len(fields) != 4:
        raise StateBroken(f"{path}: not a {kind} state file")
    if fields[0] != kind.encode() or fields[1] != str(version).encode():
        raise StateBroken(
            f"{path}: {fields[0]!r} version {fields[1]!r}, expected {kind} version {version}"
        )
    if fields[3] != str(len(body)).encode() or fields[2] != f"{zlib.crc32(body):08x}".encode():
        raise StateBroken(f"{path}: checksum or length does not match; it was damaged")
    try:
        return json_text.parse(body)
    except ValueError as error:
        raise StateBroken(f"{path}: {error}") from error


def set_aside(path: Path) -> Path:
    """Rename a broken state file so that it can be looked at, and return its new path."""
    for number in range(1000):
        aside = path.with_name(f"{path.name}.broken-{number}")
        if not aside.exists():
            break
    os.rename(path, aside)
    sync_folder(path.parent)
    return aside


def sync_folder(folder: Path) -> None:
    """Make renames, new files and removals in *folder* durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
