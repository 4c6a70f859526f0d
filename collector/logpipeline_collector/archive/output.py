"""The active files of a partition: what was written to each, and how to take it back."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path

from logpipeline_collector.archive import beneath
from logpipeline_collector.archive.descriptors import Descriptors
from logpipeline_collector.archive.errors import ArchiveFailed, ArchiveFull
from logpipeline_collector.archive.state import FileRow

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# A name that is taken by somebody else's file gets a number; a folder full of such files is no
# place for ours.
NAMES_TRIED_MAX = 100


@dataclass(slots=True)
class ActiveFile:
    """A file that is written: *length* bytes so far, of which *committed* are."""

    path: str
    host: str
    begun_ns: int
    length: int = 0
    committed: int = 0
    rotations: int = 0
    is_new: bool = True
    is_line_open: bool = False

    def row(self) -> FileRow:
        """Return the file as it is to be committed."""
        return FileRow(
            host=self.host,
            length=self.length,
            begun_ns=self.begun_ns,
            rotations=self.rotations,
            is_line_open=self.is_line_open,
        )


class OutputFiles:
    """Writes at tracked lengths below *root*, never anywhere else."""

    def __init__(self, root: Path, descriptors: Descriptors, intents: Path) -> None:
        self.root = root
        self._descriptors = descriptors
        self._intents = intents
        self._number = 0
        self.active: dict[str, ActiveFile] = {}
        self.dirty: dict[str, ActiveFile] = {}
        # The wanted path of a file whose name was taken by a file that is not ours.
        self._other_names: dict[str, str] = {}

    def get(self, path: str, host: str) -> ActiveFile:
        """Return the active file for *path*; a new one is announced before it is made."""
        path = self._other_names.get(path, path)
        file = self.active.get(path)
        if file is None:
            taken = self._free_name(path)
            if taken != path:
                self._other_names[path] = taken
            file = ActiveFile(taken, host, time.time_ns())
            self._announce(taken)
            self.active[taken] = file
        return file

    def write(self, file: ActiveFile, data: bytes) -> None:
        """Append *data*.

        Raises:
            ArchiveFull: the disk is; nothing of *data* is kept.
            ArchiveFailed: the disk failed.
        """
        offset, view = file.length, memoryview(data)
        flags = os.O_WRONLY | (os.O_CREAT if file.is_new else 0)
        try:
            while view:
                written = self._descriptors.pwrite(
                    (self.root, file.path),
                    lambda: beneath.open_beneath(self.root, file.path, flags, make=file.is_new),
                    view,
                    offset,
                )
                offset += written
                view = view[written:]
        except OSError as error:
            self.cut(file, file.length)
            raise _problem(error, self.root / file.path) from error
        file.length = offset
        self.dirty[file.path] = file

    def cut(self, file: ActiveFile, length: int) -> None:
        """Take back what was written beyond *length*."""
        file.length = length
        try:
            descriptor = beneath.open_beneath(self.root, file.path, os.O_WRONLY)
        except FileNotFoundError:
            return
        try:
            os.ftruncate(descriptor, length)
        finally:
            os.close(descriptor)

    def close(self, file: ActiveFile) -> None:
        """Close the descriptor of *file*."""
        self._descriptors.close((self.root, file.path))

    def close_all(self) -> None:
        """Close all descriptors of this partition's files."""
        for file in self.active.values():
            self.close(file)

    def next_intents(self) -> Path:
        """Begin a new list of announced files, and return the finished one."""
        finished = self._intents_file()
        self._number += 1
        return finished

    def announced(self) -> list[str]:
        """Return the files that were announced and perhaps made by a process that is gone."""
        paths: list[str] = []
        for file in self._intents.parent.glob(self._intents.name + ".*"):
            # The last line may be torn: its file was not made yet.
            paths += [os.fsdecode(line) for line in file.read_bytes().split(b"\n")[:-1]]
        return paths

    def forget_announced(self) -> None:
        """Forget what was announced: it was dealt with."""
        for file in self._intents.parent.glob(self._intents.name + ".*"):
            file.unlink()

    def _announce(self, path: str) -> None:
        # A file that is not announced could not be told from somebody else's after a crash.
        intents, size = self._intents_file(), 0
        try:
            with intents.open("ab") as file:
                size = file.tell()
                file.write(os.fsencode(path) + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            # A torn line would spoil the next one.
            if intents.exists():
                os.truncate(intents, size)
            raise _problem(error, self.root / path) from error

    def _intents_file(self) -> Path:
        return self._intents.with_name(f"{self._intents.name}.{self._number}")

    def _free_name(self, path: str) -> str:
        for number in range(NAMES_TRIED_MAX):
            name = path if not number else f"{path}.{number}"
            if name not in self.active and not beneath.exists(self.root, name):
                return name
        raise ArchiveFailed(f"{self.root / path} and {NAMES_TRIED_MAX} further names are taken")


def _problem(error: OSError, path: Path) -> ArchiveFull | ArchiveFailed:
    if error.errno in _FULL:
        return ArchiveFull(error.errno, "the disk is full", str(path))
    return ArchiveFailed(f"cannot write {path}: {error}")
