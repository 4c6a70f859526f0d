"""Says which folders changed, at once, where the system can: inotify on folders, never on files."""

from __future__ import annotations

import errno
import os
import struct
import sys
from pathlib import Path
from typing import Protocol

from logpipeline_shipper.files.tree import Folder

# A watch costs the kernel 1 KiB. Folders beyond are looked at in every rescan.
WATCHES_MAX = 32_768
# The system's limit is shared with everybody else of our user; half of it is left to them.
_SYSTEM_LIMIT = Path("/proc/sys/fs/inotify/max_user_watches")
_READ_BYTES = 256 * 1024
_EVENT = struct.Struct("iIII")


class Events(Protocol):
    """Takes what a `Watcher` reads."""

    def on_changed(self, folder: Folder) -> None:
        """A name came, went or changed in *folder*."""

    def on_written(self, folder: Folder, name: str) -> None:
        """The file *name* in *folder* was written to."""

    def on_overflow(self) -> None:
        """Events were lost: anything may have changed."""


def _system_limit() -> int:
    try:
        return int(_SYSTEM_LIMIT.read_text())
    except (OSError, ValueError):
        return WATCHES_MAX


class Watcher:
    """Watches up to `WATCHES_MAX` folders.

    Raises:
        OSError: the system gives no inotify instance.
    """

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "no inotify on this system")
        from inotify_simple import INotify, flags  # type: ignore[import-untyped]  # has no types

        self._inotify = INotify(nonblocking=True)
        self._watches_max = min(WATCHES_MAX, _system_limit() // 2)
        self._folders: dict[int, Folder] = {}
        self._watches: dict[Folder, int] = {}
        self._mask = (
            flags.MODIFY
            | flags.CREATE
            | flags.DELETE
            | flags.MOVED_FROM
            | flags.MOVED_TO
            | flags.ATTRIB
            | flags.DELETE_SELF
            | flags.MOVE_SELF
            | flags.ONLYDIR
        )
        self._modify, self._overflow = int(flags.MODIFY), int(flags.Q_OVERFLOW)
        self._ignored, self._moved = int(flags.IGNORED), int(flags.MOVE_SELF)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable with an event."""
        return int(self._inotify.fileno())

    def watch(self, folder: Folder) -> bool:
        """Watch *folder*; return False where that is not possible: it has to be polled."""
        if folder in self._watches:
            return True
        if len(self._watches) >= self._watches_max:
            return False
        try:
            watch = self._inotify.add_watch(folder.path, self._mask)
        except OSError:
            return False
        if (other := self._folders.get(watch)) is not None:
            # Two paths of one folder (two hosts may read the same): one is watched, one polled.
            return other is folder
        self._folders[watch] = folder
        self._watches[folder] = watch
        return True

    def forget(self, folder: Folder) -> None:
        """Stop watching *folder*."""
        watch = self._watches.pop(folder, None)
        if watch is None:
            return
        self._folders.pop(watch, None)
        try:
            self._inotify.rm_watch(watch)
        except OSError:
            return  # the kernel removed it together with the folder

    def is_watched(self, folder: Folder) -> bool:
        """Return whether changes of *folder* are told."""
        return folder in self._watches

    def read(self, events: Events) -> bool:
        """Tell *events* what happened since the last call, each thing once; return whether there
        was anything.
        """
        try:
            data = os.read(self.fileno(), _READ_BYTES)
        except BlockingIOError:
            return False
        seen: dict[tuple[int, bytes], int] = {}
        position = 0
        while position < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, position)
            start = position + _EVENT.size
            position = start + length
            key = (watch, data[start:position])
            seen[key] = seen.get(key, 0) | mask
        for (watch, padded), mask in seen.items():
            self._tell(events, watch, padded, mask)
        return True

    def _tell(self, events: Events, watch: int, padded: bytes, mask: int) -> None:
        if mask & self._overflow:
            events.on_overflow()
            return
        folder = self._folders.get(watch)
        if folder is None:
            return
        if mask & self._ignored:
            del self._folders[watch]
            self._watches.pop(folder, None)
        if mask & self._moved:
            self.forget(folder)  # its path leads to another folder now, or to none
        if mask & self._modify:
            events.on_written(folder, os.fsdecode(padded.rstrip(b"\0")))
        if mask & ~self._modify:
            events.on_changed(folder)

    def close(self) -> None:
        """Give the instance back."""
        self._inotify.close()
