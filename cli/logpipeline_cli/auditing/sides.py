"""The two sides of an audit, on the machine of their files: the log files of a node, and the files
that collectors wrote. Each reports its lines by keys of blocks and lines, so that little is sent.
"""

from __future__ import annotations

import base64
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from logpipeline import cri, json_text
from logpipeline.redaction import Redactor
from logpipeline.spans import Span, outside, size_of
from logpipeline_cli.auditing.line_blocks import Block, Left, blocks_of, count, count_left, left
from logpipeline_cli.committed import Reading
from logpipeline_shipper import checkpoint
from logpipeline_shipper.checkpoint import Key, SourceRecord
from logpipeline_shipper.files.discovery import Discovery
from logpipeline_shipper.files.generation import Generation
from logpipeline_shipper.files.listing import ChainFile, HostSources, Listing, SourceId
from logpipeline_shipper.files.open_file import Moved, TooManyOpen, Unreadable, open_reader
from logpipeline_shipper.files.reader import Reader

CHUNK_BYTES = 256 * 1024

Spend = Callable[[int], None]

Counts = Mapping[bytes, int]


@dataclass(slots=True)
class Pace:
    """Limits reading to *rate* bytes per second; 0 means no limit."""

    rate: int = 0
    _due_s: float = 0.0

    def spend(self, size: int) -> None:
        """Wait until *size* more bytes may be read."""
        if not self.rate:
            return
        now_s = time.monotonic()
        time.sleep(max(self._due_s - now_s, 0.0))
        self._due_s = max(self._due_s, now_s) + size / self.rate


class Lines:
    """Splits chunks into lines without their ends; with *is_cri* the lines in a container runtime's
    log, without its prefix and with their fragments joined.
    """

    def __init__(self, *, is_cri: bool) -> None:
        self._is_cri = is_cri
        self._held = b""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that *chunk* completes."""
        held = self._held + chunk
        cut = cri.last_cut(held) if self._is_cri else held.rfind(b"\n") + 1
        self._held = held[cut:]
        if self._is_cri:
            yield from (line.text for line in cri.join(held[:cut]))
        elif cut:
            yield from held[: cut - 1].split(b"\n")

    def rest(self) -> Iterator[bytes]:
        """Yield the last line, which has no end."""
        held, self._held = self._held, b""
        if self._is_cri:
            yield from (line.text for line in cri.join(held))
        elif held:
            yield held

    def forget(self) -> None:
        """Drop a line without an end: the next chunk does not continue it."""
        self._held = b""


def lines_in(chunks: Iterable[bytes], *, is_cri: bool) -> Iterator[bytes]:
    """Yield all lines of *chunks*, also a last one without an end."""
    lines = Lines(is_cri=is_cri)
    for chunk in chunks:
        yield from lines.feed(chunk)
    yield from lines.rest()


class NoLine(Exception):
    """A line of a collected file does not have the pipeline's present output format."""


def lines_of(output: str, chunks: Iterable[bytes], *, is_cri: bool) -> Iterator[bytes]:
    """Yield the program's lines in one collected file of the format *output* (``raw``, ``cri`` or
    ``json``), without their ends.

    Raises:
        NoLine: the file has another format.
    """
    lines = lines_in(chunks, is_cri=is_cri and output == "cri")
    yield from _messages(lines) if output == "json" else lines


def _messages(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the texts of JSON *lines*. A text that was too long for one line is in several; all but
    the last of these are marked as partial.
    """
    begun: dict[tuple[str, str], bytes] = {}
    for line in lines:
        try:
            row = json_text.parse(line)
            coded = row.get("message_base64")
            text = row["message"].encode() if coded is None else base64.b64decode(coded)
            key = (str(row.get("source", "")), str(row.get("stream", "")))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise NoLine(f"{line[:60]!r} is not a line of JSON output") from error
        text = begun.pop(key, b"") + text
        if row.get("partial"):
            begun[key] = text
        else:
            yield text
    yield from begun.values()


# The files are found as a shipper finds them. The shipper's saved state identifies each file, and
# says how far collectors have confirmed it.
@dataclass(frozen=True, slots=True)
class Part:
    """A file, and the *spans* of its content that collectors have confirmed. *is_ended*: these
    reach to its end, and nothing is written to it any more.
    """

    file: ChainFile
    size: int
    spans: tuple[Span, ...] = ()
    is_ended: bool = False


@dataclass(slots=True)
class Source:
    """The files of one source, oldest first. *troubles* are files that could not be read
    completely, with the reasons.
    """

    id: SourceId
    parts: list[Part]
    redactor: Redactor
    troubles: dict[Path, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes in its files."""
        return sum(part.size for part in self.parts)

    @property
    def compared(self) -> int:
        """Bytes that must be collected, in files that could be read; correct after `lines`."""
        parts = (part for part in self.parts if part.file.path not in self.troubles)
        return sum(size_of(part.spans) for part in parts)

    def leave_out_before(self, time_ns: int) -> None:
        """Leave out the content of files that were last written before *time_ns*."""
        self.parts = [
            part if part.file.mtime_ns >= time_ns else Part(part.file, part.size)
            for part in self.parts
        ]

    def lines(self, spend: Spend) -> Iterator[bytes]:
        """Yield the lines that must be collected, as they are sent and without their ends; *spend*
        is called with each number of bytes before they are read.
        """
        return (self.redactor.redact(line, "plain") for line in self._in_files(spend))

    def _in_files(self, spend: Spend) -> Iterator[bytes]:
        is_cri = self.id.format == "cri"
        lines = Lines(is_cri=is_cri)
        for part in self.parts:
            for chunk in self._chunks(part, spend):
                if chunk is None:
                    lines.forget()
                else:
                    yield from lines.feed(chunk)
            # A container runtime that begins a new file may split the current line between both.
            if not part.is_ended:
                lines.forget()
            elif not is_cri:
                yield from lines.rest()

    def _chunks(self, part: Part, spend: Spend) -> Iterator[bytes | None]:
        """Yield the content of *part*; None where the next chunk does not continue the previous
        one.
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


def sources_of(
    hosts: Sequence[HostSources], records: dict[Key, SourceRecord], redactor: Redactor
) -> Iterator[Source]:
    """Yield the present sources of *hosts*; *records* are the saved state of their shipper, and
    *redactor* what masks their lines.
    """
    for listing in Discovery(hosts, skipped=lambda path, reason: None).scan():
        record = records.get(Key(listing.id.host, listing.id.source))
        yield Source(listing.id, list(_parts(listing, record)), redactor)


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
        # A container runtime continues a line in the next file; another writer may still have
        # this file open.
        is_over = file is not listing.files[-1] and (is_cri or generation.is_done)
        is_ended = is_over and bool(spans) and spans[-1][1] == size
        yield Part(file, size, tuple(spans), is_ended)


def _generation_of(
    file: ChainFile, known: Sequence[Generation], *, is_cri: bool
) -> Generation | None:
    """Return the generation of *file*: by its identity, or of a copy by its whole content."""
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
    """Yield the bytes of a span, from the first line that begins in it.

    Raises:
        OSError: they cannot be read, or do not exist any more.
    """
    is_inside = start > 0 and reader.read(start - 1, 1) != b"\n"
    while start < end:
        size = min(CHUNK_BYTES, end - start)
        spend(size)
        chunk = reader.read(start, size)
        if not chunk:
            raise OSError("it became shorter while it was read")
        start += len(chunk)
        if is_inside:
            _, newline, chunk = chunk.partition(b"\n")
            is_inside = not newline
        yield chunk


def _reason(error: Exception) -> str:
    if isinstance(error, Unreadable):
        return error.reason
    return (
        "it was moved while it was read" if isinstance(error, Moved) else "too many files are open"
    )


class Where(NamedTuple):
    """The place in which lines are collected: files of *host* whose names match *glob*."""

    host: str
    glob: str
    is_cri: bool


class Survey(NamedTuple):
    """The content of one source: the numbers of its *files* and bytes, the bytes to be *compared*,
    which collectors have confirmed, the blocks of these, and the files that could not be read
    completely, with the reasons.
    """

    id: SourceId
    files: int
    size: int
    compared: int
    blocks: Counts
    troubles: Mapping[str, str]


class Node(Protocol):
    """The log files of one shipper."""

    def survey(self) -> Iterator[Survey]:
        """Yield the survey of each source."""

    def left(self, groups: Sequence[tuple[Sequence[Key], Counts]]) -> Iterator[Left]:
        """Yield, for each group of sources, the lines outside of the blocks that both sides
        have.
        """


class CollectorFiles(Protocol):
    """The collected files of some collectors."""

    def count(self, wanted: Sequence[tuple[Where, Counts]]) -> Iterator[Counts]:
        """Yield, for each place, how often each wanted block occurs there."""

    def count_left(self, wanted: Sequence[tuple[Where, Counts, Counts]]) -> Iterator[Counts]:
        """Yield, for each place, how often each wanted line (the last item) occurs there outside of
        the blocks that both sides have.
        """


@dataclass(slots=True)
class NodeFiles:
    """The files of a shipper that keeps its positions in *folder*. Files that were not written for
    *kept_ns* are left out: retention may have removed their lines from the collectors' files.
    """

    hosts: Sequence[HostSources]
    folder: Path
    kept_ns: int
    pace: Pace
    redactor: Redactor

    def survey(self) -> Iterator[Survey]:
        """See `Node`.

        Raises:
            StateBroken, OSError: the state of the shipper cannot be read.
        """
        for source in self._sources():
            blocks = count(blocks_of(source.lines(self.pace.spend)))
            troubles = {str(path): reason for path, reason in source.troubles.items()}
            files, compared = len(source.parts), source.compared
            yield Survey(source.id, files, source.size, compared, blocks, troubles)

    def left(self, groups: Sequence[tuple[Sequence[Key], Counts]]) -> Iterator[Left]:
        """See `Node`."""
        sources = {Key(each.id.host, each.id.source): each for each in self._sources()}
        for keys, same in groups:
            there = (sources[key] for key in keys if key in sources)
            blocks = (b for each in there for b in blocks_of(each.lines(self.pace.spend)))
            yield left(blocks, same)

    def _sources(self) -> Iterator[Source]:
        since_ns = time.time_ns() - self.kept_ns
        for source in sources_of(self.hosts, checkpoint.peek(self.folder), self.redactor):
            source.leave_out_before(since_ns)
            yield source


@dataclass(slots=True)
class LocalCollectorFiles:
    """The files of the collectors in *folders*, of one group, in the format *output*."""

    folders: Sequence[Path]
    group: str
    output: str
    pace: Pace

    def count(self, wanted: Sequence[tuple[Where, Counts]]) -> Iterator[Counts]:
        """See `CollectorFiles`.

        Raises:
            CliError: the files cannot be read.
            NoLine: they have another format.
        """
        for where, keys in wanted:
            yield count(self._blocks(where), keys)

    def count_left(self, wanted: Sequence[tuple[Where, Counts, Counts]]) -> Iterator[Counts]:
        """See `CollectorFiles`."""
        for where, same, keys in wanted:
            yield count_left(self._blocks(where), same, keys)

    def _blocks(self, where: Where) -> Iterator[Block]:
        reading = Reading(self.folders, where.host, where.glob, group=self.group)
        for chunks in reading.files():
            yield from blocks_of(lines_of(self.output, self._paced(chunks), is_cri=where.is_cri))

    def _paced(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.pace.spend(len(chunk))
            yield chunk


def added(counts: Sequence[Counts]) -> Counter[bytes]:
    """Return the sum of *counts*."""
    total: Counter[bytes] = Counter()
    for each in counts:
        total.update(each)
    return total
