"""Appends to a file per host and day, and removes those of its own that are older than a week."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
import time
from functools import partial
from pathlib import Path

from logpipeline_collector.files import safe_open
from logpipeline_collector.files.output import Descriptors
from logpipeline_collector.files.volume import Volume
from logpipeline_collector.fshipper.config import KEPT_S, Pattern, midnight

log = logging.getLogger(__name__)

# Opening a FIFO in place of a file would block for ever.
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
# With more files, one sync of the whole volume is cheaper.
SYNCED_ALONE_MAX = 50
# Entries that are looked at in one host's folder when its day changes.
ENTRIES_MAX = 10_000


class SyncFailed(Exception):
    """It is unknown which bytes are durable, and a second attempt would report success."""


class DayFiles:
    """The files below *root*. Used by one thread at a time."""

    def __init__(self, root: Path, pattern: Pattern, *, open_files_max: int) -> None:
        self.removed = 0
        self._root = root
        self._pattern = pattern
        self._descriptors = Descriptors(open_files_max)
        self._volume = Volume(root)
        self._day = time.struct_time((0,) * 9)
        self._name = ""
        # The number of each file of the day, which is its key among the open ones.
        self._numbers: dict[str, int] = {}
        self._unsynced: set[str] = set()
        self._new_folders: set[str] = set()

    def append(self, host: str, data: bytes, time_s: float) -> None:
        """Append whole lines of *host* to its file of the local day of *time_s*: all, or nothing.

        Raises:
            OSError: it cannot be written.
            SyncFailed: the day before cannot be made durable.
        """
        self._turn_to(midnight(time_s))
        path = f"{host}/{self._name}"
        is_first = path not in self._numbers
        number = self._numbers.setdefault(path, len(self._numbers))
        with self._descriptors.borrow((self, number), partial(self._open, path)) as descriptor:
            _append(descriptor, data)
        self._unsynced.add(path)
        if is_first:
            self._remove_old(host, time_s)

    def sync(self) -> None:
        """Make everything that was appended durable.

        Raises:
            SyncFailed: the disk failed.
        """
        try:
            self._sync()
        except OSError as error:
            raise SyncFailed(f"{error.strerror}: {self._root}") from error

    def _sync(self) -> None:
        if len(self._unsynced) > SYNCED_ALONE_MAX and self._volume.sync():
            self._unsynced.clear()
        for path in self._unsynced:
            number = self._numbers[path]
            with self._descriptors.borrow((self, number), partial(self._open, path)) as descriptor:
                self._descriptors.sync(descriptor)
        for folder in self._new_folders:
            safe_open.sync_folder(self._root, folder)
        self._unsynced.clear()
        self._new_folders.clear()

    def close(self) -> None:
        """Make everything durable, and close the files."""
        self.sync()
        self._descriptors.close_all(self)
        self._volume.close()

    def _turn_to(self, day: time.struct_time) -> None:
        if day == self._day:
            return
        self.sync()
        self._descriptors.close_all(self)
        self._numbers.clear()
        self._day, self._name = day, self._pattern.name(day)

    def _open(self, path: str) -> int:
        with safe_open.folder_of(self._root, path, make=True) as (folder, name):
            descriptor = os.open(name, _APPEND, safe_open.FILE_MODE, dir_fd=folder)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise safe_open.NotAFile(f"{path} is not a regular file")
        if not status.st_size:
            self._new_folders.update(safe_open.folders_of(path))
        elif os.pread(descriptor, 1, status.st_size - 1) != b"\n":
            # A power cut tore a line: the next one must not grow onto it.
            os.write(descriptor, b"\n")
        return descriptor

    def _remove_old(self, host: str, time_s: float) -> None:
        """Remove the files of *host* that have our names and were not written to for a week."""
        oldest_s = time_s - KEPT_S
        with contextlib.suppress(OSError):  # the next day tries again
            for path in _matching(self._root / host, self._pattern.parts()):
                status = path.lstat()
                if stat.S_ISREG(status.st_mode) and status.st_mtime < oldest_s:
                    relative = str(path.relative_to(self._root))
                    safe_open.remove(self._root, relative)
                    safe_open.prune(self._root, relative)
                    self.removed += 1
                    log.info("an old file is removed", extra={"path": relative})


def _append(descriptor: int, data: bytes) -> None:
    length = os.fstat(descriptor).st_size
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        # Otherwise half a line would stay, and the whole line would follow when there is room.
        os.ftruncate(descriptor, length)
        raise


def _matching(folder: Path, parts: list[re.Pattern[str]]) -> list[Path]:
    with os.scandir(folder) as entries:
        found = [
            entry
            for entry, _ in zip(entries, range(ENTRIES_MAX), strict=False)
            if parts[0].fullmatch(entry.name) and not entry.is_symlink()
        ]
    if len(parts) == 1:
        return [Path(entry.path) for entry in found]
    below = [Path(entry.path) for entry in found if entry.is_dir(follow_symlinks=False)]
    return [path for child in below for path in _matching(child, parts[1:])]
