"""Brings a folder's files to what its state says: after a crash, a commit that was taken back, or
one that was never made.
"""

from __future__ import annotations

import logging
import os

from logpipeline_collector.archive import beneath
from logpipeline_collector.archive.beneath import Blocked, NotAFile
from logpipeline_collector.archive.output import OutputFiles
from logpipeline_collector.archive.packing import TEMPORARY_SUFFIX
from logpipeline_collector.archive.rows import FileRow, Stage
from logpipeline_collector.archive.state import State

log = logging.getLogger(__name__)


def recover(state: State, output: OutputFiles) -> None:
    """Finish or drop what was begun, remove what was never committed, cut files to what is, and
    load what stands then.
    """
    found = state.files()
    kept: dict[int, FileRow] = {}
    for number, row in found.items():
        recovered = _recover(number, row, output)
        if recovered is not None:
            kept[number] = recovered
    gone = [number for number in found if number not in kept]
    changed = {number: row for number, row in kept.items() if row is not found[number]}
    if gone or changed:
        state.change(changed, gone=gone)
        log.info("files recovered", extra={"changed": len(changed), "gone": len(gone)})
    _empty(output)
    output.load(kept)


def _recover(number: int, row: FileRow, output: OutputFiles) -> FileRow | None:
    """Return *row* as it is now, None where the file is gone."""
    if row.stage in (Stage.NEW, Stage.GONE):
        if row.stage is Stage.GONE or _is_scratch(number, row, output):
            beneath.remove(output.root, row.path)
            beneath.prune(output.root, row.path)
        return None
    if row.moving_to:
        row = _moved(row, output)
    if row.packing_to:
        row = _packed(row, output)
    return row if row.stage is Stage.PACKED else _cut(row, output)


def _is_scratch(number: int, row: FileRow, output: OutputFiles) -> bool:
    """Return whether what stands at a name that was announced is our file, and not somebody
    else's.
    """
    try:
        status = (output.scratch / str(number)).stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return beneath.inode(output.root, row.path) == (status.st_dev, status.st_ino)


def _moved(row: FileRow, output: OutputFiles) -> FileRow:
    if beneath.exists(output.root, row.moving_to):
        return row._replace(path=row.moving_to, stage=Stage.ROTATED, moving_to="")
    return row._replace(rotated_ns=0, moving_to="")


def _packed(row: FileRow, output: OutputFiles) -> FileRow:
    root, target = output.root, row.packing_to
    beneath.remove(root, target + TEMPORARY_SUFFIX)
    if not beneath.exists(root, target):
        return row._replace(packing_to="")
    beneath.remove(root, row.path)
    beneath.sync_folder(root, beneath.folders_of(target)[-1])
    descriptor = beneath.open_file(root, target, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    return row._replace(path=target, stage=Stage.PACKED, size=size, packing_to="")


def _cut(row: FileRow, output: OutputFiles) -> FileRow | None:
    """Cut the file to its committed length; a shorter one is damage, and goes on from there."""
    try:
        descriptor = beneath.open_file(output.root, row.path, os.O_RDWR)
    except (FileNotFoundError, NotAFile, Blocked) as error:
        output.damage.add(row.path, row.length, str(error))
        return None
    try:
        size = os.fstat(descriptor).st_size
        if size > row.length:
            os.ftruncate(descriptor, row.length)
            # What was cut must not come back with a power cut, beyond a file that no longer grows.
            os.fsync(descriptor)
        if size >= row.length:
            return row
    finally:
        os.close(descriptor)
    output.damage.add(row.path, row.length - size, "the file is shorter than what was committed")
    return row._replace(length=size, tail=None)


def _empty(output: OutputFiles) -> None:
    """Remove all first names: what is committed has another one, and the rest is nobody's."""
    for path in output.scratch.iterdir():
        path.unlink()
