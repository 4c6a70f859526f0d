"""Reads the next bytes of a generation: opens its file, verifies that it is still the same file,
and cuts the bytes at the end of a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum

from logpipeline.redaction import Redactor
from logpipeline.wire import Checksums, Previous
from logpipeline_shipper.files.chunk import (
    Chunk,
    Cut,
    InFile,
    ReadCounters,
    cut,
    open_streams,
    times_of,
)
from logpipeline_shipper.files.generation import Generation
from logpipeline_shipper.files.limits import ReadLimits
from logpipeline_shipper.files.listing import ChainFile, Format
from logpipeline_shipper.files.open_file import (
    NOT_READ,
    Handle,
    Inconclusive,
    Moved,
    Unreadable,
    open_reader,
)
from logpipeline_shipper.files.place import Place
from logpipeline_shipper.files.reader import NUL_RUN_MIN, Part, Reader, leading_nuls


class Outcome(Enum):
    """Why there are no next bytes."""

    WAITING = "waiting"  # some may come soon: newer files wait for them
    PASSED = "passed"  # some may come some day: newer files do not wait for them
    ENDED = "ended"  # none will come
    REPLACED = "replaced"  # the file holds other bytes than those that were read
    GROWN = "grown"  # an older file, which was passed, has got some, which come first


@dataclass(frozen=True, slots=True)
class Patience:
    """Conclusions from the time that went by. *may_pass*: newer files may be read as well;
    *is_final*: an unfinished last line will not be finished any more.
    """

    may_pass: bool
    is_final: bool


def patience_with(generation: Generation, now_s: float, limits: ReadLimits) -> Patience:
    """Return the patience with *generation*, to whose file a program may still write."""
    since = generation.changed_since_s
    if since is None:
        return Patience(may_pass=False, is_final=False)
    is_over = now_s - since >= limits.grace_s
    gone_s = generation.gone_since_s
    is_gone = gone_s is not None
    is_ended = gone_s is not None and now_s - gone_s >= limits.grace_s
    # A program that fills a buffer before it writes continues in the middle of a line.
    is_old = now_s - max(since, generation.grown_s) >= limits.unfinished_s
    is_final = (is_ended or is_old) and not generation.is_written_unlisted
    return Patience(may_pass=is_over or is_gone, is_final=is_final)


class Tail:
    """Reads generations of one source."""

    def __init__(
        self, format: Format, limits: ReadLimits, counts: ReadCounters, redactor: Redactor
    ) -> None:
        self._format = format
        self._limits = limits
        self._counts = counts
        self._redactor = redactor
        # The generation that ended inside runs of fragments, and the streams of these runs: the
        # first line of the next generation continues them.
        self.open_run: tuple[str, list[str]] = ("", [])

    def open_file(self, file: ChainFile) -> Reader:
        """Return a reader of *file*, which the budget does not count: for one look only.

        Raises:
            Moved: there is another file at its path now, or none.
            Unreadable: it may not be read.
            TooManyOpen: no descriptor is left.
        """
        return open_reader(file, follow_link=self._format == "cri")

    def next(
        self,
        generation: Generation,
        now_s: float,
        patience: Patience,
        previous: Previous | None,
        passed: Sequence[Generation] = (),
    ) -> Chunk | Outcome:
        """Return the next bytes of *generation*, or why there are none; *previous* is the
        generation before it, *passed* are older ones that it does not wait for.

        Raises:
            Inconclusive, Unreadable, OSError: it cannot be read now.
        """
        handle = self.handle_of(generation, now_s)
        if handle is None:
            return Outcome.REPLACED
        if generation.read.offset == 0 and self._format == "plain":
            self._skip_hole(generation, handle)
        until = None
        if passed:
            due, generation.due = generation.due, None
            if due is None:
                # The length comes first: what is behind it may have been written after what the
                # older ones get meanwhile.
                due = handle.size()
                if self._have_grown(passed, now_s):
                    generation.due = due
                    return Outcome.GROWN
            until = None if patience.may_pass else due
        data, end, found = self._read(generation, handle, patience, until)
        # Verified after the read: if the file was truncated before or meanwhile, the bytes before
        # the offset are others now. In a packed file they would have to be unpacked once more.
        if not handle.compressed and not generation.verify(handle):
            return Outcome.REPLACED
        generation.observe(handle, now_s)
        if found.length:
            chunk = self._chunk(generation, data[: found.length], found, previous)
            if not handle.compressed:
                # The time is asked for after the read: the bytes were written then, or before.
                there = chunk.in_file
                part = Part(chunk.start, there.checksums.before, there.data, handle.written_ns())
                self._limits.recent.add(generation.id, part)
            return chunk
        if patience.may_pass and handle.reader.broken:
            raise Unreadable(handle.reader.broken)
        generation.search(end)
        if not patience.may_pass:
            return Outcome.WAITING
        return Outcome.ENDED if patience.is_final and not data else Outcome.PASSED

    def _have_grown(self, passed: Sequence[Generation], now_s: float) -> bool:
        """Return whether some of *passed* have more; all that they have now comes next, and then
        the newer files have their turn, however fast these grow.
        """
        grown = [each for each in passed if self.look_again(each, now_s)]
        for each in grown:
            each.bound = each.extent
        return bool(grown)

    def look_again(self, generation: Generation, now_s: float) -> bool:
        """Return whether the open file of *generation*, which was read to its end, has more."""
        handle, generation.bound = generation.handle, None
        if handle is None or not handle.is_open or handle.compressed:
            return False
        with suppress(OSError, Inconclusive):
            generation.observe(handle, now_s)
        return generation.is_waiting

    def _skip_hole(self, generation: Generation, handle: Handle) -> None:
        """Begin after the NULs that a truncation left before the first line."""
        nuls = leading_nuls(handle)
        if NUL_RUN_MIN <= nuls < handle.size():
            self._counts.hole_bytes += nuls
            generation.begin_at(Place(nuls))

    def handle_of(self, generation: Generation, now_s: float) -> Handle | None:
        """Return the open file of *generation*; None if it holds other bytes than those read.

        Raises:
            Inconclusive, Unreadable, OSError: it cannot be opened now.
        """
        if generation.handle is not None and generation.handle.is_open:
            generation.handle.used_s = now_s
            return generation.handle
        file = generation.file
        if file is None:
            raise Moved("no file")
        handle = self._limits.descriptors.open(lambda: self.open_file(file), file.key, now_s)
        if not generation.verify(handle):
            broken = handle.reader.broken
            handle.close()
            if broken:
                raise Unreadable(broken)
            return None
        generation.keep_open(handle, now_s)
        return handle

    def observe(self, generation: Generation, now_s: float) -> None:
        """Look at the first bytes of a new file, by which it is recognised before it is read."""
        assert generation.file is not None
        try:
            reader = self.open_file(generation.file)
        except NOT_READ:
            return
        try:
            generation.observe(reader, now_s)
        except OSError:
            return
        finally:
            reader.close()

    def peek(self, generation: Generation, start: int, size: int) -> bytes | None:
        """Return bytes of *generation* and leave its offset where it is; None if its file holds
        other bytes now.

        Raises:
            Inconclusive, Unreadable, OSError: it cannot be read now.
        """
        if generation.file is None:
            if generation.handle is None:
                raise Moved("no file")
            return generation.handle.read(start, size)
        reader = self.open_file(generation.file)
        try:
            data = reader.read(start, size)
            # Verified after the read, as in `next`.
            if generation.verify(reader):
                return data
            if reader.broken:
                raise Unreadable(reader.broken)
            return None
        finally:
            reader.close()

    def is_inside_line(self, before: bytes) -> bool:
        """Return whether a line, or a run of fragments, continues after the bytes *before*."""
        if not before:
            return False
        if not before.endswith(b"\n"):
            return True
        last = before[before.rfind(b"\n", 0, -1) + 1 :]
        return self._format == "cri" and bool(open_streams(last))

    def _read(
        self, generation: Generation, handle: Handle, patience: Patience, until: int | None
    ) -> tuple[bytes, int, Cut]:
        """Return the next bytes, of those before *until*, the offset up to which the end of a line
        was searched, and how many of the bytes may be sent.
        """

        def read(at: int, size: int) -> bytes:
            return handle.read(at, size if until is None else max(0, min(size, until - at)))

        start, window = generation.read.offset, self._limits.window_bytes
        longest = self._limits.line_bytes
        if generation.searched > start and not patience.may_pass:
            # A long line that is still being written: only its new bytes are searched.
            fresh = read(generation.searched, longest)
            end = generation.searched + len(fresh)
            if b"\n" not in fresh and end - start < longest:
                return b"", end, Cut(0)
            window = longest
        data = read(start, window)
        is_short = not cut(data, self._format, line_bytes_max=longest, closed=False).length
        if is_short and len(data) == window < longest:
            # The line goes on behind the window, also in a file that ended.
            data = read(start, longest)
        if handle.reader.broken:
            # The bytes before the damage end anywhere: their end must not pass for that of a line.
            patience = replace(patience, is_final=False)
        return data, start + len(data), self._cut(data, patience)

    def _cut(self, data: bytes, patience: Patience) -> Cut:
        longest = self._limits.line_bytes
        found = cut(data, self._format, line_bytes_max=longest, closed=False)
        if found.length or not patience.may_pass or not data or len(data) >= longest:
            return found
        # The rest of a run of fragments is in the next file, the rest of a line nowhere.
        end = len(data) if patience.is_final else data.rfind(b"\n") + 1
        return cut(data[:end], self._format, line_bytes_max=longest, closed=True)

    def _chunk(
        self, generation: Generation, data: bytes, found: Cut, previous: Previous | None
    ) -> Chunk:
        before = generation.read
        starts_inside = before.is_inside_line
        if previous is not None and previous.generation == self.open_run[0]:
            fields = data[:64].split(b" ", 2)
            starts_inside = len(fields) > 2 and fields[1].decode("latin-1") in self.open_run[1]
        if found.forced and not starts_inside:
            self._counts.long_lines += 1
        if found.inside_line and not found.forced:
            self.open_run = (generation.id, _names(open_streams(data)))
        first, last = times_of(data, self._format)
        sent = self._redactor.redact(data, self._format)
        generation.advance(data, sent, is_inside_line=found.inside_line)
        after = generation.read
        unfinished = not found.inside_line and not data.endswith(b"\n")
        return Chunk(
            generation=generation.id,
            start=before.offset,
            end=after.offset,
            data=sent,
            lines=data.count(b"\n") + int(unfinished),
            first_time_ns=first,
            last_time_ns=last,
            previous=previous,
            checksums=Checksums(before.sent_checksum, after.sent_checksum),
            starts_inside_line=starts_inside,
            ends_inside_line=found.inside_line,
            begins=bool(generation.begin) and before.offset == generation.begin,
            unredacted=None
            if after.redacted is None
            else InFile(data, Checksums(before.checksum, after.checksum)),
        )


def _names(streams: set[bytes]) -> list[str]:
    return sorted(stream.decode("latin-1") for stream in streams)
