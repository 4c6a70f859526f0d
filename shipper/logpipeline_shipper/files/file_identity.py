"""Which generation each file of a listing is.

A file is known again by its device, inode and time of birth, whatever it is called and wherever it
stands: names and first lines are alike in many files. One that is not known is a copy of a known
one, compressed or not, if it has all of its bytes: told by their checksum. What is neither is new.

Nothing is changed here: what was found is returned, and the chain that owns the generations acts
on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from logpipeline.codecs import unpacked
from logpipeline_shipper.files.generation import Generation, Head, Place
from logpipeline_shipper.files.listing import ChainFile
from logpipeline_shipper.files.open_file import Closed, Moved, TooManyOpen, Unreadable
from logpipeline_shipper.files.reader import Content, Reader, Recent

# How much of two files is compared that stand beside each other, in so many places.
_COMPARED_BYTES = 64 * 1024
_COMPARED_PLACES = 16

Open = Callable[[ChainFile], Reader]
NOT_OBSERVED = (Moved, Unreadable, TooManyOpen, OSError)
# Why a file that may be open already is not read now.
NOT_READ = (*NOT_OBSERVED, Closed)


@dataclass(frozen=True, slots=True)
class Same:
    """*file* is that of *generation*, where it was or at another place."""

    file: ChainFile
    generation: Generation


@dataclass(frozen=True, slots=True)
class Replaced:
    """*file* has the inode of *generation*, and other bytes, *size* of them by now; *is_cut* says
    that it is the same file, cut and written anew.
    """

    file: ChainFile
    generation: Generation
    is_cut: bool
    size: int


@dataclass(frozen=True, slots=True)
class Copy:
    """*file* has the bytes of *generation*, whose own file is gone, or holds others by now;
    *has_more* says that others stand behind them. *short* is what it is, if it ends before what was
    seen of the generation: the rest was written behind the copy's back.
    """

    file: ChainFile
    generation: Generation
    has_more: bool
    short: Short | None = None


@dataclass(frozen=True, slots=True)
class Short:
    """A copy that ends at *end*, and begins with *head*; *kept* is its end, where more was read."""

    end: int
    head: Head
    kept: Place | None


@dataclass(frozen=True, slots=True)
class Shadow:
    """*file* is a copy of *generation*, which still has its own: it brings nothing yet."""

    file: ChainFile
    generation: Generation


@dataclass(frozen=True, slots=True)
class New:
    """*file* was never seen before, nor was what it holds."""

    file: ChainFile


@dataclass(frozen=True, slots=True)
class Unsure:
    """*file* could not be looked at: the next listing tells."""

    file: ChainFile


class Resemblance(Enum):
    """What a file that another source's name was given to has of a source's bytes."""

    NONE = "none"
    COPIES = "copies"  # what stands in its files as well: it may be a copy that is being made
    CONTINUES = "continues"  # all that was read of a generation whose own file has them no more


Finding = Same | Replaced | Copy | Shadow | New | Unsure


def recognise(
    files: Sequence[ChainFile],
    generations: Sequence[Generation],
    past: Sequence[Generation],
    open_file: Open,
    recent: Recent,
) -> list[Finding]:
    """Return what each of *files* (oldest first) is, given the *generations* of their source,
    *past* ones, which had no file any more, and what was read last.
    """
    # Of two with one identity, the file was cut between them: it holds the later one.
    by_identity = {known.identity: known for known in generations if known.identity}
    seen = [(file, by_identity[file.identity]) for file in files if file.identity in by_identity]
    # What grew is looked at by whoever reads on. Beside a file that may be a copy of it, it is to
    # be known now whether the live one was cut, and has grown since.
    has_unknown = len(seen) < len(files)
    findings: dict[ChainFile, Finding] = {
        file: _seen_again(file, known, open_file, is_trusted=not (has_unknown and file.is_live))
        for file, known in seen
    }
    there = {id(found.generation) for found in findings.values() if isinstance(found, Same)}
    wanted = [known for known in generations if id(known) not in there] + list(past)
    # A file may begin with all that was read of several: it is the one of which most was.
    wanted.sort(key=lambda known: known.proof.offset, reverse=True)
    originals = [found for found in findings.values() if isinstance(found, Same)]
    begun = [file for file in files if not isinstance(findings.get(file), Same)]
    plain = {file.path: file for file in files if not file.compressed}
    for file in files:
        if file in findings:
            continue
        whole = plain.get(file.path.with_name(unpacked(file.path.name)))
        if file.compressed and whole is not None and _is_being_packed(file, whole, open_file):
            same = findings.get(whole)
            known = same.generation if isinstance(same, Same) else None
            # Beside a file that is new itself, the next look tells.
            findings[file] = Unsure(file) if known is None else Shadow(file, known)
            continue
        found = findings[file] = _first_seen(file, wanted, originals, begun, open_file, recent)
        if isinstance(found, Copy):
            wanted.remove(found.generation)
    return [findings[file] for file in files]


def resemblance(
    content: Reader,
    generations: Sequence[Generation],
    past: Sequence[Generation],
    open_file: Open,
    recent: Recent,
) -> Resemblance:
    """Return what *content*, a file that nobody knows, has of the bytes of a source."""
    found = Resemblance.NONE
    for known in (*past, *generations):
        file = known.file
        if (
            known.is_proven_in(content)
            or known.end_in(content, recent.of(known.id)) is not None
            or _has_open_bytes(content, known)
        ):
            if file is None or not _is_still_in(file, known, open_file):
                return Resemblance.CONTINUES
            found = Resemblance.COPIES
        elif content.broken or (
            file is not None and _is_beginning(content, file, open_file, known) is not False
        ):
            # A packed file that is cut short may still become a copy.
            found = Resemblance.COPIES
    return found


def _has_open_bytes(content: Content, known: Generation) -> bool:
    """Return whether *content* begins with what the open file of *known* holds, of which nothing
    was read yet: all of it may have been written, and packed elsewhere, since it was looked at.
    """
    handle = known.handle
    if handle is None or not handle.is_open or known.proof.offset > known.begin:
        return False
    try:
        return handle.size() > 0 and _begins(content, handle)
    except NOT_READ:
        return False


def _is_still_in(file: ChainFile, known: Generation, open_file: Open) -> bool:
    try:
        with _content(file, None, open_file) as content:
            return known.is_in(content)
    except Moved:
        return False
    except (Unreadable, TooManyOpen, OSError):
        return True


def _seen_again(
    file: ChainFile, known: Generation, open_file: Open, *, is_trusted: bool
) -> Same | Replaced:
    if is_trusted and (file.size, file.mtime_ns) == known.stamp:
        return Same(file, known)
    has_grown = file.size > known.size and known.is_verified and file.born_ns
    if known.is_open or not (has_grown and is_trusted):
        try:
            # An open file may have lost its name since it was listed.
            with _content(file, known if is_trusted else None, open_file) as content:
                if not known.is_in(content):
                    # Where nothing tells of births, another file may have been given the inode.
                    size = content.size()
                    is_cut = bool(file.born_ns) or size < known.size
                    return Replaced(file, known, is_cut=is_cut, size=size)
        except NOT_READ:
            # Reading meets the error again. A renamed file keeps the place at which it was listed.
            return Same(file, known)
    return Same(file, known)


def _first_seen(
    file: ChainFile,
    wanted: list[Generation],
    originals: list[Same],
    begun: list[ChainFile],
    open_file: Open,
    recent: Recent,
) -> Finding:
    if file.is_live:
        # Rotators copy away from the live file, never to it. With the bytes of a former one it is
        # a program's next run, which says the same once more.
        wanted = [known for known in wanted if known.is_recalled]
        if not wanted:
            return New(file)
    with _opened(file, open_file) as content:
        if content is None:
            return Unsure(file)
        try:
            found = _copied(file, content, wanted, recent)
            if found is not None:
                return found
            for original in [] if file.is_live else originals:
                is_copy = _is_copied_from(file, content, original, open_file)
                if is_copy is None:
                    return Unsure(file)
                if is_copy:
                    return Shadow(file, original.generation)
            for other in [] if file.is_live else begun:
                # What was renamed is older than the log; what is younger was copied from it.
                is_younger = 0 < other.born_ns < file.born_ns
                if is_younger and _is_beginning(content, other, open_file) is not False:
                    return Unsure(file)  # the next look tells: the log itself is new
        except OSError:
            return Unsure(file)
    return New(file)


def _copied(
    file: ChainFile, content: Content, wanted: list[Generation], recent: Recent
) -> Copy | None:
    """Return of which of *wanted* the *file*, which holds *content*, is a copy."""
    for known in wanted:
        if known.is_copied_in(content):
            # A packed file does not tell its end before it is read.
            end, short = 0 if content.compressed else content.size(), None
            if not content.compressed and end < known.size:
                short = Short(end, Head.of(content), known.kept)
            return Copy(file, known, known.has_more_in(content), short)
    for known in wanted:
        kept = known.end_in(content, recent.of(known.id))
        if kept is not None:
            return Copy(file, known, False, Short(kept.offset, Head.of(content), kept))
    return None


def _is_beginning(
    content: Content, original: ChainFile, open_file: Open, known: Generation | None = None
) -> bool | None:
    """Return whether *content* is, as far as is looked, what *original* begins with; None where
    that cannot be told: it cannot be opened, or does not hold what was read of *known* any more.
    """
    size = content.size()  # an empty one begins everything
    is_copied_from = original.is_live or original.is_aside
    if not is_copied_from or original.compressed or content.compressed:
        return False
    with _opened(original, open_file) as whole:
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


def _is_unlike(known: Generation | None, whole: Content) -> Literal[False] | None:
    """Return that a file is no copy of *known*, which *whole* was compared for; None where that was
    cut before or meanwhile, so that the file was compared with something else.
    """
    return False if known is None or known.is_in(whole) else None


def _is_copied_from(
    file: ChainFile, content: Content, original: Same, open_file: Open
) -> bool | None:
    """Return whether *file*, which holds *content*, is a copy of *original*, packed or not; None
    where that cannot be told: the log may have been renamed, and *file* be an older one.
    """
    whole, known = original.file, original.generation
    if not content.compressed:
        return _is_beginning(content, whole, open_file, known)
    # A packed file older than the log was made of a former one, even if both begin alike.
    is_younger = whole.is_live and 0 < whole.born_ns < file.born_ns
    return _is_packed_beginning(content, whole, open_file, known) if is_younger else False


def _is_being_packed(packed: ChainFile, whole: ChainFile, open_file: Open) -> bool:
    """Return whether *packed* holds what *whole* begins with, which lies beside it until the packer
    has finished; also where that cannot be told.
    """
    with _opened(packed, open_file) as content:
        return content is None or _is_packed_beginning(content, whole, open_file) is not False


def _is_packed_beginning(
    content: Content, whole: ChainFile, open_file: Open, known: Generation | None = None
) -> bool | None:
    """Return whether *content*, of a packed file, is what *whole* begins with, as far as is looked;
    None where that cannot be told, as in `_is_beginning`.
    """
    with _opened(whole, open_file) as original:
        if original is None:
            return None
        try:
            return True if _begins(original, content) else _is_unlike(known, original)
        except OSError:
            return None


def _begins(whole: Content, beginning: Content) -> bool:
    """Return whether *whole* begins with all of *beginning*, as far as is looked."""
    for at in range(0, _COMPARED_PLACES * _COMPARED_BYTES, _COMPARED_BYTES):
        data = beginning.read(at, _COMPARED_BYTES)
        if data != whole.read(at, len(data)):
            return False
        if len(data) < _COMPARED_BYTES:
            break
    return True


@contextmanager
def _content(file: ChainFile, known: Generation | None, open_file: Open) -> Iterator[Content]:
    """Lend the content of *file*, which is open already where *known* is being read."""
    handle = known.handle if known is not None else None
    if handle is not None and handle.is_open and handle.key == file.key:
        yield handle
        return
    reader = open_file(file)
    try:
        yield reader
    finally:
        reader.close()


@contextmanager
def _opened(file: ChainFile, open_file: Open) -> Iterator[Reader | None]:
    try:
        reader = open_file(file)
    except NOT_OBSERVED:
        yield None
        return
    try:
        yield reader
    finally:
        reader.close()
