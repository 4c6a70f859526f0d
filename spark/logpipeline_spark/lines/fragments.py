"""The careful way through a message of CRI lines that holds fragments, or parts of an over-long
line: each of the program's lines is put together, and written down again as one CRI line, which
the usual path then takes apart with all the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Piece = Literal["begin", "middle", "end"]

_STREAMS = (b"stdout", b"stderr")


@dataclass(slots=True)
class Rejoined:
    """Whole lines, each with its newline; *offsets* are where they begin in the message's own
    bytes, *pieces* which of them (by number) are parts of an over-long line.
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
    """Fragments of one line so far."""

    time: bytes
    offset: int
    texts: list[bytes]
    is_continued: bool


def may_hold_fragments(data: bytes) -> bool:
    """Return whether *data* may hold fragments of CRI lines; False is certain."""
    # The tag may go on behind its first letter, so no space is looked for behind it.
    return b" stdout P" in data or b" stderr P" in data


def rejoin(data: bytes, *, starts_inside: bool, ends_inside: bool) -> Rejoined:
    """Return the program's lines of *data*, in the order of their ends.

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
    if tag[:1] != b"P":
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
    """Return which part of a line it is that begins before these bytes, or goes on behind them."""
    if starts_before:
        return "middle" if is_cut else "end"
    return "begin" if is_cut else None
