"""Bytes at an offset of a log file, whether it is plain or packed, in bounded memory."""

from __future__ import annotations

import os
from typing import Protocol

from logpipeline_shipper.files.unpacking import DAMAGES, NAMES, UNPACKERS

# Packed bytes that are read at once.
INPUT_BYTES = 64 * 1024
# How the reasons end for which a packed file cannot be unpacked.
PACKED_BADLY = ("-cut-short", "-damaged")


class Content(Protocol):
    """Bytes of a log file that can be looked at."""

    @property
    def compressed(self) -> bool:
        """Return whether the file is packed."""

    def read(self, offset: int, size: int, /) -> bytes:
        """Return up to *size* bytes at *offset*; fewer only at the end."""

    def size(self) -> int:
        """Return the length of the content, as far as it can be told."""

    @property
    def tells_size(self) -> bool:
        """Return whether `size` is the content's, modulo 4 GiB where it is compressed."""

    def written_ns(self) -> int:
        """Return when the file was written to last, in nanoseconds since 1970."""

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
    tells_size = True
    broken = ""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, offset: int, size: int) -> bytes:
        """Return up to *size* bytes at *offset*."""
        return os.pread(self._descriptor, size, offset)

    def size(self) -> int:
        """Return the length of the file now."""
        return os.fstat(self._descriptor).st_size

    def written_ns(self) -> int:
        """Return when the file was written to last."""
        return os.fstat(self._descriptor).st_mtime_ns

    def data_start(self) -> int:
        """Return where its first byte is that stands in no hole."""
        try:
            return os.lseek(self._descriptor, 0, os.SEEK_DATA)
        except OSError:
            return self.size()  # nothing but a hole, or nothing at all

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)


class PackedReader:
    """The content of a file that is packed as its *ending* says, unpacked as it is read: forwards
    it costs each byte once, backwards it begins again.

    What can be unpacked before a damage is still returned; *broken* then says what is wrong.
    """

    compressed = True

    def __init__(self, descriptor: int, ending: str) -> None:
        self._descriptor = descriptor
        self._ending = ending
        self._start_over()

    def _start_over(self) -> None:
        self.broken = ""
        self._unpacker = UNPACKERS[self._ending]()
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
        if not self._input and self._unpacker.needs_input:
            self._input = os.pread(self._descriptor, INPUT_BYTES, self._input_offset)
            self._input_offset += len(self._input)
            if not self._input:
                self._at_end = True
                if not self._unpacker.eof:
                    self.broken = f"{NAMES[self._ending]}-cut-short"
                return
        if self._unpacker.eof:
            # Files of several members are what `cat a.gz b.gz` makes; zeros behind one are padding.
            self._input = self._input.lstrip(b"\0")
            if not self._input:
                return
            self._unpacker = UNPACKERS[self._ending]()
        try:
            data, self._input = self._unpacker.step(self._input)
        except DAMAGES:
            self._at_end, self.broken = True, f"{NAMES[self._ending]}-damaged"
            return
        self._buffer += data

    def size(self) -> int:
        """Return the length that the last four bytes of a gzipped file tell (modulo 4 GiB), of
        others the packed one: good for a backlog's figure only.
        """
        packed = os.fstat(self._descriptor).st_size
        if not self.tells_size:
            return packed
        return int.from_bytes(os.pread(self._descriptor, 4, max(packed - 4, 0)), "little")

    @property
    def tells_size(self) -> bool:
        """Return whether `size` is that of the content."""
        return self._ending == "gz"

    def written_ns(self) -> int:
        """Return when the file was written to last; packers keep the time of what they pack."""
        return os.fstat(self._descriptor).st_mtime_ns

    def data_start(self) -> int:
        """Return 0: what is packed has no holes."""
        return 0

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)
