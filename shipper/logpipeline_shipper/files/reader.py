"""Reads bytes at an offset of a log file, plain or packed, in bounded memory."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from logpipeline.checksum import Checksum
from logpipeline.codecs import DAMAGES, Codec

# So many packed bytes are read at once.
INPUT_BYTES = 64 * 1024
# What was unpacked last is looked at once more, by its last bytes.
KEPT_BYTES = 1024
# Endings of the reasons why a packed file cannot be unpacked.
CUT_SHORT = "-cut-short"
PACKED_BADLY = (CUT_SHORT, "-damaged")

# Between the copy and the truncation a rotator may sync the copy to its disk: so much is written to
# all logs of a busy node meanwhile. A copy that lacks more is read as a log of its own.
BYTES_MAX = 8 * 1024 * 1024


class Content(Protocol):
    """The content of a log file."""

    @property
    def compressed(self) -> bool:
        """Return whether the file is packed."""

    def read(self, offset: int, size: int, /) -> bytes:
        """Return up to *size* bytes at *offset*; fewer only at the end."""

    def size(self) -> int:
        """Return the length of the content, as far as it is known."""

    @property
    def tells_size(self) -> bool:
        """Return whether `size` is the content's, modulo 4 GiB where it is compressed."""

    def written_ns(self) -> int:
        """Return when the file was written to last, in nanoseconds since 1970."""

    def data_start(self) -> int:
        """Return the offset of the first byte that is in no hole."""


class Reader(Content, Protocol):
    """An open log file."""

    broken: str

    def has_name(self) -> bool:
        """Return whether the file was not removed."""

    def is_written(self) -> bool:
        """Return whether a program has the file open for writing, though it has no name any more;
        False where the system does not tell.
        """

    def close(self) -> None:
        """Give the descriptor back."""


# Fewer NULs may belong to a line.
NUL_RUN_MIN = 512
# In a file without holes, so many zeros are read to find the first byte after them.
_ZEROS_MAX = 256 * 1024 * 1024

_ZEROS = bytes(64 * 1024)


def leading_nuls(content: Content) -> int:
    """Return how many NULs *content* begins with: when a log is truncated, a program that does not
    append continues at its former offset, which leaves a hole before it.
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


class _OpenFile:
    """What a plain and a packed file have in common: an open descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def written_ns(self) -> int:
        """Return when the file was written to last; packers keep the time of what they pack."""
        return os.fstat(self._descriptor).st_mtime_ns

    def has_name(self) -> bool:
        """Return whether the file was not removed."""
        return os.fstat(self._descriptor).st_nlink > 0

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)


class PlainReader(_OpenFile):
    """A file as it is."""

    compressed = False
    tells_size = True
    broken = ""

    def read(self, offset: int, size: int) -> bytes:
        """Return up to *size* bytes at *offset*."""
        return os.pread(self._descriptor, size, offset)

    def size(self) -> int:
        """Return the length of the file now."""
        return os.fstat(self._descriptor).st_size

    def data_start(self) -> int:
        """Return the offset of the first byte that is in no hole."""
        try:
            return os.lseek(self._descriptor, 0, os.SEEK_DATA)
        except OSError:
            return self.size()  # nothing but a hole, or nothing at all

    def is_written(self) -> bool:
        """Return whether a program has the removed file open for writing, as far as Linux tells: it
        grants no lease on such a file.
        """
        if not hasattr(fcntl, "F_SETLEASE") or os.fstat(self._descriptor).st_nlink:
            return False
        try:
            # Whoever opens it during the lease has a signal sent to us: one that is ignored.
            fcntl.fcntl(self._descriptor, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(self._descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as error:
            # Or it is somebody else's file, or the file system knows no leases.
            return error.errno == errno.EAGAIN
        fcntl.fcntl(self._descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return False


class PackedReader(_OpenFile):
    """The content of a file that is packed by *codec*. It is unpacked while it is read: forwards
    each byte is unpacked once; a read backwards, by more than `KEPT_BYTES`, begins again.

    Bytes before a damage are still returned; *broken* is then the reason. The file may grow while
    it is open: what comes behind its end is unpacked by the next read. A reader has a state: only
    one thread may use it.
    """

    compressed = True

    def __init__(self, descriptor: int, codec: Codec) -> None:
        super().__init__(descriptor)
        self._codec = codec
        self._start_over()

    def _start_over(self) -> None:
        self.broken = ""
        self._unpacker = self._codec.unpacker()
        self._input = b""
        self._input_offset = 0
        self._buffer = bytearray()
        self._buffer_offset = 0
        self._is_damaged = False

    def read(self, offset: int, size: int) -> bytes:
        """Return up to *size* bytes at *offset* of the content."""
        if offset < self._buffer_offset:
            self._start_over()
        while True:
            surplus = min(offset - self._buffer_offset, len(self._buffer)) - KEPT_BYTES
            if surplus > 0:
                del self._buffer[:surplus]
                self._buffer_offset += surplus
            at = offset - self._buffer_offset
            if len(self._buffer) - at >= size or not self._step():
                return bytes(self._buffer[at : at + size])

    def _step(self) -> bool:
        """Unpack some more; return whether there may be more."""
        if self._is_damaged:
            return False
        if not self._input and self._unpacker.needs_input:
            self._input = os.pread(self._descriptor, INPUT_BYTES, self._input_offset)
            self._input_offset += len(self._input)
            is_whole = bool(self._input) or self._unpacker.eof
            self.broken = "" if is_whole else f"{self._codec.name}{CUT_SHORT}"
            if not self._input:
                return False
        if self._unpacker.eof:
            # `cat a.gz b.gz` makes a file of several members; zeros after a member are padding.
            self._input = self._input.lstrip(b"\0")
            if not self._input:
                return True
            self._unpacker = self._codec.unpacker()
        try:
            data, self._input = self._unpacker.step(self._input)
        except DAMAGES:
            self._is_damaged, self.broken = True, f"{self._codec.name}-damaged"
            return False
        self._buffer += data
        return True

    def size(self) -> int:
        """Return the length in the last four bytes of a gzipped file (modulo 4 GiB); of other files
        the packed length, which is good enough for the backlog.
        """
        packed = os.fstat(self._descriptor).st_size
        if not self.tells_size:
            return packed
        return int.from_bytes(os.pread(self._descriptor, 4, max(packed - 4, 0)), "little")

    @property
    def tells_size(self) -> bool:
        """Return whether `size` is that of the content."""
        return self._codec.tells_size

    def data_start(self) -> int:
        """Return 0: what is packed has no holes."""
        return 0

    def is_written(self) -> bool:
        """Return False: who packs a file does not remove it meanwhile."""
        return False


# A rotator that copies a log and then truncates it leaves out of the copy what was written in
# between. These bytes may have been read already: then the copy lacks the last known bytes, and is
# recognised by the ones before.
@dataclass(frozen=True, slots=True)
class Part:
    """Bytes that were read at *offset*, where the checksum of the file was *before*; the file was
    written to at *written_ns*, or before.
    """

    offset: int
    before: Checksum
    data: bytes
    written_ns: int

    @property
    def end(self) -> int:
        """The offset after them."""
        return self.offset + len(self.data)


class Recent:
    """The bytes that all chains read last: *bytes_max* at most, the oldest are forgotten first."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        # Chains may be read in threads.
        self._lock = threading.Lock()
        self._order: deque[tuple[str, Part]] = deque()
        self._parts: dict[str, deque[Part]] = {}

    def add(self, id: str, part: Part) -> None:
        """Note that *part* of the generation *id* was read, maybe again and with more."""
        with self._lock:
            parts = self._parts.setdefault(id, deque())
            while parts and parts[-1].offset >= part.offset:
                self._drop_last(parts)
            if parts and parts[-1].end != part.offset:
                parts.clear()
            parts.append(part)
            self._order.append((id, part))
            self._bytes += len(part.data)
            while self._bytes > self._bytes_max:
                self._forget_oldest()

    def of(self, id: str) -> Sequence[Part]:
        """Return the parts of the generation *id*, without gaps, up to the last byte read."""
        with self._lock:
            return tuple(self._parts.get(id, ()))

    def _drop_last(self, parts: deque[Part]) -> None:
        part = parts.pop()
        if self._order and self._order[-1][1] is part:
            self._order.pop()
            self._bytes -= len(part.data)

    def _forget_oldest(self) -> None:
        id, part = self._order.popleft()
        self._bytes -= len(part.data)
        parts = self._parts.get(id)
        if parts and parts[0] is part:
            parts.popleft()
        if not parts:
            self._parts.pop(id, None)
