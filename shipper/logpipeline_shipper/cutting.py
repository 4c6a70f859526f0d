"""Takes a chunk apart where a message must be smaller than what was read. Pure, and lossless.

Cuts fall between lines and outside fragment runs; only a line that is too large alone is cut
inside, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from logpipeline import cri, wire
from logpipeline.checksum import Checksum
from logpipeline_shipper.files.chain import Chunk

# A message of this size that is still refused is not refused for its size.
PIECE_BYTES_MIN = 1024


def split_at(chunk: Chunk, offset: int, log_format: wire.Format) -> tuple[Chunk, Chunk]:
    """Return the parts of *chunk* before and from *offset*, which is one of the generation."""
    assert chunk.start < offset < chunk.end
    head, tail = chunk.data[: offset - chunk.start], chunk.data[offset - chunk.start :]
    is_inside = not head.endswith(b"\n")
    checksums = wire.Checksums.around(head, chunk.checksums.before)
    first = replace(
        chunk,
        end=offset,
        data=head,
        lines=head.count(b"\n") + is_inside,
        last_time_ns=_last_time_ns(head, log_format) or chunk.first_time_ns,
        checksums=checksums,
        ends_inside_line=is_inside,
    )
    second = replace(
        chunk,
        start=offset,
        data=tail,
        lines=tail.count(b"\n") + (not tail.endswith(b"\n")),
        first_time_ns=_first_time_ns(tail, log_format) or chunk.last_time_ns,
        previous=None,
        checksums=wire.Checksums(checksums.after, chunk.checksums.after),
        starts_inside_line=is_inside,
        begins=False,
    )
    return first, second


def halves(chunk: Chunk, log_format: wire.Format) -> tuple[Chunk, Chunk] | None:
    """Return *chunk* as two parts of about equal size, or None where it is too small for that."""
    size = len(chunk.data)
    if size < 2 * PIECE_BYTES_MIN:
        return None
    half = size // 2
    cut = (
        _last_cut(chunk.data[:half], log_format)
        or _first_cut(chunk.data, half, log_format)
        # One line, or one run of fragments: between fragments if that helps, else anywhere.
        or chunk.data.rfind(b"\n", 0, half) + 1
        or half
    )
    return split_at(chunk, chunk.start + cut, log_format)


def single_lines(chunk: Chunk, log_format: wire.Format) -> Iterator[Chunk]:
    """Yield *chunk* line by line, a run of fragments as one line."""
    data, begin, checksum = chunk.data, 0, chunk.checksums.before
    for end in _line_ends(data, log_format):
        is_first, is_last = begin == 0, end == len(data)
        if is_first and is_last:
            yield chunk
            return
        line = data[begin:end]
        checksums = wire.Checksums.around(line, checksum)
        yield replace(
            chunk,
            start=chunk.start + begin,
            end=chunk.start + end,
            data=line,
            lines=line.count(b"\n") + (not line.endswith(b"\n")),
            first_time_ns=_first_time_ns(line, log_format) or chunk.first_time_ns,
            last_time_ns=_last_time_ns(line, log_format) or chunk.first_time_ns,
            previous=chunk.previous if is_first else None,
            checksums=checksums,
            starts_inside_line=is_first and chunk.starts_inside_line,
            ends_inside_line=is_last and chunk.ends_inside_line,
            begins=is_first and chunk.begins,
        )
        begin, checksum = end, checksums.after


def piece_of(
    data: bytes,
    *,
    generation: str,
    start: int,
    checksum: Checksum,
    log_format: wire.Format,
    is_last: bool,
    inside: bool,
) -> Chunk:
    """Return the first bytes of *data* as a chunk that begins at *start* of *generation*, whose
    checksum is *checksum* there.

    It ends at the last place where lines allow a cut, or, if *is_last*, with *data* itself.
    *inside* says that it begins inside a line.
    """
    size = len(data) if is_last else _last_cut(data, log_format) or len(data)
    part = data[:size]
    is_cut = not part.endswith(b"\n")
    return Chunk(
        generation=generation,
        start=start,
        end=start + size,
        data=part,
        lines=part.count(b"\n") + is_cut,
        first_time_ns=_first_time_ns(part, log_format),
        last_time_ns=_last_time_ns(part, log_format),
        previous=None,
        checksums=wire.Checksums.around(part, checksum),
        starts_inside_line=inside,
        ends_inside_line=is_cut,
    )


def _line_ends(data: bytes, log_format: wire.Format) -> Iterator[int]:
    """Yield where lines of *data*, or runs of fragments, end; the last one is the end of *data*."""
    begin = end = 0
    while end := data.find(b"\n", end) + 1:
        is_whole = log_format != "cri" or cri.last_cut(data[begin:end]) == end - begin
        if is_whole and end < len(data):
            yield end
            begin = end
    yield len(data)


def _last_cut(data: bytes, log_format: wire.Format) -> int:
    return cri.last_cut(data) if log_format == "cri" else data.rfind(b"\n") + 1


def _first_cut(data: bytes, at_least: int, log_format: wire.Format) -> int:
    end = data.find(b"\n", at_least) + 1
    if log_format != "cri":
        return end if end < len(data) else 0
    while end and end < len(data):
        if cri.last_cut(data[:end]) == end:
            return end
        end = data.find(b"\n", end) + 1
    return 0


def _first_time_ns(data: bytes, log_format: wire.Format) -> int:
    return cri.time_ns(data[:40]) if log_format == "cri" else 0


def _last_time_ns(data: bytes, log_format: wire.Format) -> int:
    if log_format != "cri":
        return 0
    begin = data.rfind(b"\n", 0, max(len(data) - 1, 0)) + 1
    return cri.time_ns(data[begin : begin + 40])
