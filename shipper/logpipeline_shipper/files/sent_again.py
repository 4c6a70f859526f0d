"""Reads what was sent of a generation from its file once more, as it was sent: whole lines are
redacted, and a range is cut out of them afterwards. A part of a line that is redacted by itself
shows what is found only in the whole line.

A file is read once, forwards, for all ranges of it, and in steps: what is packed is unpacked from
its beginning, and the caller may have other things to do meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from logpipeline.checksum import NOTHING, Checksum
from logpipeline.redaction import Redactor
from logpipeline.wire import Checksums
from logpipeline_shipper.files.chunk import Chunk, cut, times_of
from logpipeline_shipper.files.generation import Generation
from logpipeline_shipper.files.limits import ReadLimits
from logpipeline_shipper.files.listing import Format
from logpipeline_shipper.files.open_file import Handle, Moved, Stamp, Unreadable
from logpipeline_shipper.files.tail import Outcome, Tail

# So much is read in one step: some 20 ms of work, and some 200 ms where it is packed by xz.
STEP_BYTES = 8 * 1024 * 1024

Found = Chunk | Literal[Outcome.WAITING, Outcome.ENDED, Outcome.REPLACED]


@dataclass(slots=True)
class _Reading:
    """One generation that is read under *id* from *begin*. *chunk* are the lines that were read
    last; *is_own*: the file was opened for this.
    """

    generation: Generation
    id: str
    begin: int
    handle: Handle
    is_own: bool
    chunk: Chunk | None = None
    _identity: tuple[int, int, int] | None = field(init=False)
    _stamp: Stamp = field(init=False)

    def __post_init__(self) -> None:
        self._identity, self._stamp = self.generation.identity, self._now()

    @property
    def start(self) -> int:
        """The offset of the first byte that can be asked for."""
        return self.begin if self.chunk is None else self.chunk.start

    @property
    def end(self) -> int:
        """The offset up to which it is read."""
        return self.begin if self.chunk is None else self.chunk.end

    @property
    def after(self) -> Checksum:
        """The checksum at `end`."""
        return NOTHING if self.chunk is None else self.chunk.checksums.after

    def serves(self, generation: Generation, id: str, offset: int) -> bool:
        """Return whether *offset* of *generation* is reached by reading on. Its file may have been
        emptied since, and its bytes be in a copy.
        """
        is_there = self.generation is generation and self._identity == generation.identity
        return is_there and self.id == id and offset >= self.start

    def is_same(self) -> bool:
        """Return whether the file still has what was sent. To compare the bytes of a packed file,
        all of it would be unpacked again.
        """
        if self.handle.compressed:
            return self._now() == self._stamp
        return self.generation.verify(self.handle)

    def close(self) -> None:
        """Close the file, if it was opened for this."""
        if self.is_own:
            self.handle.close()

    def _now(self) -> Stamp:
        return self.handle.size(), self.handle.written_ns()


class SentAgain:
    """Reads the generations of one source once more, one at a time. Its file stays open until
    `close`, or until another generation or an earlier offset is asked for.
    """

    def __init__(self, tail: Tail, format: Format, limits: ReadLimits, redactor: Redactor) -> None:
        self._tail = tail
        self._format: Format = format
        self._limits = limits
        self._redactor = redactor
        self._reading: _Reading | None = None

    def read(self, generation: Generation, id: str, begin: int, offset: int, now_s: float) -> Found:
        """Return the lines with the byte at *offset* as they were sent under *id*, of which the
        first byte was sent at *begin*: from one end of a line to another, unless the line is longer
        than the limit. `Outcome.WAITING` if they are not reached yet, `Outcome.ENDED` if the file
        has no such byte, `Outcome.REPLACED` if it has other bytes now.

        Raises:
            Inconclusive, Unreadable, OSError: it cannot be read now.
        """
        try:
            reading = self._begun(generation, id, begin, offset, now_s)
            found: Found = Outcome.REPLACED
            if reading is not None:
                found = self._forward(reading, offset)
        except BaseException:
            self.close()
            raise
        if found in (Outcome.REPLACED, Outcome.ENDED):
            self.close()
        return found

    def close(self) -> None:
        """Close the file."""
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _begun(
        self, generation: Generation, id: str, begin: int, offset: int, now_s: float
    ) -> _Reading | None:
        """Return what reads on to *offset*; None if the file has other bytes now."""
        reading = self._reading
        if reading is not None and reading.serves(generation, id, offset):
            return reading
        self.close()
        file, handle = generation.file, generation.handle
        if file is not None:
            handle = self._limits.descriptors.open(
                lambda: self._tail.open_file(file), file.key, now_s
            )
        if handle is None:
            raise Moved("no file")
        self._reading = _Reading(generation, id, begin, handle, is_own=file is not None)
        # What is packed is unpacked once for this, and not again at each step.
        if generation.verify(handle):
            return self._reading
        if handle.reader.broken:
            raise Unreadable(handle.reader.broken)
        return None

    def _forward(self, reading: _Reading, offset: int) -> Found:
        """Read on up to the lines with the byte at *offset*, or for one step."""
        stop = reading.end + STEP_BYTES
        while reading.chunk is None or reading.end <= offset:
            if reading.end >= stop:
                return Outcome.WAITING
            chunk = self._next(reading)
            if chunk is None:
                return Outcome.ENDED if reading.is_same() else Outcome.REPLACED
            reading.chunk = chunk
        # Asked after the read: if the file was truncated before or meanwhile, these bytes are none
        # that were sent.
        return reading.chunk if reading.is_same() else Outcome.REPLACED

    def _next(self, reading: _Reading) -> Chunk | None:
        """Return the next lines, cut as `Tail` cut them; None at the end of the file."""
        handle, start = reading.handle, reading.end
        window, longest = self._limits.window_bytes, self._limits.line_bytes
        data = handle.read(start, window)
        found = cut(data, self._format, line_bytes_max=longest, closed=False)
        if not found.length and len(data) == window < longest:
            data = handle.read(start, longest)
            found = cut(data, self._format, line_bytes_max=longest, closed=False)
        if not found.length:
            # The bytes before a damage end anywhere: what is redacted there is not all of a line.
            if handle.reader.broken:
                raise Unreadable(handle.reader.broken)
            # Nobody asks for a last line without its end unless it was sent so.
            found = cut(data, self._format, line_bytes_max=longest, closed=True)
        if not found.length:
            return None
        sent = self._redactor.redact(data[: found.length], self._format)
        first, last = times_of(sent, self._format)
        former = reading.chunk
        return Chunk(
            generation=reading.id,
            start=start,
            end=start + len(sent),
            data=sent,
            lines=sent.count(b"\n") + (not found.inside_line and not sent.endswith(b"\n")),
            first_time_ns=first,
            last_time_ns=last,
            previous=None,
            checksums=Checksums.around(sent, reading.after),
            starts_inside_line=former is not None and former.ends_inside_line,
            ends_inside_line=found.inside_line,
        )
