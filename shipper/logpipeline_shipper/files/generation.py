"""One incarnation of a source's file: which file it is, where its bytes are now, how far they are
read, and how far acknowledged.

Its id is random and made once, when the file is first seen: two files never share an id, however
similar their bytes are. Only this module writes the fields of a generation; other modules call its
methods to ask for a fact or to report an event.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from logpipeline import checksum
from logpipeline.checksum import NOTHING, Checksum
from logpipeline.records import Committed
from logpipeline_shipper.files.chunk import Chunk
from logpipeline_shipper.files.listing import ChainFile
from logpipeline_shipper.files.open_file import Closed, Handle
from logpipeline_shipper.files.place import (
    BEGINNING,
    HEAD_BYTES,
    NO_HEAD,
    TAIL_BYTES,
    Head,
    Place,
    checksum_of,
)
from logpipeline_shipper.files.reader import CUT_SHORT, PACKED_BADLY, Content, Part, Reader

ID_BYTES = 8
# After a restart a file up to this size is read again, to verify by its checksum that it is still
# the same. Of a larger one the first bytes and the last ones are compared.
WHOLE_BYTES_MAX = 64 * 1024 * 1024
# If a file larger than this begins with all bytes of another one, it is a copy. A smaller file may
# be one that a program wrote again with the same bytes, or hold only a header that each file has.
ALIKE_BYTES_MAX = 1024 * 1024
# A file that cannot be read is tried again after 1, 2, 4 … seconds, and at last after so many.
_RETRY_MAX_S = 60.0
# Newer files of the source wait so long for a file that cannot be read. If it becomes readable
# after that, it is read late.
PATIENCE_S = 30.0


@dataclass(slots=True, eq=False)
class Generation:
    """See the module. *file* is None while no listing shows it. *begin* is the offset where
    shipping of it began: the bytes before are left out on purpose.

    *length* is its length once nothing more can be written; *is_passed*: newer generations may be
    read before it. *read* and *acked* are the places up to which it was read and acknowledged,
    *reached* the place up to which it was read before it was rewound. Its file may be a copy that
    was made before the last bytes were written: then *kept* is the end of the copy.
    """

    id: str
    file: ChainFile | None = None
    begin: int = 0
    read: Place = BEGINNING
    acked: Place = BEGINNING
    reached: Place = BEGINNING
    kept: Place | None = None
    head: Head = NO_HEAD
    identity: tuple[int, int, int] | None = None
    is_compressed: bool = False
    # The id under which another process sent the bytes before *begin*, as collectors report. That
    # process may have run on another machine, so nothing more is sent under this id.
    former: str = ""
    is_recalled: bool = False  # known from collectors alone: no file was found that has its bytes
    sent_before_ns: int = 0  # and by the system's clock it was sent before
    is_verified: bool = True  # since the start of the process its file was seen to be the same
    is_passed: bool = False
    length: int | None = None
    size: int = 0  # the largest length that was seen, and when it was seen
    grown_s: float = 0.0
    stamp: tuple[int, int] = (0, 0)  # length and time of modification in the last listing
    # Its file was truncated then: a listing with this time of modification, or an older one, shows
    # the bytes before the truncation.
    began_ns: int | None = None
    searched: int = 0  # no line ends between the offset and here
    # What newer files got later than its bytes up to here does not wait for more of it.
    bound: int | None = None
    # Its bytes up to here come behind what older files had by then, and before what they get later.
    due: int | None = None
    handle: Handle | None = None
    newer_since_s: float | None = None
    gone_since_s: float | None = None
    is_lost: bool = False  # its rest cannot be read, or is left out on purpose
    is_missed: bool = False  # its rest cannot be read, unless a copy is found
    failures: int = 0
    failing_since_s: float = 0.0
    failing_reason: str = ""
    retry_at_s: float = 0.0
    touched: tuple[int, float] | None = None  # a new time without new bytes, and when it was seen

    @staticmethod
    def new(file: ChainFile, now_s: float) -> Generation:
        """Return the generation of a new file."""
        made = Generation(secrets.token_hex(ID_BYTES))
        made.bind(file, now_s)
        return made

    # -- what it is

    @classmethod
    def recalled(cls, known: Committed, checksum: Checksum, before_ns: int) -> Self:
        """Return a generation that continues where collectors have *known*, which was sent before
        *before_ns*, in the file that has the same bytes up to there.
        """
        place = Place(known.offset, checksum)
        made = cls(secrets.token_hex(ID_BYTES), begin=known.begun, read=place, acked=place)
        made.former = known.generation
        made.searched, made.is_recalled, made.is_verified = place.offset, True, False
        made.sent_before_ns = before_ns
        return made

    @property
    def proof(self) -> Place:
        """The last place by which it can be recognised."""
        return self.read if self.read.offset >= self.reached.offset else self.reached

    @property
    def is_unread(self) -> bool:
        """Whether nothing of it was ever read."""
        return self.proof.offset <= self.begin

    @property
    def is_final(self) -> bool:
        """Whether its end is known, and nothing can be written after it."""
        return self.is_lost or self.length is not None

    @property
    def is_read(self) -> bool:
        """Whether there is nothing more to read."""
        return self.is_lost or (self.length is not None and self.read.offset >= self.length)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to read or to acknowledge."""
        return self.is_read and self.acked.offset >= self.read.offset

    @property
    def is_waiting(self) -> bool:
        """Whether it has bytes, before its *bound*, in which the end of a line was not searched
        yet.
        """
        end = self.extent if self.bound is None else min(self.extent, self.bound)
        return end > max(self.searched, self.read.offset)

    @property
    def may_go_on_alone(self) -> bool:
        """Whether something of it may become due though no file changes."""
        is_ending = self.changed_since_s is not None and (
            not self.is_passed or self.file is None or self.has_rest
        )
        return not self.is_read and (bool(self.retry_at_s) or is_ending)

    @property
    def has_rest(self) -> bool:
        """Whether it has bytes that are not read: an unfinished line, at least."""
        return self.extent > self.read.offset

    @property
    def extent(self) -> int:
        """The offset up to which it has bytes, as far as is known."""
        return max(self.size, self.proof.offset)

    @property
    def is_open(self) -> bool:
        """Whether its bytes can be read without a name."""
        return self.handle is not None and self.handle.is_open

    @property
    def is_written_unlisted(self) -> bool:
        """Whether a program writes on to its file, which was removed."""
        if self.file is not None or self.handle is None:
            return False
        try:
            return self.handle.is_written()
        except (Closed, OSError):
            return False

    @property
    def is_listed_before_it_began(self) -> bool:
        """Whether the listing shows what its file held before. The time of a file stands still for
        some milliseconds.
        """
        if self.file is None or self.began_ns is None:
            return False
        listed = (self.file.mtime_ns, self.file.size)
        return listed[0] < self.began_ns or (listed[0] == self.began_ns and listed[1] > self.size)

    @property
    def may_lie_elsewhere(self) -> bool:
        """Whether its file, which no listing shows, may have another name, and so little was read
        of it that other files may begin with the same bytes.
        """
        if self.identity is None or self.length is not None or self.is_lost:
            return False
        if self.proof.offset - self.begin >= HEAD_BYTES:
            return False
        try:
            return self.handle is None or self.handle.has_name()
        except (Closed, OSError):
            return True

    @property
    def changed_since_s(self) -> float | None:
        """The time since which it is not the live file of its source, None while it is."""
        times = [time for time in (self.gone_since_s, self.newer_since_s) if time is not None]
        return min(times, default=None)

    # -- whether bytes are its own

    def may_lie_in(self, file: ChainFile) -> bool:
        """Return whether *file* is not too young to hold what a former process sent. One that is
        has the same bytes because a program wrote the same once more.
        """
        # Where files have no time of birth, one that was written to since counts as new: its lines
        # may come twice, and none is taken for another one.
        born_ns = file.born_ns or file.mtime_ns
        # Packers mostly give the packed file, which is younger, the time of the former one.
        at_ns = born_ns if file.is_live else min(born_ns, file.mtime_ns)
        return self.may_be_as_old(at_ns, is_packed=file.compressed)

    def may_be_as_old(self, at_ns: int, *, is_packed: bool) -> bool:
        """Return whether a file that was written at *at_ns* may hold what a former process sent, as
        far as is known. Of a packed one, that is no time of its bytes where the packer, as kubelet,
        keeps none: it may hold whatever is too long to be written twice by chance.
        """
        if not self.is_recalled or at_ns <= self.sent_before_ns:
            return True
        return is_packed and self.proof.offset - self.begin >= HEAD_BYTES

    def verify(self, content: Content) -> bool:
        """Return whether *content*, the file that is taken for it, still has what was read. The
        first time after a restart all of that is compared, and that it was the same is noted.
        """
        reached = self._there(self.reached)
        if not content.compressed and content.size() < max(self.size, reached.offset):
            return False
        if not self.head.begins(content):
            return False
        # All bytes are compared before the last ones: what is packed is then unpacked once.
        if content.compressed and not self._is_verified_in(content):
            return False
        if not self._there(self.read).is_behind(content):
            return False
        is_further = reached.offset > self.read.offset and not content.compressed
        if is_further and not reached.is_behind(content):
            return False
        if not content.compressed and not self._is_verified_in(content):
            return False
        self.is_verified = True
        return True

    def _is_verified_in(self, content: Content) -> bool:
        # Up to what a former process may have sent: the file may have been truncated since.
        proof = self._there(self.proof)
        is_whole = not self.is_verified and proof.offset - self.begin <= WHOLE_BYTES_MAX
        return not is_whole or self._has_checksum(content, proof)

    def is_copied_in(self, content: Content) -> bool:
        """Return whether *content*, a new file, is a copy of it, packed or not: by all bytes that
        were read, since a head and a tail are the same in many files. If its file was read to the
        end, and removed, then a small file with further bytes is no copy: it only begins with the
        same bytes.
        """
        proof = self._there(self.proof)
        # A head may reach further than what was read, and than what was copied.
        if self.head.size <= proof.offset and not self.head.begins(content):
            return False
        if proof.offset > self.begin:
            # The last bytes tell most files apart, but all of a packed file is unpacked to see
            # them: there they come last, and are still in memory.
            if not content.compressed and not proof.is_behind(content):
                return False
            if not (self._has_checksum(content, proof) and proof.is_behind(content)):
                return False
            has_end = self.length is not None and self.identity is not None
            may_be_alike = has_end and proof.offset <= ALIKE_BYTES_MAX
            return not (may_be_alike and self.has_more_in(content))
        if not self.head.begins(content):
            return False
        mask = 0xFFFFFFFF if content.compressed else -1  # gzip notes lengths modulo 4 GiB
        return not content.tells_size or content.size() >= self.size & mask

    def may_be_packed_in(self, content: Reader) -> bool:
        """Return whether *content*, a packed file that lacks its end, may be a copy of it when that
        is written.
        """
        if self.head.size and content.read(self.head.size - 1, 1) and not self.head.begins(content):
            return False
        end = self._there(self.proof).offset
        has_all = end > 0 and content.read(end - 1, 1)
        return not has_all and content.broken.endswith(CUT_SHORT)

    def has_more_in(self, content: Content) -> bool:
        """Return whether *content*, a copy of it, has bytes after the last one that was read."""
        return bool(content.read(self._there(self.proof).offset, 1))

    def end_in(self, content: Content, recent: Sequence[Part]) -> Place | None:
        """Return the end of *content*, a new file, if it is a copy of it that was made before the
        last of the *recent* bytes was written; else None.
        """
        # A file that was written to after these bytes is no copy: it is another file that begins
        # with the same bytes.
        if not recent or content.written_ns() > recent[-1].written_ns:
            return None
        first = recent[0].offset
        if self.head.size <= first and not self.head.begins(content):
            return None  # and what is packed need not be unpacked any further
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
                # An empty file has nothing to compare: it need not be a copy. The checksum comes
                # last, since it reads the whole file, and a copy in the making is looked at often.
                is_copy = place.offset > self.begin and self._has_checksum(content, start)
                return place if is_copy else None
        return None

    def is_proven_in(self, content: Content) -> bool:
        """Return whether *content*, a file with another source's name, is a copy of it."""
        proof = self._there(self.proof)
        has_any = proof.offset > self.begin or (self.head.size and self.size)
        return bool(has_any) and self.is_copied_in(content)

    def _there(self, place: Place) -> Place:
        """Return *place*, or the end of its file if the file ends before it."""
        return place if self.kept is None or place.offset <= self.kept.offset else self.kept

    def _has_checksum(self, content: Content, place: Place) -> bool:
        return checksum_of(content, self.begin, place.offset) == place.checksum

    # -- events

    def bind(self, file: ChainFile, now_s: float) -> None:
        """Note that its bytes are in *file*."""
        if file.compressed and not self.is_compressed and self.length is None:
            # Its length does not show whether it has more than was read: it has to be unpacked.
            self.is_passed = False
        if file.compressed and file.identity == self.identity and file.size > self.stamp[0]:
            # It was being written, or got a further member.
            self._expect_more()
        if file.identity != self.identity:
            self.began_ns = None  # it is the time of another file
        self.file, self.identity, self.is_compressed = file, file.identity, file.compressed
        self.is_recalled = False
        self.touched, self.gone_since_s = None, None
        if self.began_ns is not None and file.mtime_ns <= self.began_ns:
            return
        self.stamp = (file.size, file.mtime_ns)
        if not file.compressed and file.size > self.size:
            self._grow(file.size, now_s)

    def _expect_more(self) -> None:
        """Read it on from the offset, though its end was seen, or what was to be its rest could not
        be read.
        """
        if self.is_missed:
            self.is_lost = self.is_missed = False
        if not self.is_lost:
            self.length, self.is_passed = None, False
        self.failures, self.retry_at_s = 0, 0.0

    def shorten(self, end: int, kept: Place | None, head: Head) -> None:
        """Note that its file is a copy, which begins with *head* and ends at *end*, before the end
        that was seen of the original; *kept* is the end of the copy if more was read.
        """
        self.size, self.kept, self.head = end, kept, head

    def _grow(self, size: int, now_s: float) -> None:
        self.size, self.grown_s = size, now_s
        if not self.is_lost:
            self.length = None

    def note_touch(self, file: ChainFile, now_s: float, patience_s: float) -> int | None:
        """Note whether *file*, its own, has a new time and the old length. If a program writes the
        same in each run, it has then written the same bytes once more: return at which time of
        modification, in nanoseconds, once that is certain; else None.

        A program that appends shows the new time before the new length, too, but not for
        *patience_s*, and not twice: a write waits for the one before it.
        """
        size, _ = self.stamp
        is_touched = (file.size, file.mtime_ns) != self.stamp and file.size == size
        if not is_touched or file.compressed or not 0 < size <= ALIKE_BYTES_MAX:
            self.touched = None
            return None
        if self.touched is None:
            self.touched = (file.mtime_ns, now_s)
        mtime_ns, since_s = self.touched
        is_certain = file.mtime_ns != mtime_ns or now_s - since_s >= patience_s
        return mtime_ns if is_certain else None

    def lose_sight(self, now_s: float) -> None:
        """Note that no listing shows its file; it may be found at another path."""
        self.file = None
        if self.gone_since_s is None:
            self.gone_since_s = now_s

    def lose_file(self, now_s: float) -> None:
        """Note that its file has other bytes now; a copy may be found."""
        self.close_handle()
        self.identity = None
        self.gone_since_s = None
        self.lose_sight(now_s)

    def keep_open(self, handle: Handle, now_s: float) -> None:
        """Keep its file open."""
        self.handle = handle
        self.observe(handle, now_s)
        if handle.compressed:
            # Because of several members, or 4 GiB, the end of a packed file need not be its length.
            self.size = max(handle.size(), self.read.offset)

    def observe(self, content: Content, now_s: float) -> None:
        """Note the head and the length of *content*, its file."""
        if self.head.size < HEAD_BYTES and (self.head.size < self.size or not self.head.size):
            self.head = Head.of(content)
        if not content.compressed and (size := content.size()) > self.size:
            self._grow(size, now_s)

    def begin_anew(self, size: int, mtime_ns: int) -> None:
        """Note that its file, which is *size* bytes long now and was modified last at *mtime_ns*,
        held other bytes before. A listing that was made before may still come, with the former
        length: it is recognised by its time.
        """
        self.size, self.stamp, self.began_ns = size, (size, mtime_ns), mtime_ns

    def be_newest(self) -> None:
        """Note that no file of the source is newer."""
        self.newer_since_s = None

    def note_newer(self, now_s: float) -> None:
        """Note that the source has a newer file."""
        if self.newer_since_s is None:
            self.newer_since_s = now_s

    def fail(self, reason: str, now_s: float) -> None:
        """Note that its file cannot be read, and the *reason*."""
        self.failing_reason = reason
        if not self.failures:
            self.failing_since_s = now_s
        self.failures += 1
        if reason.endswith(PACKED_BADLY):
            # How many bytes it has, nobody knows: what stands at its end need not be its length.
            self.size = self.read.offset + 1
        self.close_handle()
        self.try_again(now_s + min(2.0 ** (self.failures - 1), _RETRY_MAX_S))

    def may_be_passed(self, now_s: float) -> bool:
        """Return whether newer files are read before this one, which cannot be read."""
        if self.is_read or self.is_passed:
            return True
        return bool(self.failures) and now_s - self.failing_since_s >= PATIENCE_S

    def try_again(self, at_s: float) -> None:
        """Have its file read again at *at_s*, and not before."""
        self.retry_at_s = at_s

    def succeed(self) -> None:
        """Note that its file could be read."""
        self.failures, self.retry_at_s = 0, 0.0

    def search(self, end: int) -> None:
        """Note that no line ends between the offset and *end*."""
        self.searched = max(self.searched, end)

    def pass_over(self) -> None:
        """Let newer files be read, though this one may still grow."""
        self.is_passed = True

    def advance(self, data: bytes, sent: bytes, *, is_inside_line: bool) -> None:
        """Note that *data*, at the offset, was read, to be sent as *sent*."""
        before, redacted = self.read, None
        if before.redacted is not None or sent != data:
            redacted = checksum.extend(before.sent_checksum, sent)
        self.read = before.behind(data, is_inside_line=is_inside_line, redacted=redacted)
        self.searched = self.read.offset

    def acknowledge(self, chunk: Chunk) -> None:
        """Note that *chunk*, at the acknowledged offset, has arrived."""
        if chunk.end == self.read.offset:
            self.acked = self.read
        else:
            there = chunk.in_file
            self.acked = self.acked.behind(
                there.data,
                is_inside_line=chunk.ends_inside_line,
                value=there.checksums.after,
                redacted=None if chunk.unredacted is None else chunk.checksums.after,
            )

    def begin_at(self, place: Place) -> None:
        """Leave out the bytes before *place*, on purpose."""
        self.begin = place.offset
        self.go_back(Place(place.offset, NOTHING, place.tail, place.is_inside_line))

    def finish(self, length: int) -> None:
        """Note that it ends at *length*."""
        self.length, self.is_passed = length, True

    def give_up(self) -> None:
        """Leave out its rest, on purpose."""
        self.is_lost = self.is_passed = True

    def miss(self) -> None:
        """Note that its rest cannot be read, unless a copy is found."""
        self.give_up()
        self.is_missed = True

    def note_copy(self, *, has_more: bool) -> None:
        """Note that a copy of it was found; *has_more*: the copy has more than was read."""
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

    def put_away(self) -> None:
        """Close its file, and replace its tails by traces: a source may have many generations that
        are done.
        """
        self.close_handle()
        if isinstance(self.acked.tail, bytes):
            self.read = self.acked = self.acked.without_tail()
        self.reached = BEGINNING

    def close_handle(self) -> None:
        """Close its file, which can be opened again while it has a name."""
        if self.handle is not None:
            self.handle.close()
            self.handle = None

    def was_sent(self, end: int, after: Checksum) -> None:
        """Note that a former process may have sent its bytes up to *end*."""
        if end > max(self.read.offset, self.reached.offset):
            self.reached = Place(end, after)

    # -- saved state

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
        """Return the generation that `saved` described; its file has to be found."""
        id, identity, is_compressed, begin, acked, head, size, stamp, length, former, *more = row
        kept = more[0] if more else None  # former versions saved none
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
