"""Places in a file, by which its bytes are known again: an offset with the checksum of all bytes
before it, and with the last of these bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from logpipeline import checksum
from logpipeline.checksum import NOTHING, Checksum
from logpipeline_shipper.files.reader import Content

# A read is verified by so many bytes before its offset: a truncation changes them.
TAIL_BYTES = 256
# A file of which nothing was read yet is recognised by so many first bytes.
HEAD_BYTES = 4096
_PIECE_BYTES = 256 * 1024


def checksum_of(content: Content, start: int, end: int) -> Checksum | None:
    """Return the checksum of ``[start, end)``; None if *content* is shorter."""
    value, at = NOTHING, start
    while at < end:
        data = content.read(at, min(_PIECE_BYTES, end - at))
        if not data:
            return None
        value, at = checksum.extend(value, data), at + len(data)
    return value


@dataclass(frozen=True, slots=True)
class Trace:
    """The digest of the *size* bytes before an offset, kept in place of the bytes."""

    size: int
    digest: str

    @staticmethod
    def of(tail: bytes) -> Trace:
        """Return the trace of *tail*."""
        return Trace(len(tail), hashlib.blake2b(tail, digest_size=8).hexdigest() if tail else "")


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file. *checksum* is that of all bytes from the offset where shipping of the file
    began up to *offset*, *tail* the last of these bytes or their trace. *is_inside_line*: the line,
    or the run of fragments, continues after it. *redacted* is the checksum of these bytes as they
    were sent, if some were redacted.
    """

    offset: int = 0
    checksum: Checksum = NOTHING
    tail: bytes | Trace = b""
    is_inside_line: bool = False
    redacted: Checksum | None = None

    @property
    def sent_checksum(self) -> Checksum:
        """The checksum of the bytes before it as they were sent."""
        return self.checksum if self.redacted is None else self.redacted

    def behind(
        self,
        data: bytes,
        *,
        is_inside_line: bool,
        value: Checksum | None = None,
        redacted: Checksum | None = None,
    ) -> Place:
        """Return the place after *data*, which begins here; *value* is the checksum there, if it
        was computed already, and *redacted* that of what was sent, if it is another.
        """
        tail = data[-TAIL_BYTES:]
        if len(tail) < TAIL_BYTES and isinstance(self.tail, bytes):
            tail = (self.tail + tail)[-TAIL_BYTES:]
        if value is None:
            value = checksum.extend(self.checksum, data)
        return Place(self.offset + len(data), value, tail, is_inside_line, redacted)

    @property
    def trace(self) -> Trace:
        """The trace of the bytes before it."""
        return Trace.of(self.tail) if isinstance(self.tail, bytes) else self.tail

    def without_tail(self) -> Place:
        """Return the same place, in less memory."""
        return replace(self, tail=self.trace)

    def is_behind(self, content: Content) -> bool:
        """Return whether *content* has the same bytes directly before this place."""
        if isinstance(self.tail, bytes):
            return content.read(self.offset - len(self.tail), len(self.tail)) == self.tail
        return Trace.of(content.read(self.offset - self.tail.size, self.tail.size)) == self.tail

    def saved(self) -> list[Any]:
        """Return the fields in their order, as JSON."""
        trace = self.trace
        sum_text = checksum.encode(self.checksum)
        redacted = [] if self.redacted is None else [checksum.encode(self.redacted)]
        is_inside_line = int(self.is_inside_line)
        return [self.offset, sum_text, trace.size, trace.digest, is_inside_line, *redacted]

    @staticmethod
    def restore(row: list[Any]) -> Place:
        """Return what `saved` described."""
        offset, sum_text, size, digest, is_inside_line, *redacted = row
        return Place(
            int(offset),
            checksum.decode(sum_text),
            Trace(int(size), str(digest)),
            bool(is_inside_line),
            checksum.decode(redacted[0]) if redacted else None,
        )


BEGINNING = Place()


@dataclass(frozen=True, slots=True)
class Head:
    """The checksum of a file's first *size* bytes."""

    size: int = 0
    checksum: Checksum = NOTHING

    @staticmethod
    def of(content: Content) -> Head:
        """Return the head of *content*, which may be shorter than `HEAD_BYTES`."""
        data = content.read(0, HEAD_BYTES)
        return Head(len(data), checksum.extend(NOTHING, data))

    def begins(self, content: Content) -> bool:
        """Return whether *content* begins with these bytes."""
        data = content.read(0, self.size)
        return len(data) == self.size and checksum.extend(NOTHING, data) == self.checksum


NO_HEAD = Head()
