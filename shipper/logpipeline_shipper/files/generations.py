"""One incarnation of a source's file: where its bytes lie now, how far they were read, how far
acknowledged.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from logpipeline.generation import HEAD_BYTES_MAX, generation_of, head_of
from logpipeline_shipper.files.descriptors import Handle
from logpipeline_shipper.files.reading import Content
from logpipeline_shipper.files.sources import ChainFile

# The bytes before the offset that tell whether a file is still the one that was read. A log line
# is shorter, and two files that agree in this much, at the same offset, agree in all.
TAIL_BYTES = 256


def digest_of(tail: bytes) -> str:
    """Return what the state keeps of the bytes before an offset."""
    return hashlib.blake2b(tail, digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a file that was reached: *offset*, and what the *tail_bytes* before it looked
    like.
    """

    offset: int = 0
    tail_bytes: int = 0
    digest: str = ""

    @staticmethod
    def at(offset: int, tail: bytes) -> Mark:
        """Return the mark at *offset* behind *tail*."""
        return Mark(offset, len(tail), digest_of(tail))

    def saved(self) -> list[Any]:
        """Return the fields in their order, as JSON."""
        return [self.offset, self.tail_bytes, self.digest]

    def matches(self, content: Content) -> bool:
        """Return whether *content* has the same bytes before the mark."""
        tail = content.read(self.offset - self.tail_bytes, self.tail_bytes)
        return len(tail) == self.tail_bytes and (not tail or digest_of(tail) == self.digest)


@dataclass(frozen=True, slots=True)
class Head:
    """The first *size* bytes of a file, as the *name* that they give it."""

    name: str
    size: int

    @staticmethod
    def of(content: Content, *, closed: bool) -> Head | None:
        """Return the head of a file, or None while it may still grow."""
        head = head_of(content.read(0, HEAD_BYTES_MAX), closed=closed)
        return Head(generation_of(head), len(head)) if head else None

    def matches(self, content: Content) -> bool:
        """Return whether *content* begins with the same bytes."""
        data = content.read(0, self.size)
        return len(data) == self.size and generation_of(data) == self.name


@dataclass(slots=True, eq=False)
class Generation:
    """See the module. *file* is None while no listing shows it; *closed* says that nothing more is
    read from it than up to *length*, which is None where its end was never seen.
    """

    file: ChainFile | None
    head: Head | None = None
    name: str = ""
    offset: int = 0
    tail: bytes = b""
    inside_line: bool = False
    acked: int = 0
    acked_tail: bytes = b""
    acked_inside_line: bool = False
    reached: Mark = Mark()  # how far it was read before it was read again
    restored: Mark | None = None  # what a saved state said, until a file was seen to match it
    closed: bool = False
    length: int | None = None
    size: int = 0  # how long it was seen to be
    listed_size: int = 0  # what a listing says, of a file that is only taken to be its own yet
    no_cut_before: int = 0  # bytes up to here were searched for the end of a line in vain
    handle: Handle | None = None
    key: tuple[int, int] | None = None
    is_compressed: bool = False
    newer_since_s: float | None = None
    gone_since_s: float | None = None
    replaced: bool = False  # other bytes took its place: what was lost is counted as that
    lost: bool = False  # what is left of it can never be read
    failures: int = 0
    failing_since_s: float = 0.0
    retry_at_s: float = 0.0

    @property
    def is_read(self) -> bool:
        """Return whether nothing of it is to be read any more."""
        ended = self.lost or self.length is None or self.offset >= self.length
        return self.closed and ended

    @property
    def is_done(self) -> bool:
        """Return whether nothing of it is to be read or acknowledged any more."""
        return self.is_read and self.acked >= self.offset

    @property
    def mark(self) -> Mark:
        """Return the place that is acknowledged."""
        return self.restored or Mark.at(self.acked, self.acked_tail)

    def bind(self, file: ChainFile) -> None:
        """Note where its bytes lie now."""
        self.file = file
        self.key, self.is_compressed = file.key, file.compressed
        self.gone_since_s = None
        if not file.compressed:
            self.listed_size = file.size

    def lose_file(self, now_s: float) -> None:
        """Note that its bytes are not where they were; they may turn up elsewhere."""
        self.close_handle()
        self.file = self.key = None
        self.listed_size = 0
        self.gone_since_s = now_s

    @property
    def extent(self) -> int:
        """Return up to where there are bytes, as far as is known."""
        return max(self.size, self.listed_size, self.offset)

    def is_in(self, content: Content) -> bool:
        """Return whether *content* has what was read of this generation, and may have more."""
        size = content.size()
        if not self._may_be(size, content.compressed):
            return False
        if self.head is not None and not self.head.matches(content):
            return False
        if not self._has_tail(content):
            return False
        if not content.compressed:
            self.size = max(self.size, size)
        return True

    def _has_tail(self, content: Content) -> bool:
        if self.restored is not None:
            if not self.restored.matches(content):
                return False
            start = self.restored.offset - self.restored.tail_bytes
            self.acked_tail = self.tail = content.read(start, self.restored.tail_bytes)
            self.restored = None
            return True
        was_further = self.reached.offset > self.offset and not content.compressed
        if was_further and not self.reached.matches(content):
            return False
        return content.read(self.offset - len(self.tail), len(self.tail)) == self.tail

    def _may_be(self, size: int, is_compressed: bool) -> bool:
        if not is_compressed:
            return size >= self.size
        # A gzipped file tells its length modulo 4 GiB, and one of several members only the last
        # one's: it is believed where nothing else tells files with equal first lines apart.
        return self.offset > 0 or size >= self.size & 0xFFFFFFFF

    def advance(self, data: bytes, *, inside_line: bool) -> None:
        """Note that *data*, at the offset, was read."""
        self.offset += len(data)
        self.tail = _last(self.tail, data)
        self.inside_line = inside_line
        self.no_cut_before = self.offset

    def acknowledge(self, data: bytes, *, inside_line: bool) -> None:
        """Note that *data*, at the acknowledged offset, has arrived."""
        self.acked += len(data)
        self.acked_tail = _last(self.acked_tail, data)
        self.acked_inside_line = inside_line
        if self.acked == self.offset:
            self.acked_tail = self.tail  # one object instead of two equal ones

    def finish(self, length: int | None) -> None:
        """Note that it ends at *length*, or that its end will never be seen."""
        self.closed, self.length = True, length

    def reopen(self) -> None:
        """Note that a finished file grew after all: what came later is read as well."""
        self.closed, self.length, self.newer_since_s = False, None, None

    def forget_tails(self) -> None:
        """Keep the digest alone: a source may have many generations that are done."""
        if self.restored is None:
            self.restored = self.mark
            self.tail = self.acked_tail = b""

    def rewind(self) -> None:
        """Read again from the acknowledged offset."""
        if self.offset > max(self.acked, self.reached.offset) and self.tail:
            self.reached = Mark.at(self.offset, self.tail)
        self.offset, self.tail = self.acked, self.acked_tail
        self.inside_line = self.acked_inside_line
        self.no_cut_before = self.offset

    def go_back(self, offset: int, before: bytes, *, inside_line: bool) -> None:
        """Read again from *offset*, whose preceding bytes are *before*."""
        if self.restored is not None:
            self.reached, self.restored = self.restored, None
        self.acked, self.acked_tail, self.acked_inside_line = (
            offset,
            before[-TAIL_BYTES:],
            inside_line,
        )
        self.rewind()

    @property
    def is_open(self) -> bool:
        """Return whether its bytes can be read without a name."""
        return self.handle is not None and self.handle.is_open

    @property
    def changed_since_s(self) -> float | None:
        """Return since when it is not its source's live file, None while it is."""
        times = [time for time in (self.gone_since_s, self.newer_since_s) if time is not None]
        return min(times, default=None)

    def go_on_from(self, other: Generation) -> None:
        """Take over the waiting of *other*: the same file, when it had no name yet."""
        self.failures, self.retry_at_s = other.failures, other.retry_at_s
        self.failing_since_s = other.failing_since_s
        self.newer_since_s = other.newer_since_s

    def close_handle(self) -> None:
        """Give the descriptor back; the file can be opened again while it has a name."""
        if self.handle is not None:
            self.handle.close()
            self.handle = None

    def saved(self) -> list[Any]:
        """Return what a restart needs to know, as JSON."""
        assert self.head is not None
        mark, key = self.mark, self.key or (0, 0)
        return [
            *(self.name, self.head.name, self.head.size, *key, int(self.is_compressed)),
            *(*mark.saved(), int(self.acked_inside_line)),
            *(int(self.closed and self.is_done), self.length, self.size),
        ]

    @staticmethod
    def restore(row: list[Any]) -> Generation:
        """Return the generation that `saved` described; its file is still to be found."""
        name, head, head_size, device, inode, is_compressed, *rest = row
        offset, tail, digest, inside, closed, length, size = rest
        generation = Generation(None, Head(str(head), int(head_size)), str(name))
        generation.is_compressed = bool(is_compressed)
        generation.restored = Mark(int(offset), int(tail), str(digest))
        generation.offset = generation.acked = generation.no_cut_before = int(offset)
        generation.inside_line = generation.acked_inside_line = bool(inside)
        generation.key = (int(device), int(inode))
        generation.closed = bool(closed)
        generation.length = int(length) if closed and length is not None else None
        generation.size = int(size)
        return generation


def _last(before: bytes, data: bytes) -> bytes:
    return data[-TAIL_BYTES:] if len(data) >= TAIL_BYTES else (before + data)[-TAIL_BYTES:]
