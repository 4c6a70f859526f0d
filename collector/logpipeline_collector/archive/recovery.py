"""Brings a folder's files to what its state says: after a crash, a hand-over, or a commit that was
taken back.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from logpipeline_collector.archive import beneath
from logpipeline_collector.archive.output import ActiveFile, OutputFiles
from logpipeline_collector.archive.state import FileRow, State

log = logging.getLogger(__name__)

SUFFIXES = {"gzip": ".gz", "zstd": ".zst", "none": ""}


def recover(state: State, output: OutputFiles, compression: str) -> int:
    """Finish what was begun, remove what was never committed, and return the bytes that the disk
    has lost.
    """
    for path, target in state.moves():
        if beneath.exists(output.root, path) and not beneath.exists(output.root, target):
            beneath.rename(output.root, path, target)
        state.moved(path)
    rows = state.files()
    for path in output.announced():
        if path not in rows:
            beneath.remove(output.root, path)
    output.forget_announced()
    removals = state.removals()
    for path in removals:
        if path not in rows:
            beneath.remove(output.root, path)
    state.removed(removals)
    output.active, output.dirty = {}, {}
    damaged = 0
    for path, row in rows.items():
        if row.rotated_ns:
            _drop_unfinished(output.root, path, row)
            continue
        length = min(row.length, _size_after_cut(output.root, path, row))
        damaged += row.length - length
        output.active[path] = ActiveFile(
            path=path,
            host=row.host,
            begun_ns=row.begun_ns,
            length=length,
            committed=length,
            rotations=row.rotations,
            is_new=False,
            is_line_open=row.is_line_open,
        )
    return damaged


def drop_intents(path: object) -> None:
    """Remove a list of announced files whose files are committed."""
    assert isinstance(path, Path)
    path.unlink(missing_ok=True)


def _drop_unfinished(root: Path, path: str, row: FileRow) -> None:
    if row.is_compressed:
        return
    # Compressed, but the state does not know: it is done again.
    for suffix in (".gz", ".zst"):
        if beneath.exists(root, path + suffix):
            beneath.remove(root, path + suffix)


def _size_after_cut(root: Path, path: str, row: FileRow) -> int:
    """Cut the file to its committed length; return its size, which is less only where the disk has
    lost bytes.
    """
    try:
        descriptor = beneath.open_beneath(root, path, os.O_RDWR)
    except FileNotFoundError:
        descriptor = beneath.open_beneath(root, path, os.O_RDWR | os.O_CREAT, make=True)
    try:
        size = os.fstat(descriptor).st_size
        if size > row.length:
            os.ftruncate(descriptor, row.length)
            os.fsync(descriptor)
        elif size < row.length:
            log.error(
                "a file is shorter than what was committed",
                extra={"path": path, "missing_bytes": row.length - size},
            )
        return size
    finally:
        os.close(descriptor)
