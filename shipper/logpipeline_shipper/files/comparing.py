"""Whether two files, or a file and what is known of one, hold the same bytes."""

from __future__ import annotations

from collections.abc import Callable

from logpipeline_shipper.files.generations import Generation
from logpipeline_shipper.files.opening import Moved, TooManyOpen, Unreadable
from logpipeline_shipper.files.reading import Content, Reader
from logpipeline_shipper.files.sources import ChainFile

# Two files that agree so far are a copy and its original.
_COPY_COMPARED_BYTES = 64 * 1024

Open = Callable[[ChainFile], Reader]
NOT_OBSERVED = (Moved, Unreadable, TooManyOpen, OSError)


def goes_on_in(known: Generation, reader: Reader) -> bool:
    """Return whether *known*, whose file has vanished, is what *reader* reads."""
    if not known.is_in(reader):
        return False
    handle = known.handle
    if handle is None or not handle.is_open:
        return True
    if not known.is_in(handle):
        known.close_handle()  # the file was truncated before it vanished
        return True
    return begin_alike(reader, handle)


def is_copy(open_file: Open, file: ChainFile, known: Generation) -> bool:
    """Return whether *file* begins as *known*, which is still at its place, begins."""
    if known.file is None or known.file.compressed:
        return False
    try:
        reader = open_file(file)
    except NOT_OBSERVED:
        return True
    try:
        original = open_file(known.file)
    except NOT_OBSERVED:
        reader.close()
        return True
    try:
        return begin_alike(reader, original)
    finally:
        original.close()
        reader.close()


def holds(open_file: Open, generation: Generation, file: ChainFile, *, unseen: bool) -> bool:
    """Return whether *file* has the bytes of *generation*; *unseen* if that cannot be seen."""
    try:
        reader = open_file(file)
    except NOT_OBSERVED:
        return unseen
    try:
        return generation.is_in(reader)
    except OSError:
        return unseen
    finally:
        reader.close()


def begin_alike(one: Content, other: Content) -> bool:
    """Return whether the shorter one is, as far as is looked, the beginning of the other."""
    size = min(one.size(), other.size(), _COPY_COMPARED_BYTES)
    return one.read(0, size) == other.read(0, size)
