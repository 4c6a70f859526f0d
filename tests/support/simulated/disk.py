"""The descriptors of simulated processes, and the times of their files.

Files are real ones, in memory. What a killed process had open is closed, since its locks are to go
with it; times that files show are the world's, since those of this machine differ in each run.

A disk can be full, fail to sync, and lose what was not synced when the power goes: of each file
some part of what was written since then. SQLite is believed: its own files lose nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from logpipeline_shipper.files import open_file
from simulated import clock
from simulated.loop import PROCESS, VirtualLoop

_open, _close = os.open, os.close
_statx = open_file._statx
_stat, _fstat = os.stat, os.fstat
_write, _pwrite, _fsync, _fdatasync = os.write, os.pwrite, os.fsync, os.fdatasync
_dup, _fdopen = os.dup, os.fdopen
_link = os.link
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def _no_room(*words: object, **named: object) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Disk:
    """See the module."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._descriptors: dict[str, set[int]] = defaultdict(set)
        # By inode: the size and time that the file had when it was looked at last, and the times of
        # the world that stand for its own: of birth and of change.
        self._seen: dict[int, tuple[int, int]] = {}
        self._times: dict[int, tuple[int, int]] = {}
        # Names of processes: whose disk is full, whose next sync fails, who has no descriptor left.
        self.full: set[str] = set()
        self.failing: set[str] = set()
        self.exhausted: set[str] = set()
        # By inode: how long a file is that would survive a loss of power.
        self._durable: dict[int, int] = {}

    def install(self) -> None:
        """Have this process see files so."""
        os.open = self._opened
        os.close = self._closed  # type: ignore[assignment]
        open_file._statx = self._looked_at
        os.stat = lambda path, **how: self._shown(_stat(path, **how))
        os.fstat = lambda fd: self._shown(_fstat(fd))
        os.write = self._written
        os.pwrite = self._written_at
        os.fsync = lambda descriptor: self._synced(_fsync, descriptor)  # type: ignore[assignment]
        os.fdatasync = lambda fd: self._synced(_fdatasync, fd)
        os.fdopen = self._wrapped  # type: ignore[assignment]
        os.dup = self._doubled
        os.link = self._linked

    def lose_power(self, folder: Path, random: Random | None) -> None:
        """Lose of each file below *folder* some of what was not synced; without *random*, all."""
        for path in sorted(folder.rglob("*")):
            if not path.is_file() or path.is_symlink() or ".sqlite" in path.name:
                continue
            found = _stat(path)
            durable = min(self._durable.get(found.st_ino, 0), found.st_size)
            if durable < found.st_size:
                kept = durable if random is None else random.randint(durable, found.st_size)
                os.truncate(path, kept)

    def open_count(self, pid: str) -> int:
        """Return how many descriptors the process *pid* has."""
        return len(self._descriptors[pid])

    def close_all(self, pid: str) -> None:
        """Close what the process *pid* has open: it was killed."""
        for descriptor in self._descriptors.pop(pid, set()):
            with contextlib.suppress(OSError):
                _close(descriptor)

    def wrote(self, path: Path) -> None:
        """Note that the file at *path* was changed now; of a new one, that it was born."""
        open_file.look_at(path, follow_link=False)

    def _looked_at(self, folder: int, path: bytes, flags: int) -> open_file.FileStat | None:
        found = _statx(folder, path, flags)
        assert found is not None, "this system does not tell of births"
        return self._in_time(found)

    def _opened(self, path, flags, mode=0o777, *, dir_fd=None):  # type: ignore[no-untyped-def]
        pid = PROCESS.get()
        if self.exhausted and pid.partition("#")[0] in self.exhausted:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        descriptor = _open(path, flags, mode, dir_fd=dir_fd)
        self._descriptors[pid].add(descriptor)
        return descriptor

    def _doubled(self, descriptor: int) -> int:
        made = _dup(descriptor)
        self._descriptors[PROCESS.get()].add(made)
        return made

    def _wrapped(self, descriptor: int, *words: Any, **named: Any) -> Any:
        # What is closed by the object around it is closed here as well.
        self._descriptors[PROCESS.get()].discard(descriptor)
        return _fdopen(descriptor, *words, **named)

    def _is_full(self) -> bool:
        return bool(self.full) and PROCESS.get().partition("#")[0] in self.full

    def _written(self, descriptor: int, data: Any) -> int:
        return _no_room() if self._is_full() else _write(descriptor, data)

    def _written_at(self, descriptor: int, data: Any, offset: int) -> int:
        return _no_room() if self._is_full() else _pwrite(descriptor, data, offset)

    def _linked(self, *words: Any, **named: Any) -> None:
        # A folder needs room for a name.
        if self._is_full():
            _no_room()
        _link(*words, **named)

    def _synced(self, sync: Any, descriptor: Any) -> None:
        name = PROCESS.get().partition("#")[0]
        if name in self.failing:
            self.failing.discard(name)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self._is_full():
            _no_room()
        # Memory has nothing to sync: the call itself would only take time.
        found = _fstat(descriptor if isinstance(descriptor, int) else descriptor.fileno())
        self._durable[found.st_ino] = found.st_size

    def _closed(self, descriptor: int) -> None:
        self._descriptors[PROCESS.get()].discard(descriptor)
        _close(descriptor)

    def _shown(self, found: os.stat_result) -> os.stat_result:
        _, changed_ns = self._world_times(found.st_ino, (found.st_size, found.st_mtime_ns))
        return os.stat_result(tuple(found), {"st_mtime_ns": changed_ns})

    def _in_time(self, found: open_file.FileStat) -> open_file.FileStat:
        born_ns, changed_ns = self._world_times(found.inode, (found.size, found.mtime_ns))
        return replace(found, born_ns=born_ns, mtime_ns=changed_ns)

    def _world_times(self, inode: int, shown: tuple[int, int]) -> tuple[int, int]:
        now_ns = clock.now_ns(self._loop)
        born_ns, changed_ns = self._times.get(inode, (now_ns, now_ns))
        if self._seen.get(inode, shown) != shown:
            changed_ns = now_ns
        self._seen[inode], self._times[inode] = shown, (born_ns, changed_ns)
        return born_ns, changed_ns
