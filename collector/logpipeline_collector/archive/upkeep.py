"""Sets full and old files aside, compresses them, and removes the oldest: only what the whole
group knows to be committed.
"""

from __future__ import annotations

import gzip
import logging
import os
import shutil
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO

import zstandard

from logpipeline.failpoints import reach
from logpipeline_collector.archive import beneath
from logpipeline_collector.archive.recovery import SUFFIXES
from logpipeline_collector.archive.state import FileRow

if TYPE_CHECKING:
    from logpipeline_collector.archive.output import ActiveFile
    from logpipeline_collector.archive.partition import PartitionArchive

log = logging.getLogger(__name__)

COPY_BYTES = 1024 * 1024


def is_rotation_due(archive: PartitionArchive, now_s: float) -> bool:
    """Return whether a file is large or old enough at *now_s* (seconds since 1970)."""
    return any(_is_due(archive, file, now_s) for file in archive.output.active.values())


def rotate(archive: PartitionArchive, lock: threading.RLock, now_s: float) -> None:
    """Set aside the files that are due and hold nothing but what is committed."""
    for path in list(archive.output.active):
        with lock:
            _rotate_if_due(archive, path, now_s)


def maintain(archive: PartitionArchive, now_s: float) -> None:
    """Compress and remove what is due at *now_s*; compressing takes long, and holds no lock."""
    rows = {path: row for path, row in archive.state.files().items() if row.rotated_ns}
    if archive.config.compression != "none":
        for path, row in rows.items():
            if not row.is_compressed:
                _compress(archive, path, row)
    _retain(archive, now_s)


def _is_due(archive: PartitionArchive, file: ActiveFile, now_s: float) -> bool:
    if not file.length or file.is_line_open:
        return False
    is_old = now_s - file.begun_ns / 1e9 >= archive.config.rotate_age_s
    return is_old or file.length >= archive.config.rotate_bytes


def _rotate_if_due(archive: PartitionArchive, path: str, now_s: float) -> None:
    file = archive.output.active.get(path)
    if file is None or not _is_due(archive, file, now_s):
        return
    if path in archive.output.dirty or file.length != file.committed or not archive.is_confirmed:
        return
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_s))
    target = f"{path}.{stamp}.{file.rotations:06d}"
    while beneath.exists(archive.output.root, target):
        file.rotations += 1
        target = f"{path}.{stamp}.{file.rotations:06d}"
    archive.output.close(file)
    del archive.output.active[path]
    row = replace(file.row(), rotated_ns=int(now_s * 1e9))
    archive.state.rotate(path, target, row)
    reach("archive.rotate-intent")
    beneath.rename(archive.output.root, path, target)
    reach("archive.rotate-renamed")
    archive.state.moved(path)


def _compress(archive: PartitionArchive, path: str, row: FileRow) -> None:
    root, target = archive.output.root, path + SUFFIXES[archive.config.compression]
    temporary = target + ".tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with (
        os.fdopen(beneath.open_beneath(root, path, os.O_RDONLY), "rb") as source,
        os.fdopen(beneath.open_beneath(root, temporary, flags), "wb") as packed,
    ):
        _pack(archive.config.compression, source, packed)
        packed.flush()
        os.fsync(packed.fileno())
        length = packed.tell()
    reach("archive.compress-written")
    beneath.rename(root, temporary, target)
    reach("archive.compress-renamed")
    archive.state.replace(path, target, replace(row, length=length, is_compressed=True))
    reach("archive.compress-noted")
    beneath.remove(root, path)
    archive.state.removed([path])


def _pack(compression: str, source: BinaryIO, packed: BinaryIO) -> None:
    if compression == "gzip":
        with gzip.GzipFile(
            fileobj=packed, mode="wb", compresslevel=6, filename="", mtime=0
        ) as writer:
            shutil.copyfileobj(source, writer, COPY_BYTES)
    else:
        zstandard.ZstdCompressor(level=3, write_checksum=True).copy_stream(source, packed)


def _retain(archive: PartitionArchive, now_s: float) -> None:
    config = archive.config
    rows = sorted(
        (
            (row.rotated_ns, path, row.length)
            for path, row in archive.state.files().items()
            if row.rotated_ns
        )
    )
    oldest_ns = int((now_s - config.retention_age_s) * 1e9)
    total = sum(length for _, _, length in rows)
    usage = shutil.disk_usage(archive.output.root)
    lacking = usage.total * config.min_free_percent // 100 - usage.free
    gone = []
    for rotated_ns, path, length in rows:
        is_over = config.retention_bytes is not None and total > config.retention_bytes
        if rotated_ns >= oldest_ns and not is_over and lacking <= 0:
            break
        gone.append(path)
        total -= length
        lacking -= length
    if not gone:
        return
    archive.state.drop(gone)
    reach("archive.retain-noted")
    for path in gone:
        beneath.remove(archive.output.root, path)
    archive.state.removed(gone)
    archive.retained_files += len(gone)
    log.info("removed old files", extra={"partition": archive.partition, "files": len(gone)})
