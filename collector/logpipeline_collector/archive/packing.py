"""Compresses rotated files, piece by piece: a large one takes several rounds of maintenance."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

import zstandard

from logpipeline.failpoints import reach
from logpipeline_collector.archive import beneath
from logpipeline_collector.archive.beneath import Blocked, NotAFile
from logpipeline_collector.archive.errors import disk_error
from logpipeline_collector.archive.output import OutputFile, OutputFiles
from logpipeline_collector.archive.rows import FileRow, Stage
from logpipeline_collector.archive.state import State

# How long one round may hold the partition's commits up.
ROUND_S = 0.2
PIECE_BYTES = 1024 * 1024
ZSTD_LEVEL = 3
GZIP_LEVEL = 6
GZIP_WINDOW_BITS = 31  # zlib's way to ask for gzip's frame
SUFFIXES = {"gzip": ".gz", "zstd": ".zst"}
TEMPORARY_SUFFIX = ".tmp"


class Compressor(Protocol):
    """What zlib's and zstandard's streaming compressors have in common."""

    def compress(self, data: bytes, /) -> bytes:
        """Return what is ready of the compressed bytes."""

    def flush(self) -> bytes:
        """Return the rest of them."""


@dataclass(slots=True)
class _Work:
    file: OutputFile
    row: FileRow
    source: int
    target: int
    compressor: Compressor
    read: int = 0
    written: int = 0


class Packing:
    """Compresses one file after the other."""

    def __init__(
        self,
        compression: Literal["gzip", "zstd", "none"],
        output: OutputFiles,
        state: State,
    ) -> None:
        self._compression = compression
        self._output = output
        self._state = state
        self._work: _Work | None = None

    def run(self, rotated: Iterable[OutputFile], clock: Callable[[], float]) -> list[OutputFile]:
        """Compress of *rotated* what can be in one round, and return what is not there any more."""
        if self._compression == "none":
            return []
        lost: list[OutputFile] = []
        # Judged in its turn: the one that is under way is packed by then, and never packed again.
        waiting = (file for file in rotated if self._is_ready(file))
        until_s = clock() + ROUND_S
        try:
            while clock() < until_s:
                if self._work is None:
                    file = next(waiting, None)
                    if file is None:
                        break
                    self._begin(file, lost)
                elif self._advance(self._work):
                    self._finish(self._work)
        except OSError as error:
            self.drop()
            raise disk_error(error, "compress files", self._output.root) from error
        return lost

    def drop(self) -> None:
        """Leave what is under way; it is begun again later."""
        if self._work is not None:
            row = self._work.row
            self._work.file.committed = row._replace(packing_to="")
            beneath.remove(self._output.root, row.packing_to + TEMPORARY_SUFFIX)
            self._release(self._work)

    def _release(self, work: _Work) -> None:
        os.close(work.source)
        os.close(work.target)
        self._work = None

    def _is_ready(self, file: OutputFile) -> bool:
        is_whole = file.committed is not None and file.committed.length == file.length
        return file.stage is Stage.ROTATED and is_whole

    def _begin(self, file: OutputFile, lost: list[OutputFile]) -> None:
        root = self._output.root
        try:
            source = beneath.open_file(root, file.path, os.O_RDONLY)
        except (FileNotFoundError, Blocked, NotAFile) as error:
            # Whoever cleans up by hand begins with old files.
            self._output.damage.add(file.path, file.length, str(error))
            self._state.change({}, gone=[file.number])
            self._output.forget(file)
            lost.append(file)
            return
        try:
            self._work = self._announce(file, source)
        except BaseException:
            os.close(source)
            raise

    def _announce(self, file: OutputFile, source: int) -> _Work:
        root = self._output.root
        target = file.path + SUFFIXES[self._compression]
        while any(beneath.exists(root, target + end) for end in ("", TEMPORARY_SUFFIX)):
            target += "~"
        assert file.committed is not None
        row = file.committed._replace(packing_to=target)
        self._state.change({file.number: row})
        reach("archive.compress-intent")
        self._output.descriptors.close((self._output, file.number))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        temporary = beneath.open_file(root, target + TEMPORARY_SUFFIX, flags)
        file.committed = row
        return _Work(file, row, source, temporary, self._compressor())

    def _compressor(self) -> Compressor:
        if self._compression == "gzip":
            return zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_WINDOW_BITS)
        return zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True).compressobj()

    def _advance(self, work: _Work) -> bool:
        """Compress one piece; return whether that was the last one."""
        size = min(PIECE_BYTES, work.row.length - work.read)
        data = os.pread(work.source, size, work.read)
        if size and not data:
            raise OSError(f"{work.file.path} ends before its committed length")
        work.read += len(data)
        is_last = work.read == work.row.length
        packed = work.compressor.compress(data) + (work.compressor.flush() if is_last else b"")
        while packed:
            count = os.pwrite(work.target, packed, work.written)
            work.written += count
            packed = packed[count:]
        return is_last

    def _finish(self, work: _Work) -> None:
        root, file, target = self._output.root, work.file, work.row.packing_to
        folder = beneath.folders_of(target)[-1]
        os.fsync(work.target)
        reach("archive.compress-written")
        beneath.rename(root, target + TEMPORARY_SUFFIX, target)
        beneath.sync_folder(root, folder)
        reach("archive.compress-renamed")
        # From here on the compressed file is the one; recovery removes the other if it stands.
        beneath.remove(root, file.path)
        beneath.sync_folder(root, folder)
        reach("archive.compress-removed")
        row = work.row._replace(path=target, stage=Stage.PACKED, size=work.written, packing_to="")
        self._state.change({file.number: row})
        self._output.packed(file, row)
        self._release(work)
