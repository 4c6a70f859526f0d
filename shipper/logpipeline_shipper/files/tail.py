"""The next bytes of one generation: opened, checked to be still the same file, and cut."""

from __future__ import annotations

from logpipeline_shipper.files.chunks import Chunk
from logpipeline_shipper.files.comparing import NOT_OBSERVED
from logpipeline_shipper.files.counts import Counts
from logpipeline_shipper.files.cutting import Cut, cut, open_streams, times_of
from logpipeline_shipper.files.descriptors import Closed, Handle
from logpipeline_shipper.files.generations import Generation, Head
from logpipeline_shipper.files.limits import ReadLimits
from logpipeline_shipper.files.lineage import Lineage
from logpipeline_shipper.files.opening import Moved, Unreadable, open_reader
from logpipeline_shipper.files.reading import Reader
from logpipeline_shipper.files.sources import ChainFile, Format


class Changed(Exception):
    """The files are others than was thought; look at the generations once more."""


class Tail:
    """Reads generations of one source."""

    def __init__(self, format: Format, limits: ReadLimits, counts: Counts) -> None:
        self._format = format
        self._limits = limits
        self._counts = counts
        self.lineage = Lineage(counts, self.open_file)
        # Which generation ended inside runs of fragments, and of which streams: the next one's
        # first line goes on with them.
        self.open_run: tuple[str, list[str]] = ("", [])
        # Whether nobody writes any more.
        self.is_ending = False

    def open_file(self, file: ChainFile) -> Reader:
        """Return a reader of *file*, outside the budget: for a look only.

        Raises:
            Moved: another file stands at its path now, or none.
            Unreadable: it may not be read.
            TooManyOpen: no descriptor is left.
        """
        return open_reader(file, follow_link=self._format == "cri")

    def is_closable(self, generation: Generation, now_s: float) -> bool:
        """Return whether *generation* has stopped growing: nobody writes any more, it is
        compressed, or somebody has had time enough to turn to a newer file.
        """
        if self.is_ending or (generation.file is not None and generation.file.compressed):
            return True
        since = generation.changed_since_s
        return since is not None and now_s - since >= self._limits.grace_s

    def next_chunk(self, generation: Generation, now_s: float) -> Chunk | None:
        """Return the next bytes of *generation*; None if it has none now, or (then it is closed)
        none any more.

        Raises:
            Changed: its file turned out to be another one.
            Moved, TooManyOpen, Unreadable, OSError: it cannot be read now.
        """
        handle = self.handle_of(generation, now_s)
        # Whether it is complete is decided before it is read: what comes later is not overlooked.
        closable = self.is_closable(generation, now_s)
        if not generation.name and not self._name(generation, handle, closable, now_s):
            return None
        data, found = self._read(generation, handle, closable)
        self.check_unchanged(generation, handle, now_s)
        if not found.length and closable:
            if handle.reader.broken:
                raise Unreadable(handle.reader.broken)
            if not data:
                generation.finish(generation.offset)
                return None
            found = self._cut(data, closed=True)
            if found.inside_line:
                self.open_run = (generation.name, _names(open_streams(data)))
        if not found.length:
            searched = generation.offset + len(data)
            generation.no_cut_before = max(generation.no_cut_before, searched)
            return None
        return self._chunk(generation, data[: found.length], found)

    def handle_of(self, generation: Generation, now_s: float) -> Handle:
        """Return the open file of *generation*, which holds what was read of it.

        Raises:
            Changed: it does not; the lineage knows.
            Moved, TooManyOpen, Unreadable, OSError: it cannot be opened now.
        """
        if generation.handle is not None and generation.handle.is_open:
            generation.handle.used_s = now_s
            return generation.handle
        file = generation.file
        if file is None:
            raise Moved("no file")
        handle = self._limits.descriptors.open(lambda: self.open_file(file), file.key, now_s)
        if file.compressed:
            generation.size = max(handle.reader.size(), generation.offset)
        generation.handle = handle
        was_read_here = generation.restored is None
        if generation.name and not generation.is_in(handle):
            broken = handle.reader.broken
            generation.close_handle()
            if broken:
                raise Unreadable(broken)
            self.lineage.replace(generation, now_s, truncated=was_read_here)
            raise Changed
        return handle

    def check_unchanged(self, generation: Generation, handle: Handle, now_s: float) -> None:
        """See that *handle* still has the bytes before the offset.

        Done *after* a read: whoever truncated the file before or meanwhile has changed them.

        Raises:
            Changed: it has not; the lineage knows.
        """
        if handle.reader.compressed or not generation.name:
            return
        if not generation.is_in(handle):
            file = generation.file
            if file is not None and file.key != handle.key:
                generation.close_handle()  # truncated, but a copy of it was found already
            else:
                self.lineage.replace(generation, now_s, truncated=True)
            raise Changed

    def look_at(self, generation: Generation, now_s: float) -> None:
        """See, without keeping it open, that the listed file is the generation's own.

        Raises:
            Changed: it is not; the lineage knows.
            Moved, TooManyOpen, Unreadable, OSError: it cannot be opened now.
        """
        assert generation.file is not None
        reader = self.open_file(generation.file)
        try:
            is_same = not generation.name or generation.is_in(reader)
        finally:
            reader.close()
        if not is_same:
            self.lineage.replace(generation, now_s, truncated=True)
            raise Changed

    def peek(self, generation: Generation, start: int, size: int) -> bytes | None:
        """Return bytes of *generation* without moving in it, None if they cannot be had."""
        if generation.file is None:
            try:
                return generation.handle.read(start, size) if generation.handle else None
            except (Closed, OSError):
                return None
        try:
            reader = self.open_file(generation.file)
        except NOT_OBSERVED:
            return None
        try:
            is_same = generation.head is not None and generation.head.matches(reader)
            return reader.read(start, size) if is_same else None
        except OSError:
            return None
        finally:
            reader.close()

    def is_inside_line(self, before: bytes) -> bool:
        """Return whether a line, or a run of fragments, goes on behind the bytes *before*."""
        if not before:
            return False
        if not before.endswith(b"\n"):
            return True
        last = before[before.rfind(b"\n", 0, -1) + 1 :]
        return self._format == "cri" and bool(open_streams(last))

    def _name(self, generation: Generation, handle: Handle, closable: bool, now_s: float) -> bool:
        head = Head.of(handle, closed=closable)
        if head is None:
            if closable:
                generation.finish(0)
            return False
        if generation.file is not None and generation.newer_since_s is not None:
            # Now that it has a head, it may turn out to be a copy of one that is known.
            self.lineage.recognise_again(generation, now_s, closed=closable)
            raise Changed
        self.lineage.name(generation, head, handle)
        generation.size = handle.size()  # whatever stood there before it had a name
        return True

    def _read(self, generation: Generation, handle: Handle, closable: bool) -> tuple[bytes, Cut]:
        start, window, longest = (
            generation.offset,
            self._limits.window_bytes,
            self._limits.line_bytes,
        )
        if generation.no_cut_before > start and not closable:
            # A long line that is still being written: only its new bytes are searched.
            fresh = handle.read(generation.no_cut_before, longest)
            end = generation.no_cut_before + len(fresh)
            if b"\n" not in fresh and end - start < longest:
                generation.no_cut_before = end
                return b"", Cut(0)
            window = longest
        data = handle.read(start, window)
        found = self._cut(data, closed=False)
        if not found.length and len(data) == window < longest:
            data = handle.read(start, longest)
            found = self._cut(data, closed=False)
        return data, found

    def _cut(self, data: bytes, *, closed: bool) -> Cut:
        longest = self._limits.line_bytes
        return cut(data, self._format, line_bytes_max=longest, closed=closed)

    def _chunk(self, generation: Generation, data: bytes, found: Cut) -> Chunk:
        previous = self.lineage.previous(generation) if generation.offset == 0 else None
        starts_inside = generation.inside_line
        if previous is not None and previous.generation == self.open_run[0]:
            fields = data[:64].split(b" ", 2)
            starts_inside = len(fields) > 2 and fields[1].decode("latin-1") in self.open_run[1]
        if found.forced and not starts_inside:
            self._counts.long_lines += 1
        first, last = times_of(data, self._format)
        start = generation.offset
        generation.advance(data, inside_line=found.inside_line)
        unfinished = not found.inside_line and not data.endswith(b"\n")
        return Chunk(
            generation=generation.name,
            start=start,
            end=generation.offset,
            data=data,
            lines=data.count(b"\n") + int(unfinished),
            first_time_ns=first,
            last_time_ns=last,
            previous=previous,
            starts_inside_line=starts_inside,
            ends_inside_line=found.inside_line,
        )


def _names(streams: set[bytes]) -> list[str]:
    return sorted(stream.decode("latin-1") for stream in streams)
