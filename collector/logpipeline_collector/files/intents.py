"""Intents of upkeep: a rename or a compression that the state announced. The files say whether it
was done, after a crash as after an error in its midst.
"""

from __future__ import annotations

import os
from pathlib import Path

from logpipeline_collector.files import safe_open
from logpipeline_collector.files.state import FileRow, Stage

TEMPORARY_SUFFIX = ".tmp"


def moved(row: FileRow, root: Path) -> FileRow:
    """Return the row of a file that was about to be renamed, as it is now."""
    if safe_open.exists(root, row.moving_to):
        return row._replace(path=row.moving_to, stage=Stage.ROTATED, moving_to="")
    return row._replace(rotated_ns=0, moving_to="")


def packed(row: FileRow, root: Path) -> FileRow:
    """Finish the compression of a file if its result has its name, drop it otherwise, and return
    the row.
    """
    target = row.packing_to
    safe_open.remove(root, target + TEMPORARY_SUFFIX)
    if not safe_open.exists(root, target):
        return row._replace(packing_to="")
    # From here on the compressed file counts.
    safe_open.remove(root, row.path)
    safe_open.sync_folder(root, safe_open.folders_of(target)[-1])
    descriptor = safe_open.open_file(root, target, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    return row._replace(path=target, stage=Stage.PACKED, size=size, packing_to="")
