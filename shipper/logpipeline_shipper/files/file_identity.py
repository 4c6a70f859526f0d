"""Decides which generation each file of a listing is.

A file is recognised by its device, inode and time of birth, whatever its name and folder: names and
first lines are alike in many files. If it was away, or its device has another number since a
reboot, its bytes have to be those that were read, too. A file that is not recognised is a copy of a
known one, packed or not, if it has all of its bytes, by their checksum. Every other file is new.

The decisions are returned, and the chain that owns the generations carries them out. Nothing is
changed here, but for the note that a generation was verified, which spares reading it once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, Protocol

from logpipeline.codecs import unpacked
from logpipeline_shipper.files.generation import Generation
from logpipeline_shipper.files.listing import ChainFile
from logpipeline_shipper.files.open_file import NOT_READ, Moved
from logpipeline_shipper.files.place import HEAD_BYTES, Head, Place
from logpipeline_shipper.files.reader import Content, Reader, Recent

# Two files side by side are compared in so many places, so many bytes in each.
_COMPARED_BYTES = 64 * 1024
_COMPARED_PLACES = 16
# A rotator begins to pack a log within so long after it made the next one.
_PACKED_WITHIN_NS = 60 * 10**9


class Opener(Protocol):
    """Opens files for one look."""

    def open_file(self, file: ChainFile, /) -> Reader:
        """Return a reader of *file*; one of `NOT_READ` is raised where there is none."""


@dataclass(frozen=True, slots=True)
class Same:
    """*file* is the file of *generation*, at the path where it was or at another one."""

    file: ChainFile
    generation: Generation


@dataclass(frozen=True, slots=True)
class Replaced:
    """*file* has the inode of *generation*, but other bytes: *size* of them by now. *is_cut*: it is
    the same file, truncated and written again. They are those of *recalled*, if it is given, which
    collectors have.
    """

    file: ChainFile
    generation: Generation
    is_cut: bool
    size: int
    recalled: Generation | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """*file* has the bytes of *generation*, whose own file is gone or holds other bytes by now, or
    it is that file, which was away. *has_more*: further bytes follow them. *short* is given if the
    copy ends before the end that was seen of the generation: the rest was written after the copy
    was made.
    """

    file: ChainFile
    generation: Generation
    has_more: bool
    short: Short | None = None


@dataclass(frozen=True, slots=True)
class Short:
    """A copy that ends at *end* and begins with *head*; *kept* is its end if more was read."""

    end: int
    head: Head
    kept: Place | None


@dataclass(frozen=True, slots=True)
class Shadow:
    """*file* is a copy of *generation*, which still has its own file: there is nothing to read."""

    file: ChainFile
    generation: Generation


@dataclass(frozen=True, slots=True)
class New:
    """Neither *file* nor its bytes were seen before."""

    file: ChainFile


class Awaited(Enum):
    """What decides on a file. One for which an end or a truncation does not come in time is new."""

    LISTING = "listing"  # the next one
    END = "end"  # it is packed and lacks its end, with which it may be a copy
    # It is packed and holds only a header, with which the live file and others begin: it is a copy
    # of the live file if that one is truncated now.
    TRUNCATION = "truncation"


@dataclass(frozen=True, slots=True)
class Unsure:
    """*file* could not be decided on yet. It is a copy of *generation*, if there is one, unless
    that one's own file turns up.
    """

    file: ChainFile
    generation: Generation | None = None
    awaited: Awaited = Awaited.LISTING


class Resemblance(Enum):
    """The resemblance of a file, which has another source's name, to this source."""

    NONE = "none"
    COPIES = "copies"  # it has bytes that are in the source's files too: a copy in the making?
    # It has all that was read of a generation, whose own file may turn up yet.
    AWAITS = "awaits"
    # It has all that was read of a generation, whose own file has these bytes no more.
    CONTINUES = "continues"


Finding = Same | Replaced | Copy | Shadow | New | Unsure


class FileMatcher:
    """Compares files with the generations of one source. *opener* opens files for one look;
    *recent* holds the bytes that were read last. *may_turn_up* is told a generation and the time
    now: where it is true, no other file is taken for a copy of that generation.
    """

    def __init__(
        self, opener: Opener, recent: Recent, may_turn_up: Callable[[Generation, float], bool]
    ) -> None:
        self._opener = opener
        self._recent = recent
        self._may_turn_up = may_turn_up

    def match(
        self,
        files: Sequence[ChainFile],
        generations: Sequence[Generation],
        past: Sequence[Generation],
        now_s: float,
    ) -> list[Finding]:
        """Return what each of *files* (oldest first) is, given the *generations* of their source,
        and the *past* ones, whose files are gone.
        """
        # Of two generations with one identity, the file was truncated between them: it holds the
        # later one.
        by_identity = {known.identity: known for known in generations if known.identity}
        seen = [
            (file, by_identity[file.identity]) for file in files if file.identity in by_identity
        ]
        # A file that grew is verified when it is read. But next to a file that may be a copy of it,
        # it must be known now whether the live file was truncated and has grown since.
        has_unknown = len(seen) < len(files)
        findings: dict[ChainFile, Finding] = {
            file: self._seen_again(file, known, is_trusted=not (has_unknown and file.is_live))
            for file, known in seen
        }
        originals = [found for found in findings.values() if isinstance(found, Same)]
        there = {id(found.generation) for found in originals}
        wanted = [known for known in generations if id(known) not in there] + list(past)
        # A file may begin with all that was read of several generations: it belongs to the one of
        # which most was read.
        wanted.sort(key=lambda known: known.proof.offset, reverse=True)
        for file, found in findings.items():
            # If the file was emptied after this process began, its lines are new.
            if isinstance(found, Replaced) and not found.generation.is_verified:
                recalled = self._recalled_in(file, wanted)
                if recalled is not None:
                    findings[file] = replace(found, recalled=recalled)
                    wanted.remove(recalled)
        begun = [file for file in files if not isinstance(findings.get(file), Same)]
        plain = {file.path: file for file in files if not file.compressed}
        for file in files:
            if file in findings:
                continue
            whole = plain.get(file.path.with_name(unpacked(file.path.name)))
            if file.compressed and whole is not None and self._is_being_packed(file, whole):
                same = findings.get(whole)
                known = same.generation if isinstance(same, Same) else None
                # Next to a plain file that is new itself, the next listing decides.
                findings[file] = Unsure(file) if known is None else Shadow(file, known)
                continue
            found = findings[file] = self._first_seen(file, wanted, originals, begun, now_s)
            if isinstance(found, Copy):
                wanted.remove(found.generation)
        return [findings[file] for file in files]

    def resemblance(
        self,
        content: Reader,
        generations: Sequence[Generation],
        past: Sequence[Generation],
        now_s: float,
    ) -> Resemblance:
        """Return how *content*, a file that no source knows, resembles a source."""
        found = Resemblance.NONE
        for known in (*past, *generations):
            if not known.may_be_as_old(content.written_ns(), is_packed=content.compressed):
                continue
            file = known.file
            if (
                known.is_proven_in(content)
                or known.end_in(content, self._recent.of(known.id)) is not None
                or _has_open_bytes(content, known)
            ):
                is_there = self._is_still_in(file, known) if file is not None else None
                # One that was truncated where it lies does not turn up under another name.
                if is_there is False or (is_there is None and not self._may_turn_up(known, now_s)):
                    return Resemblance.CONTINUES
                kind = Resemblance.COPIES if is_there else Resemblance.AWAITS
            elif content.broken or (
                file is not None and self._is_beginning(content, file, known) is not False
            ):
                # A packed file that ends too early may still become a copy.
                kind = Resemblance.COPIES
            else:
                continue
            if found is not Resemblance.AWAITS:
                found = kind
        return found

    def _seen_again(
        self, file: ChainFile, known: Generation, *, is_trusted: bool
    ) -> Same | Replaced:
        if is_trusted and (file.size, file.mtime_ns) == known.stamp:
            return Same(file, known)
        has_grown = file.size > known.size and known.is_verified and file.born_ns
        if known.is_open or not (has_grown and is_trusted):
            try:
                # An open file may have lost its name since it was listed.
                with self._content(file, known if is_trusted else None) as content:
                    if not known.verify(content):
                        # Without times of birth, another file may have been given the inode.
                        size = content.size()
                        is_cut = bool(file.born_ns) or size < known.size
                        return Replaced(file, known, is_cut=is_cut, size=size)
            except NOT_READ:
                # Reading meets the error again. A renamed file keeps the place at which it was
                # listed.
                return Same(file, known)
        return Same(file, known)

    def _first_seen(
        self,
        file: ChainFile,
        wanted: list[Generation],
        originals: list[Same],
        begun: list[ChainFile],
        now_s: float,
    ) -> Finding:
        """Return what *file* is, whose identity is new: a copy of one of *wanted*, which have no
        file, or of one of *originals*, which have one; else it is new, as the files *begun* are.
        """
        if file.is_aside:
            return Unsure(file)  # a rotator copies it, and the copy is read
        wanted = [known for known in wanted if known.may_lie_in(file)]
        again = [] if file.compressed else [each for each in wanted if _is_file_of(each, file)]
        if file.is_live:
            # Rotators copy away from the live file, never to it. If it has the bytes of a former
            # one, it is the next run of a program that writes the same lines again.
            wanted = [known for known in wanted if known.is_recalled]
            if not (again or wanted):
                return New(file)
        with _opened(file, self._opener) as content:
            if content is None:
                # Whoever reads a generation verifies its file, and reports what is in the way.
                return Copy(file, again[0], has_more=True) if again else Unsure(file)
            try:
                # It may have grown since, and needs not end where it was read to.
                known = next((each for each in again if each.verify(content)), None)
                if known is not None:
                    return Copy(file, known, known.has_more_in(content))
                found = self._copied(file, content, wanted)
                if found is not None:
                    may_turn_up = self._may_turn_up(found.generation, now_s)
                    return Unsure(file, found.generation) if may_turn_up else found
                if any(each.may_be_packed_in(content) for each in wanted):
                    return Unsure(file, awaited=Awaited.END)
                for original in [] if file.is_live else originals:
                    is_copy = self._is_copied_from(file, content, original)
                    if is_copy is None:
                        return Unsure(file)
                    if is_copy:
                        may_be_former = self._may_be_former(file, content, original, originals)
                        awaiting = Unsure(file, awaited=Awaited.TRUNCATION)
                        return awaiting if may_be_former else Shadow(file, original.generation)
                for other in [] if file.is_live else begun:
                    # A renamed file is older than the new log; a younger one was copied from it.
                    is_younger = 0 < other.born_ns < file.born_ns
                    if is_younger and self._is_beginning(content, other) is not False:
                        return Unsure(file)  # the log itself is new: the next listing decides
            except OSError:
                return Unsure(file)
        return New(file)

    def _recalled_in(self, file: ChainFile, wanted: list[Generation]) -> Generation | None:
        """Return which of *wanted*, of those that collectors have, *file* has the bytes of."""
        recalled = [known for known in wanted if known.is_recalled]
        if not recalled:
            return None
        with _opened(file, self._opener) as content:
            copy = self._copied(file, content, recalled) if content is not None else None
        return copy.generation if copy is not None else None

    def _copied(self, file: ChainFile, content: Content, wanted: list[Generation]) -> Copy | None:
        """Return of which of *wanted* the *file*, which holds *content*, is a copy."""
        for known in wanted:
            if known.is_copied_in(content):
                # The length of a packed file is not known before it is read.
                end, short = 0 if content.compressed else content.size(), None
                if not content.compressed and end < known.size:
                    short = Short(end, Head.of(content), known.kept)
                return Copy(file, known, known.has_more_in(content), short)
        for known in wanted:
            kept = known.end_in(content, self._recent.of(known.id))
            if kept is not None:
                return Copy(file, known, False, Short(kept.offset, Head.of(content), kept))
        return None

    def _is_copied_from(self, file: ChainFile, content: Content, original: Same) -> bool | None:
        """Return whether *file*, which holds *content*, is a copy of *original*, packed or not;
        None if that cannot be decided: the log may have been renamed, and *file* be an older one.
        """
        whole, known = original.file, original.generation
        if not content.compressed:
            # A copy is younger than the log, unless it was written into a file that was there.
            # So few bytes may be a header of both.
            if 0 < file.born_ns < whole.born_ns and content.size() < HEAD_BYTES:
                return False
            return self._is_beginning(content, whole, known)
        if not (whole.is_live or whole.is_aside):
            return False
        # A packed file that is older than the log was made of a former one, even if both begin
        # with the same bytes.
        is_younger = 0 < whole.born_ns < file.born_ns
        return self._is_packed_beginning(content, whole, known) if is_younger else False

    def _may_be_former(
        self, file: ChainFile, content: Content, original: Same, others: Sequence[Same]
    ) -> bool:
        """Return whether *file*, whose *content* is that with which *original* begins, may be the
        log before that one, and was packed late: *content* is only a header, with which another one
        of *others* begins as well.
        """
        live = original.file
        is_early = file.born_ns - live.born_ns <= _PACKED_WITHIN_NS
        if not (content.compressed and live.is_live and is_early):
            return False
        header = content.read(0, HEAD_BYTES)
        return 0 < len(header) < HEAD_BYTES and any(
            other is not original and self._has_header(other.file, header) for other in others
        )

    def _has_header(self, file: ChainFile, header: bytes) -> bool:
        with _opened(file, self._opener) as content:
            try:
                return content is not None and content.read(0, len(header)) == header
            except OSError:
                return False

    def _is_still_in(self, file: ChainFile, known: Generation) -> bool | None:
        """Return whether *file* holds what was read of *known*; None if another file, or none, has
        its name now.
        """
        try:
            with self._content(file, None) as content:
                return known.verify(content)
        except Moved:
            return None
        except NOT_READ:
            return True

    def _is_beginning(
        self, content: Content, original: ChainFile, known: Generation | None = None
    ) -> bool | None:
        """Return whether *original* begins with *content*, as far as they are compared; None if
        that cannot be decided: *original* cannot be opened, or does not hold what was read of
        *known* any more.
        """
        size = content.size()  # an empty one begins everything
        is_copied_from = original.is_live or original.is_aside
        if not is_copied_from or original.compressed or content.compressed:
            return False
        with _opened(original, self._opener) as whole:
            if whole is None:
                return None
            # Both may have changed since they were listed.
            is_longer = size > whole.size()
            last = max(0, size - _COMPARED_BYTES)
            step = max(1, last // _COMPARED_PLACES)
            places = range(0, last + 1, step)
            if not is_longer and all(
                content.read(at, _COMPARED_BYTES) == whole.read(at, min(_COMPARED_BYTES, size - at))
                for at in places
            ):
                return True
            return _is_unlike(known, whole)

    def _is_being_packed(self, packed: ChainFile, whole: ChainFile) -> bool:
        """Return whether *packed* holds the beginning of *whole*, which stays beside it until the
        packer has finished; also where that cannot be decided.
        """
        with _opened(packed, self._opener) as content:
            return content is None or self._is_packed_beginning(content, whole) is not False

    def _is_packed_beginning(
        self, content: Content, whole: ChainFile, known: Generation | None = None
    ) -> bool | None:
        """Return whether *whole* begins with *content*, which is that of a packed file, as far as
        they are compared; None if that cannot be decided, as in `_is_beginning`.
        """
        with _opened(whole, self._opener) as original:
            if original is None:
                return None
            try:
                return True if _begins(original, content) else _is_unlike(known, original)
            except OSError:
                return None

    @contextmanager
    def _content(self, file: ChainFile, known: Generation | None) -> Iterator[Content]:
        """Lend the content of *file*, which is open already while *known* is being read."""
        handle = known.handle if known is not None else None
        if handle is not None and handle.is_open and handle.key == file.key:
            yield handle
            return
        reader = self._opener.open_file(file)
        try:
            yield reader
        finally:
            reader.close()


def _is_file_of(known: Generation, file: ChainFile) -> bool:
    """Return whether *file* has the inode, and the time of birth, of the file that *known* had: it
    was away, or its device has another number since the system was booted.
    """
    identity = known.identity
    if identity is None or identity[1:] != file.identity[1:]:
        return False
    # Without times of birth, another file may have got the inode. The number of a device changes
    # only at a boot, and after a restart all that was read is compared.
    return bool(file.born_ns) or (file.device != identity[0] and not known.is_verified)


def _has_open_bytes(content: Content, known: Generation) -> bool:
    """Return whether *content* begins with what the open file of *known* holds, of which nothing
    was read yet: all of it may have been written, and packed elsewhere, since it was listed.
    """
    handle = known.handle
    if handle is None or not handle.is_open or not known.is_unread:
        return False
    # A rotator packs no packed file. And its reader has a state, which belongs to the thread that
    # may be reading the source right now; a plain file can be read by two threads.
    if handle.compressed:
        return False
    try:
        return handle.size() > 0 and _begins(content, handle)
    except NOT_READ:
        return False


def _is_unlike(known: Generation | None, whole: Content) -> Literal[False] | None:
    """Return False: a file that was compared with *whole*, the file of *known*, is no copy of it.
    Return None if *whole* was truncated before or meanwhile: it was compared with something else.
    """
    return False if known is None or known.verify(whole) else None


def _begins(whole: Content, beginning: Content) -> bool:
    """Return whether *whole* begins with all of *beginning*, as far as they are compared."""
    for at in range(0, _COMPARED_PLACES * _COMPARED_BYTES, _COMPARED_BYTES):
        data = beginning.read(at, _COMPARED_BYTES)
        if data != whole.read(at, len(data)):
            return False
        if len(data) < _COMPARED_BYTES:
            break
    return True


@contextmanager
def _opened(file: ChainFile, opener: Opener) -> Iterator[Reader | None]:
    try:
        reader = opener.open_file(file)
    except NOT_READ:
        yield None
        return
    try:
        yield reader
    finally:
        reader.close()
