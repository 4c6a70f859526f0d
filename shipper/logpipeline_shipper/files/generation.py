"""One incarnation of a source's file: which file it is, where its bytes lie now, how far they were
read, and how far acknowledged.

Its id is random and made once, when the file is first seen: two files never share one, however
alike their bytes are. Only this module writes the fields of a generation; others ask it, or tell it
what happened.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from logpipeline import checksum
from logpipeline.checksum import NOTHING, Checksum
from logpipeline.records import Committed
from logpipeline_shipper.files.chunk import Chunk
from logpipeline_shipper.files.listing import ChainFile
from logpipeline_shipper.files.open_file import Handle
from logpipeline_shipper.files.reader import Content, Part

ID_BYTES = 8
# The bytes before an offset by which a read is checked: whoever cut the file has changed them.
TAIL_BYTES = 256
# The first bytes, by which a file is known again of which nothing was read yet.
HEAD_BYTES = 4096
# So much of a file is read again after a restart, to see by its checksum that it is still the same.
# Of a larger one its first bytes and its last ones are looked at.
WHOLE_BYTES_MAX = 64 * 1024 * 1024
# Of two larger files one does not begin with all of the other's bytes, unless it is a copy. A
# smaller one may be written again with the same bytes, or hold no more than what each begins with.
ALIKE_BYTES_MAX = 1024 * 1024
_PIECE_BYTES = 256 * 1024


def checksum_of(content: Content, start: int, end: int) -> Checksum | None:
    """Return the checksum of ``[start, end)``; None where *content* is shorter."""
    value, at = NOTHING, start
    while at < end:
        data = content.read(at, min(_PIECE_BYTES, end - at))
        if not data:
            return None
        value, at = checksum.extend(value, data), at + len(data)
    return value


@dataclass(frozen=True, slots=True)
class Trace:
    """What is kept of the *size* bytes before an offset, once they themselves are forgotten."""

    size: int
    digest: str

    @staticmethod
    def of(tail: bytes) -> Trace:
        """Return what is kept of *tail*."""
        return Trace(len(tail), hashlib.blake2b(tail, digest_size=8).hexdigest() if tail else "")


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file that was reached. *checksum* is that of all bytes from where shipping of
    the file began up to *offset*, *tail* the last of them or their trace; *is_inside_line* says
    that the line, or the run of fragments, goes on behind it.
    """

    offset: int = 0
    checksum: Checksum = NOTHING
    tail: bytes | Trace = b""
    is_inside_line: bool = False

    def behind(self, data: bytes, *, is_inside_line: bool, value: Checksum | None = None) -> Place:
        """Return the place behind *data*, which begins here; *value* is the checksum there, where
        it was computed before.
        """
        tail = data[-TAIL_BYTES:]
        if len(tail) < TAIL_BYTES and isinstance(self.tail, bytes):
            tail = (self.tail + tail)[-TAIL_BYTES:]
        if value is None:
            value = checksum.extend(self.checksum, data)
        return Place(self.offset + len(data), value, tail, is_inside_line)

    @property
    def trace(self) -> Trace:
        """What is kept of the bytes before it."""
        return Trace.of(self.tail) if isinstance(self.tail, bytes) else self.tail

    def without_tail(self) -> Place:
        """Return the same place in less memory."""
        return Place(self.offset, self.checksum, self.trace, self.is_inside_line)

    def is_behind(self, content: Content) -> bool:
        """Return whether *content* has the same bytes right before this place."""
        if isinstance(self.tail, bytes):
            return content.read(self.offset - len(self.tail), len(self.tail)) == self.tail
        return Trace.of(content.read(self.offset - self.tail.size, self.tail.size)) == self.tail

    def saved(self) -> list[Any]:
        """Return the fields in their order, as JSON."""
        trace = self.trace
        sum_text = checksum.encode(self.checksum)
        return [self.offset, sum_text, trace.size, trace.digest, int(self.is_inside_line)]

    @staticmethod
    def restore(row: list[Any]) -> Place:
        """Return what `saved` described."""
        offset, sum_text, size, digest, is_inside_line = row
        trace = Trace(int(size), str(digest))
        return Place(int(offset), checksum.decode(sum_text), trace, bool(is_inside_line))


@dataclass(frozen=True, slots=True)
class Head:
    """The checksum of a file's first *size* bytes."""

    size: int = 0
    checksum: Checksum = NOTHING

    @staticmethod
    def of(content: Content) -> Head:
        """Return the head of *content* as far as it is there."""
        data = content.read(0, HEAD_BYTES)
        return Head(len(data), checksum.extend(NOTHING, data))

    def begins(self, content: Content) -> bool:
        """Return whether *content* begins with these bytes."""
        data = content.read(0, self.size)
        return len(data) == self.size and checksum.extend(NOTHING, data) == self.checksum


@dataclass(slots=True, eq=False)
class Generation:
    """See the module. *file* is None while no listing shows it. *begin* is where shipping of it
    began: what lies before was left out on purpose.

    *length* is its last byte's end once nothing more can come; *is_passed* says that newer ones may
    be read before it. *read* and *acked* are how far it got; *reached* is how far it was read
    before it was read again. Its file may be a copy that was made before the last of that was
    written: *kept* is where it ends then.
    """

    id: str
    file: ChainFile | None = None
    begin: int = 0
    read: Place = Place()
    acked: Place = Place()
    reached: Place = Place()
    kept: Place | None = None
    head: Head = Head()
    identity: tuple[int, int, int] | None = None
    is_compressed: bool = False
    # The name under which another process sent the bytes before *begin*, as collectors told. It may
    # have been another machine's, so nothing more is sent under it.
    former: str = ""
    is_recalled: bool = False  # whether no file is known yet that has these bytes
    is_verified: bool = True  # whether it is known that the file is still the one that was read
    is_passed: bool = False
    length: int | None = None
    size: int = 0  # how long it was seen to be, and since when
    grown_s: float = 0.0
    stamp: tuple[int, int] = (0, 0)  # length and time of its file, as a listing saw them last
    # Its file was cut then: a listing with that time of change, or an older one, shows other bytes.
    began_ns: int | None = None
    searched: int = 0  # bytes up to here hold no end of a line behind the offset
    handle: Handle | None = None
    newer_since_s: float | None = None
    gone_since_s: float | None = None
    is_lost: bool = False  # what is left of it cannot be read, or is left out on purpose
    is_missed: bool = False  # it cannot be read: a copy of it is welcome
    failures: int = 0
    failing_since_s: float = 0.0
    retry_at_s: float = 0.0
    touched: tuple[int, float] | None = None  # a new time without new bytes, and since when

    @staticmethod
    def new(file: ChainFile, now_s: float) -> Generation:
        """Return one that was never seen before."""
        made = Generation(secrets.token_hex(ID_BYTES))
        made.bind(file, now_s)
        return made

    # -- what it is

    @classmethod
    def recalled(cls, known: Committed, checksum: Checksum) -> Self:
        """Return one that goes on behind what collectors have of *known*, in the file that has
        the same bytes up to there.
        """
        place = Place(known.offset, checksum)
        made = cls(secrets.token_hex(ID_BYTES), begin=known.begun, read=place, acked=place)
        made.former = known.generation
        made.searched, made.is_recalled, made.is_verified = place.offset, True, False
        return made

    @property
    def proof(self) -> Place:
        """The last place by which it can be known again."""
        return self.read if self.read.offset >= self.reached.offset else self.reached

    @property
    def is_final(self) -> bool:
        """Whether its end is known, and nothing can come behind it."""
        return self.is_lost or self.length is not None

    @property
    def is_read(self) -> bool:
        """Whether nothing of it is to be read any more."""
        return self.is_lost or (self.length is not None and self.read.offset >= self.length)

    @property
    def is_done(self) -> bool:
        """Whether nothing of it is to be read or acknowledged any more."""
        return self.is_read and self.acked.offset >= self.read.offset

    @property
    def is_waiting(self) -> bool:
        """Whether there are bytes that were not searched for the end of a line yet."""
        return self.extent > max(self.searched, self.read.offset)

    @property
    def has_rest(self) -> bool:
        """Whether it ends with a line that is not finished."""
        return self.extent > self.read.offset

    @property
    def extent(self) -> int:
        """Up to where there are bytes, as far as is known."""
        return max(self.size, self.proof.offset)

    @property
    def is_open(self) -> bool:
        """Whether its bytes can be read without a name."""
        return self.handle is not None and self.handle.is_open

    @property
    def changed_since_s(self) -> float | None:
        """Since when it has not been its source's live file, None while it is."""
        times = [time for time in (self.gone_since_s, self.newer_since_s) if time is not None]
        return min(times, default=None)

    # -- whether bytes are its own

    def is_in(self, content: Content) -> bool:
        """Return whether *content*, the file that was taken for it, still has what was read."""
        reached = self._there(self.reached)
        if not content.compressed and content.size() < max(self.size, reached.offset):
            return False
        if not self.head.begins(content) or not self._there(self.read).is_behind(content):
            return False
        is_further = reached.offset > self.read.offset and not content.compressed
        if is_further and not reached.is_behind(content):
            return False
        if not self.is_verified:
            # Also by what a process before may have sent: the file may have been cut since.
            proof = self._there(self.proof)
            size = proof.offset - self.begin
            if size <= WHOLE_BYTES_MAX and not self._has_checksum(content, proof):
                return False
            self.is_verified = True
        return True

    def is_copied_in(self, content: Content) -> bool:
        """Return whether *content*, a file that was never seen before, is a copy of it, be it
        compressed: by all of its bytes that were read, since a head and a tail are alike in many
        files. One whose file was read to its end, and removed, is not copied in a small file with
        more: that one begins alike.
        """
        proof = self._there(self.proof)
        if proof.offset > self.begin:
            if not (proof.is_behind(content) and self._has_checksum(content, proof)):
                return False
            has_end = self.length is not None and self.identity is not None
            may_be_alike = has_end and proof.offset <= ALIKE_BYTES_MAX
            return not (may_be_alike and self.has_more_in(content))
        if not self.head.begins(content):
            return False
        mask = 0xFFFFFFFF if content.compressed else -1  # gzip tells lengths modulo 4 GiB
        return not content.tells_size or content.size() >= self.size & mask

    def has_more_in(self, content: Content) -> bool:
        """Return whether *content*, a copy of it, has bytes behind the last one that was read."""
        return bool(content.read(self._there(self.proof).offset, 1))

    def end_in(self, content: Content, recent: Sequence[Part]) -> Place | None:
        """Return where *content*, a file that was never seen before, ends, if it is a copy of it
        that was made before the last of the *recent* bytes was written; else None.
        """
        # A file that was written to after these bytes is no copy: it is another one that begins
        # with the same bytes.
        if not recent or content.written_ns() > recent[-1].written_ns:
            return None
        first = recent[0].offset
        begin = max(0, first - TAIL_BYTES)
        tail = content.read(begin, first - begin)
        if len(tail) < first - begin:
            return None
        start = place = Place(first, recent[0].before, tail)
        for part in recent:
            data = content.read(part.offset, len(part.data))
            if not part.data.startswith(data):
                return None
            place = place.behind(data, is_inside_line=not data.endswith(b"\n"))
            if len(data) < len(part.data):
                # An empty file has nothing to read: it need not be a copy. The checksum comes last,
                # since it reads the whole file, and a copy that is being made is looked at often.
                is_copy = place.offset > self.begin and self._has_checksum(content, start)
                return place if is_copy else None
        return None

    def is_proven_in(self, content: Content) -> bool:
        """Return whether *content*, of which not even the name says so, is a copy of it."""
        proof = self._there(self.proof)
        if not (proof.offset > self.begin or (self.head.size and self.size)):
            return False
        # A head may reach beyond what was read, and was copied.
        is_head_copied = proof.offset <= self.begin or self.head.size <= proof.offset
        return (not is_head_copied or self.head.begins(content)) and self.is_copied_in(content)

    def _there(self, place: Place) -> Place:
        """Return *place*, or the end of its file where that is nearer."""
        return place if self.kept is None or place.offset <= self.kept.offset else self.kept

    def _has_checksum(self, content: Content, place: Place) -> bool:
        return checksum_of(content, self.begin, place.offset) == place.checksum

    # -- what happens to it

    def bind(self, file: ChainFile, now_s: float) -> None:
        """Note that its bytes lie in *file*."""
        if file.compressed and not self.is_compressed and self.length is None:
            # Its length does not tell whether it has more than was read: that has to be looked for.
            self.is_passed = False
        if file.identity != self.identity:
            self.began_ns = None  # it was the time of another file
        self.file, self.identity, self.is_compressed = file, file.identity, file.compressed
        self.is_recalled = False
        self.touched, self.gone_since_s = None, None
        if self.began_ns is not None and file.mtime_ns <= self.began_ns:
            return
        self.stamp = (file.size, file.mtime_ns)
        if not file.compressed and file.size > self.size:
            self._grow(file.size, now_s)

    def shorten(self, end: int, kept: Place | None, head: Head) -> None:
        """Note that its file is a copy, which ends at *end*, before what was seen of it, and begins
        with *head*; *kept* is that end, where more was read.
        """
        self.size, self.kept, self.head = end, kept, head

    def _grow(self, size: int, now_s: float) -> None:
        self.size, self.grown_s = size, now_s
        if not self.is_lost:
            self.length = None

    def is_rewritten(self, file: ChainFile, now_s: float, patience_s: float) -> bool:
        """Return whether somebody wrote the same bytes into its *file* once more, as a program does
        that says the same in each run. It is noted, and decided when it lasts for *patience_s*: of
        a program that appends, the new time can be seen before the new length.
        """
        size, _ = self.stamp
        is_touched = (file.size, file.mtime_ns) != self.stamp and file.size == size
        if not is_touched or file.compressed or not 0 < size <= ALIKE_BYTES_MAX:
            self.touched = None
            return False
        if self.touched is None or self.touched[0] != file.mtime_ns:
            self.touched = (file.mtime_ns, now_s)
        return now_s - self.touched[1] >= patience_s

    def lose_sight(self, now_s: float) -> None:
        """Note that no listing shows it; it may turn up elsewhere."""
        self.file = None
        if self.gone_since_s is None:
            self.gone_since_s = now_s

    def lose_file(self, now_s: float) -> None:
        """Note that its file has other bytes now; a copy may turn up."""
        self.close_handle()
        self.identity = None
        self.gone_since_s = None
        self.lose_sight(now_s)

    def hold(self, handle: Handle, now_s: float) -> None:
        """Keep its file open."""
        self.handle = handle
        self.look(handle, now_s)
        if handle.compressed:
            # Several members, or 4 GiB: the end of a compressed file does not tell its length.
            self.size = max(handle.size(), self.read.offset)

    def look(self, content: Content, now_s: float) -> None:
        """Note what *content*, its file, shows of itself."""
        if self.head.size < HEAD_BYTES and (self.head.size < self.size or not self.head.size):
            self.head = Head.of(content)
        if not content.compressed and (size := content.size()) > self.size:
            self._grow(size, now_s)

    def begin_anew(self, size: int, mtime_ns: int) -> None:
        """Note that its file, which is *size* bytes long now and was changed last at *mtime_ns*,
        held other bytes before. A listing of then may still come, with their length: it is known
        by its time.
        """
        self.size, self.stamp, self.began_ns = size, (size, mtime_ns), mtime_ns

    def search(self, end: int) -> None:
        """Note that no line ends between the offset and *end*."""
        self.searched = max(self.searched, end)

    def pass_over(self) -> None:
        """Let newer files be read, though this one may still grow."""
        self.is_passed = True

    def advance(self, data: bytes, *, is_inside_line: bool) -> None:
        """Note that *data*, at the offset, was read."""
        self.read = self.read.behind(data, is_inside_line=is_inside_line)
        self.searched = self.read.offset

    def acknowledge(self, chunk: Chunk) -> None:
        """Note that *chunk*, at the acknowledged offset, has arrived."""
        if chunk.end == self.read.offset:
            self.acked = self.read
        else:
            self.acked = self.acked.behind(
                chunk.data, is_inside_line=chunk.ends_inside_line, value=chunk.checksums.after
            )

    def begin_at(self, place: Place) -> None:
        """Leave out what lies before *place*, on purpose."""
        self.begin = place.offset
        self.go_back(Place(place.offset, NOTHING, place.tail, place.is_inside_line))

    def finish(self, length: int) -> None:
        """Note that it ends at *length*."""
        self.length, self.is_passed = length, True

    def give_up(self) -> None:
        """Note that what is left of it is left out on purpose."""
        self.is_lost = self.is_passed = True

    def miss(self) -> None:
        """Note that what is left of it cannot be read, unless a copy turns up."""
        self.give_up()
        self.is_missed = True

    def find(self, *, has_more: bool) -> None:
        """Note that a copy of it turned up, which may have more than was read."""
        if self.is_missed:
            self.is_lost = self.is_missed = False
            self.length = None
        elif has_more and not self.is_lost:
            self.length = None

    def rewind(self) -> None:
        """Read again from the acknowledged offset."""
        if self.read.offset > max(self.acked.offset, self.reached.offset):
            self.reached = self.read
        self.read = self.acked
        self.searched = self.read.offset

    def go_back(self, place: Place) -> None:
        """Read again from *place*."""
        if self.read.offset > max(place.offset, self.reached.offset):
            self.reached = self.read
        self.acked = self.read = place
        self.searched = place.offset

    def forget_tails(self) -> None:
        """Keep traces alone: a source may have many generations that are done."""
        if isinstance(self.acked.tail, bytes):
            self.read = self.acked = self.acked.without_tail()
        self.reached = Place()

    def close_handle(self) -> None:
        """Give the descriptor back; the file can be opened again while it has a name."""
        if self.handle is not None:
            self.handle.close()
            self.handle = None

    def was_sent(self, end: int, after: Checksum) -> None:
        """Note that its bytes up to *end* may have been sent, by a process before this one."""
        if end > max(self.read.offset, self.reached.offset):
            self.reached = Place(end, after)

    # -- what a restart needs to know

    def saved(self) -> list[Any]:
        """Return it as JSON."""
        return [
            *(self.id, list(self.identity or (0, 0, 0)), int(self.is_compressed), self.begin),
            *(self.acked.saved(), [self.head.size, checksum.encode(self.head.checksum)]),
            *(self.size, list(self.stamp), self.length if self.is_done else None, self.former),
            self.kept.saved() if self.kept is not None else None,
        ]

    @classmethod
    def restore(cls, row: list[Any]) -> Self:
        """Return the generation that `saved` described; its file is still to be found."""
        id, identity, is_compressed, begin, acked, head, size, stamp, length, former, *more = row
        kept = more[0] if more else None  # former versions had none
        place = Place.restore(acked)
        device, inode, born_ns = identity
        return cls(
            str(id),
            begin=int(begin),
            read=place,
            acked=place,
            kept=Place.restore(kept) if kept else None,
            head=Head(int(head[0]), checksum.decode(head[1])),
            identity=(int(device), int(inode), int(born_ns)) if inode else None,
            is_compressed=bool(is_compressed),
            is_verified=False,
            is_passed=length is not None,
            length=None if length is None else int(length),
            size=int(size),
            stamp=(int(stamp[0]), int(stamp[1])),
            searched=place.offset,
            former=str(former),
        )


def has_unread(saved: dict[str, Any] | None, births: Iterable[list[Any]]) -> bool:
    """Return whether a chain that saved *saved*, and noted its *births*, knew of bytes that it had
    not read.
    """
    rows = [*(saved["generations"] if saved is not None else ()), *births]
    return any(Generation.restore(row).has_rest for row in rows)


def saved_identities(
    saved: dict[str, Any] | None, births: Iterable[list[Any]]
) -> list[tuple[int, int, int]]:
    """Return which files a chain knew that saved *saved*, and noted its *births*."""
    rows = [*(saved["generations"] if saved is not None else ()), *births]
    found = [Generation.restore(row).identity for row in rows]
    return [identity for identity in found if identity is not None]
