"""What stands in the log files of this machine, and how far all collectors have confirmed it.

The files are found as a shipper finds them. What it saved says which of them is which, and up to
where collectors must have archived it; what they have archived, it does not say here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from logpipeline.spans import Span, outside, size_of
from logpipeline_cli.auditing.lines import Lines
from logpipeline_shipper.files.discovery import Discovery
from logpipeline_shipper.files.generation import Generation
from logpipeline_shipper.files.opening import Moved, TooManyOpen, Unreadable, open_reader
from logpipeline_shipper.files.reading import Reader
from logpipeline_shipper.files.sources import ChainFile, HostSources, Listing, SourceId
from logpipeline_shipper.intents import Key
from logpipeline_shipper.positions import SourceRecord

CHUNK_BYTES = 256 * 1024

Spend = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Part:
    """A file, and the *spans* of its content that collectors have confirmed. *is_ended*: that is
    all of it, and nothing follows.
    """

    file: ChainFile
    size: int
    spans: tuple[Span, ...] = ()
    is_ended: bool = False


@dataclass(slots=True)
class Source:
    """The files of one source, oldest first. *troubles* are those that could not be read to the
    end, and why.
    """

    id: SourceId
    parts: list[Part]
    troubles: dict[Path, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes that stand in its files."""
        return sum(part.size for part in self.parts)

    @property
    def compared(self) -> int:
        """Bytes that must be archived, in files that could be read; known once `lines` are read."""
        parts = (part for part in self.parts if part.file.path not in self.troubles)
        return sum(size_of(part.spans) for part in parts)

    def leave_out_before(self, time_ns: int) -> None:
        """Ask for nothing of files that were last written before *time_ns*."""
        self.parts = [
            part if part.file.mtime_ns >= time_ns else Part(part.file, part.size)
            for part in self.parts
        ]

    def lines(self, spend: Spend) -> Iterator[bytes]:
        """Yield the lines that must be archived, without their ends; *spend* is told each number of
        bytes before they are read.
        """
        is_cri = self.id.format == "cri"
        lines = Lines(is_cri=is_cri)
        for part in self.parts:
            for chunk in self._chunks(part, spend):
                if chunk is None:
                    lines.forget()
                else:
                    yield from lines.feed(chunk)
            # A runtime that begins a new file cuts the line in two that it is about to write.
            if not part.is_ended:
                lines.forget()
            elif not is_cri:
                yield from lines.rest()

    def _chunks(self, part: Part, spend: Spend) -> Iterator[bytes | None]:
        """Yield the content of *part*; None where what follows does not go on where the last one
        ended.
        """
        if not part.spans:
            return
        try:
            reader = open_reader(part.file, follow_link=self.id.format == "cri")
        except (Moved, Unreadable, TooManyOpen) as error:
            self.troubles[part.file.path] = _reason(error)
            yield None
            return
        try:
            for start, end in part.spans:
                if start:
                    yield None
                yield from _whole_lines(reader, start, end, spend)
        except OSError as error:
            self.troubles[part.file.path] = str(error.strerror or error)
            yield None
        finally:
            reader.close()


def sources_of(hosts: Sequence[HostSources], records: dict[Key, SourceRecord]) -> Iterator[Source]:
    """Yield the sources below *hosts* as they are now, given what their shipper saved last."""
    for listing in Discovery(hosts, skipped=lambda path, reason: None).scan():
        record = records.get(Key(listing.id.host, listing.id.source))
        yield Source(listing.id, list(_parts(listing, record)))


def _parts(listing: Listing, record: SourceRecord | None) -> Iterator[Part]:
    is_cri = listing.id.format == "cri"
    saved = record.saved if record is not None else None
    rows = (*saved["generations"], *saved["past"]) if saved is not None else ()
    known = [Generation.restore(row) for row in rows]
    for file in listing.files:
        generation = _generation_of(file, known, is_cri=is_cri)
        if record is None or generation is None:
            yield Part(file, file.size)
            continue
        end = generation.acked.offset
        size = end if file.compressed else file.size
        spans = outside(
            (generation.begin, min(end, size)), record.account.open_spans(generation.id)
        )
        # A line of a runtime goes on in its next file; another writer may not have reopened yet.
        is_over = file is not listing.files[-1] and (is_cri or generation.is_done)
        is_ended = is_over and bool(spans) and spans[-1][1] == size
        yield Part(file, size, tuple(spans), is_ended)


def _generation_of(
    file: ChainFile, known: Sequence[Generation], *, is_cri: bool
) -> Generation | None:
    """Return what *file* is: by its identity, or, of a copy, by all that it holds."""
    for generation in known:
        if generation.identity == file.identity:
            return generation
    try:
        reader = open_reader(file, follow_link=is_cri)
    except (Moved, Unreadable, TooManyOpen):
        return None
    try:
        return next((each for each in known if each.is_proven_in(reader)), None)
    except OSError:
        return None
    finally:
        reader.close()


def _whole_lines(reader: Reader, start: int, end: int, spend: Spend) -> Iterator[bytes]:
    """Yield the bytes of a span, from the first line on that begins in it.

    Raises:
        OSError: they cannot be read, or are no longer there.
    """
    is_inside = start > 0 and reader.read(start - 1, 1) != b"\n"
    while start < end:
        size = min(CHUNK_BYTES, end - start)
        spend(size)
        chunk = reader.read(start, size)
        if not chunk:
            raise OSError("it became shorter meanwhile")
        start += len(chunk)
        if is_inside:
            _, newline, chunk = chunk.partition(b"\n")
            is_inside = not newline
        yield chunk


def _reason(error: Exception) -> str:
    if isinstance(error, Unreadable):
        return error.reason
    return "it was moved meanwhile" if isinstance(error, Moved) else "too many files are open"
