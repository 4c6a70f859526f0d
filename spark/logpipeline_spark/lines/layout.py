"""The layout of a group of messages: where each line begins and ends, found at once in one buffer,
and where its text begins. Fragments of CRI lines are joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from logpipeline import cri
from logpipeline_spark.lines import crilines
from logpipeline_spark.lines.crilines import NO_FD, CriColumns
from logpipeline_spark.lines.messages import Opened

Piece = Literal["begin", "middle", "end"]

_STREAMS = (b"stdout", b"stderr")

# After the last line, so that a fixed number of bytes can be read from each line's start.
PADDING = bytes(crilines.HEAD_BYTES)

Numbers = npt.NDArray[np.int64]


@dataclass(slots=True)
class Rejoined:
    """Whole lines, each with its newline; *offsets* are where they begin in the message's own
    bytes, *pieces* are those (by number) that are parts of an over-long line.
    """

    lines: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    pieces: dict[int, Piece] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        """The lines as one buffer."""
        return b"".join(self.lines)


@dataclass(slots=True)
class _Run:
    """The fragments of one line so far."""

    time: bytes
    offset: int
    texts: list[bytes]
    is_continued: bool


def may_hold_fragments(data: bytes) -> bool:
    """Return whether *data* may hold fragments of CRI lines; False is certain."""
    # The tag may continue after its first letter, so the space after it is not part of the pattern.
    return b" stdout P" in data or b" stderr P" in data


def rejoin(data: bytes, *, starts_inside: bool, ends_inside: bool) -> Rejoined:
    """Return the program's lines in *data*, in the order of their ends.

    *starts_inside* and *ends_inside* say that the first, or the last, line is cut there.
    """
    result = Rejoined()
    runs: dict[bytes, _Run] = {}
    lines = data.split(b"\n")
    last = len(lines) - 1
    position = 0
    for number, line in enumerate(lines):
        if number == last and not line:
            break
        is_first = starts_inside and number == 0
        is_cut = ends_inside and number == last
        _take(result, runs, line, position, is_first=is_first, is_cut=is_cut)
        position += len(line) + 1
    for stream, run in runs.items():
        _add(result, run, stream, is_cut=True)
    return result


def _take(
    result: Rejoined,
    runs: dict[bytes, _Run],
    line: bytes,
    position: int,
    *,
    is_first: bool,
    is_cut: bool,
) -> None:
    fields = line.split(b" ", 3)
    if len(fields) < 3 or fields[1] not in _STREAMS:
        _note(result, starts_before=is_first, is_cut=is_cut)
        result.lines.append(line + b"\n")
        result.offsets.append(position)
        return
    time, stream, tag = fields[:3]
    text = fields[3] if len(fields) == 4 else b""
    run = runs.setdefault(stream, _Run(time, position, [], is_first))
    run.texts.append(text)
    if not cri.is_fragment(tag):
        _add(result, runs.pop(stream), stream, is_cut=is_cut)


def _add(result: Rejoined, run: _Run, stream: bytes, *, is_cut: bool) -> None:
    _note(result, starts_before=run.is_continued, is_cut=is_cut)
    result.lines.append(b"%b %b F %b\n" % (run.time, stream, b"".join(run.texts)))
    result.offsets.append(run.offset)


def _note(result: Rejoined, *, starts_before: bool, is_cut: bool) -> None:
    piece = piece_of(starts_before=starts_before, is_cut=is_cut)
    if piece is not None:
        result.pieces[len(result.lines)] = piece


def piece_of(*, starts_before: bool, is_cut: bool) -> Piece | None:
    """Return the part of a line that begins before these bytes, or continues after them."""
    if starts_before:
        return "middle" if is_cut else "end"
    return "begin" if is_cut else None


@dataclass(frozen=True, slots=True)
class Layout:
    """The lines of a group: bytes ``[starts, ends)`` of *buffer*, without their newlines.

    *owners* are the messages of the lines, *firsts* the number of each message's first line,
    *offsets* the positions of lines in their source (-1: unknown), *pieces* the lines that are
    parts of lines, *cri* what a runtime wrote before the text of lines.
    """

    buffer: npt.NDArray[np.uint8]
    starts: Numbers
    ends: Numbers
    owners: Numbers
    firsts: Numbers
    offsets: Numbers
    pieces: dict[int, Piece]
    cri: CriColumns


@dataclass(slots=True)
class _Part:
    """One message's part of the buffer."""

    data: bytes
    offsets: list[int] | None
    pieces: dict[int, Piece]


def layout(group: Sequence[Opened]) -> Layout:
    """Return where the lines of *group* are."""
    parts = [_part(opened) for opened in group]
    is_cri = np.array([is_cri_lines(opened) for opened in group], np.bool_)
    found = _laid_out(group, parts, is_cri)
    # Lines of the usual form are certainly no fragments.
    suspects = found.owners[is_cri[found.owners] & (found.cri.fds == NO_FD)]
    with_fragments = [
        number
        for number in np.unique(suspects).tolist()
        if parts[number].offsets is None and may_hold_fragments(parts[number].data)
    ]
    if with_fragments:
        for number in with_fragments:
            parts[number] = _rejoined(group[number])
        found = _laid_out(group, parts, is_cri)
    crilines.parse_other(found.buffer, found.starts, found.ends, found.cri, is_cri[found.owners])
    return found


def _laid_out(
    group: Sequence[Opened], parts: Sequence[_Part], is_cri: npt.NDArray[np.bool_]
) -> Layout:
    """Return the layout of *parts*. In *cri*, only lines of the usual form are filled."""
    buffer = np.frombuffer(b"".join([*(part.data for part in parts), PADDING]), np.uint8)
    bounds = np.cumsum([0, *(len(part.data) for part in parts)], dtype=np.int64)
    ends = np.flatnonzero(buffer[: bounds[-1]] == ord("\n")).astype(np.int64, copy=False)
    owners = _owners(ends, bounds)
    is_bad = np.array([bool(opened.reason) for opened in group], np.bool_)
    if is_bad.any():
        # A message that cannot be decoded is one line, whatever its bytes are.
        keep = ~is_bad[owners] | (ends == bounds[owners + 1] - 1)
        ends, owners = ends[keep], owners[keep]
    starts = np.concatenate([bounds[:1], ends[:-1] + 1]) if len(ends) else ends
    firsts = np.searchsorted(owners, np.arange(len(group)))
    begins = np.array([-1 if o.batch is None else o.batch.start for o in group], np.int64)
    offsets = np.where(begins[owners] < 0, -1, begins[owners] + starts - bounds[owners])
    pieces: dict[int, Piece] = {}
    for number, part in enumerate(parts):
        _correct(part, int(firsts[number]), int(begins[number]), offsets, pieces)
    columns = crilines.parse_usual(buffer, starts, is_cri[owners])
    return Layout(buffer, starts, ends, owners, firsts, offsets, pieces, columns)


def is_cri_lines(opened: Opened) -> bool:
    """Return whether the lines of *opened* have the CRI format."""
    return opened.batch is not None and opened.batch.format == "cri"


def _owners(ends: Numbers, bounds: Numbers) -> Numbers:
    counts = np.diff(np.searchsorted(ends, bounds))
    return np.repeat(np.arange(len(bounds) - 1), counts)


def _part(opened: Opened) -> _Part:
    batch, data = opened.batch, opened.data
    if opened.reason:
        return _Part(data + b"\n", None, {})
    if batch is None:
        return _Part(data, None, {})
    is_cut = batch.starts_inside_line or batch.ends_inside_line
    if batch.format == "cri" and is_cut:
        return _rejoined(opened)
    whole = data if data.endswith(b"\n") else data + b"\n"
    if not is_cut:
        return _Part(whole, None, {})
    count = whole.count(b"\n")
    first = piece_of(
        starts_before=batch.starts_inside_line, is_cut=batch.ends_inside_line and count == 1
    )
    last = piece_of(
        starts_before=batch.starts_inside_line and count == 1, is_cut=batch.ends_inside_line
    )
    pieces = {0: first, count - 1: last} if count > 1 else {0: first}
    return _Part(whole, None, {row: piece for row, piece in pieces.items() if piece})


def _rejoined(opened: Opened) -> _Part:
    batch = opened.batch
    assert batch is not None
    lines = rejoin(
        opened.data, starts_inside=batch.starts_inside_line, ends_inside=batch.ends_inside_line
    )
    return _Part(lines.data, lines.offsets, lines.pieces)


def _correct(
    part: _Part, first: int, begin: int, offsets: Numbers, pieces: dict[int, Piece]
) -> None:
    if part.offsets is not None:
        placed: Any = np.array(part.offsets, np.int64)
        offsets[first : first + len(placed)] = begin + placed
    for row, piece in part.pieces.items():
        pieces[first + row] = piece
