"""Bytes at an offset of a log file, whether it is plain or gzipped, in bounded memory."""

from __future__ import annotations

import os
import zlib
from typing import Protocol

# Compressed bytes that are read at once.
_GZIP_INPUT_BYTES = 64 * 1024
# Uncompressed bytes that one step may produce: a bomb unpacks no faster than it is read.
_GZIP_OUTPUT_BYTES = 256 * 1024
_GZIP_WINDOW = 31  # zlib's way of saying: with a gzip header


class Content(Protocol):
    """Bytes of a log file that can be looked at."""

    @property
    def compressed(self) -> bool:
        """Return whether the file is gzipped."""

    def read(self, offset: int, size: int, /) -> bytes:
        """Return up to *size* bytes at *offset*; fewer only at the end."""

    def size(self) -> int:
        """Return the length of the content, for a gzipped file the one that its end tells."""

    def data_start(self) -> int:
        """Return where its first byte is that stands in no hole."""


class Reader(Content, Protocol):
    """An open log file."""

    broken: str

    def close(self) -> None:
        """Give the descriptor back."""


# So many zeros of a file that has no holes are looked through for what comes behind them.
_ZEROS_MAX = 256 * 1024 * 1024
_ZEROS = bytes(64 * 1024)


def leading_nuls(content: Content) -> int:
    """Return how many NULs *content* begins with: a program that does not append goes on at its old
    place when its log was truncated, and leaves a hole before it.
    """
    if content.read(0, 1) != b"\0":
        return 0
    start = at = content.data_start()
    while at - start < _ZEROS_MAX:
        data = content.read(at, len(_ZEROS))
        if data != _ZEROS:
            return at + len(data) - len(data.lstrip(b"\0"))
        at += len(data)
    return at


class PlainReader:
    """A file as it is."""

    compressed = False
    broken = ""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, offset: int, size: int) -> bytes:
        """Return up to *size* bytes at *offset*."""
        return os.pread(self._descriptor, size, offset)

    def size(self) -> int:
        """Return the length of the file now."""
        return os.fstat(self._descriptor).st_size

    def data_start(self) -> int:
        """Return where its first byte is that stands in no hole."""
        try:
            return os.lseek(self._descriptor, 0, os.SEEK_DATA)
        except OSError:
            return self.size()  # nothing but a hole, or nothing at all

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)


class GzipReader:
    """The content of a gzipped file, unpacked as it is read: forwards it costs each byte once,
    backwards it begins again.

    What can be unpacked before a damage is still returned; *broken* then says what is wrong.
    """

    compressed = True

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._start_over()

    def _start_over(self) -> None:
        self.broken = ""
        self._unpack = zlib.decompressobj(_GZIP_WINDOW)
        self._input = b""
        self._input_offset = 0
        self._buffer = bytearray()
        self._buffer_offset = 0
        self._at_end = False

    def read(self, offset: int, size: int) -> bytes:
        """Return up to *size* bytes at *offset* of the content."""
        if offset < self._buffer_offset:
            self._start_over()
        while True:
            surplus = min(offset - self._buffer_offset, len(self._buffer))
            del self._buffer[:surplus]
            self._buffer_offset += surplus
            at = offset - self._buffer_offset
            if self._at_end or len(self._buffer) - at >= size:
                return bytes(self._buffer[at : at + size])
            self._step()

    def _step(self) -> None:
        if not self._input:
            self._input = os.pread(self._descriptor, _GZIP_INPUT_BYTES, self._input_offset)
            self._input_offset += len(self._input)
        if not self._input:
            self._at_end = True
            if not self._unpack.eof:
                self.broken = "gzip-cut-short"
            return
        if self._unpack.eof:
            # Files of several members are what `cat a.gz b.gz` makes; zeros behind one are padding.
            self._input = self._input.lstrip(b"\0")
            if not self._input:
                return
            self._unpack = zlib.decompressobj(_GZIP_WINDOW)
        try:
            self._buffer += self._unpack.decompress(self._input, _GZIP_OUTPUT_BYTES)
        except zlib.error:
            self._at_end, self.broken = True, "gzip-damaged"
            return
        self._input = self._unpack.unused_data if self._unpack.eof else self._unpack.unconsumed_tail

    def size(self) -> int:
        """Return the length that the last four bytes tell (modulo 4 GiB): good for a backlog's
        figure only.
        """
        packed = os.fstat(self._descriptor).st_size
        return int.from_bytes(os.pread(self._descriptor, 4, max(packed - 4, 0)), "little")

    def data_start(self) -> int:
        """Return 0: what is packed has no holes."""
        return 0

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)
