"""The descriptors of simulated processes, and the times of their files.

Files are real ones, in memory. What a killed process had open is closed, since its locks are to go
with it; times that files show are the world's, since those of this machine differ in each run.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from logpipeline_shipper.files import open_file
from simulated import clock
from simulated.loop import PROCESS, VirtualLoop

_open, _close = os.open, os.close
_statx = open_file._statx
_stat, _fstat = os.stat, os.fstat


class Disk:
    """See the module."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._descriptors: dict[str, set[int]] = defaultdict(set)
        # By inode: the size and time that the file had when it was looked at last, and the times of
        # the world that stand for its own: of birth and of change.
        self._seen: dict[int, tuple[int, int]] = {}
        self._times: dict[int, tuple[int, int]] = {}

    def install(self) -> None:
        """Have this process see files so."""
        os.open = self._opened  # type: ignore[assignment]
        os.close = self._closed
        open_file._statx = self._looked_at
        os.stat = lambda path, **how: self._shown(_stat(path, **how))  # type: ignore[assignment]
        os.fstat = lambda descriptor: self._shown(_fstat(descriptor))

    def close_all(self, pid: str) -> None:
        """Close what the process *pid* has open: it was killed."""
        for descriptor in self._descriptors.pop(pid, set()):
            with contextlib.suppress(OSError):
                _close(descriptor)

    def wrote(self, path: Path) -> None:
        """Note that the file at *path* was changed now; of a new one, that it was born."""
        open_file.look_at(path, follow_link=False)

    def _looked_at(self, folder: int, path: bytes, flags: int) -> open_file.Found | None:
        found = _statx(folder, path, flags)
        assert found is not None, "this system does not tell of births"
        return self._in_time(found)

    def _opened(self, path, flags, mode=0o777, *, dir_fd=None):  # type: ignore[no-untyped-def]
        descriptor = _open(path, flags, mode, dir_fd=dir_fd)
        self._descriptors[PROCESS.get()].add(descriptor)
        return descriptor

    def _closed(self, descriptor: int) -> None:
        self._descriptors[PROCESS.get()].discard(descriptor)
        _close(descriptor)

    def _shown(self, found: os.stat_result) -> os.stat_result:
        _, changed_ns = self._world_times(found.st_ino, (found.st_size, found.st_mtime_ns))
        return os.stat_result(tuple(found), {"st_mtime_ns": changed_ns})

    def _in_time(self, found: open_file.Found) -> open_file.Found:
        born_ns, changed_ns = self._world_times(found.inode, (found.size, found.mtime_ns))
        return replace(found, born_ns=born_ns, mtime_ns=changed_ns)

    def _world_times(self, inode: int, shown: tuple[int, int]) -> tuple[int, int]:
        now_ns = clock.now_ns(self._loop)
        born_ns, changed_ns = self._times.get(inode, (now_ns, now_ns))
        if self._seen.get(inode, shown) != shown:
            changed_ns = now_ns
        self._seen[inode], self._times[inode] = shown, (born_ns, changed_ns)
        return born_ns, changed_ns
