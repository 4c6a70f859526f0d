"""CRI lines in columns: time, stream and text of each, by arithmetic on the first bytes of many
lines at a time. A line that is not of the usual form is looked at by itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from logpipeline import cri
from logpipeline_spark.lines import times

Numbers = npt.NDArray[np.int64]

# Lines whose heads are looked at together: their heads stay in the processor's cache.
ROWS_AT_ONCE = 16_384

NO_FD, STDOUT, STDERR = 0, 1, 2
_FDS = {b"stdout": STDOUT, b"stderr": STDERR}
_TAIL = len(" stdout F ")
_TAG = len(" stdout ")
_STREAMS = np.frombuffer(b" stdout  stderr ", np.uint64)
_SPACES, _ONES, _HIGH_BITS = (
    np.frombuffer(byte * 8, np.uint64)[0] for byte in (b" ", b"\x01", b"\x80")
)
# Nanoseconds in UTC, of which some runtimes leave the last zeros out; then all others.
_WIDTHS_USUAL_FIRST = sorted(times.WIDTHS, key=lambda width: (width > 30, abs(width - 30)))
_HEAD_BYTES = times.WIDTHS[-1] + _TAIL


class CriColumns(NamedTuple):
    """Columns of CRI lines: microseconds since 1970 (0: none), NO_FD, STDOUT or STDERR, and where
    the text begins.
    """

    times: Numbers
    fds: npt.NDArray[np.int8]
    texts: Numbers


def parse(buffer: npt.NDArray[np.uint8], starts: Numbers, ends: Numbers) -> CriColumns:
    """Return the columns of the lines ``[starts, ends)`` of *buffer*, behind whose last one there
    are some bytes more.
    """
    columns = CriColumns(
        np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int8), starts.copy()
    )
    windows = np.lib.stride_tricks.sliding_window_view(buffer, _HEAD_BYTES)
    for begin in range(0, len(starts), ROWS_AT_ONCE):
        rows = slice(begin, begin + ROWS_AT_ONCE)
        part = CriColumns(columns.times[rows], columns.fds[rows], columns.texts[rows])
        is_left = _usual(windows[starts[rows]], part)
        for row in (begin + np.flatnonzero(is_left)).tolist():
            line = buffer[starts[row] : ends[row]].tobytes()
            _careful(line, row, columns)
    return columns


def are_whole(buffer: npt.NDArray[np.uint8], starts: Numbers) -> npt.NDArray[np.bool_]:
    """Return which of the lines that begin at *starts* are certainly no fragments; behind the last
    one there are some bytes more.

    A search through all bytes for what marks a fragment costs five times as much.
    """
    # The eight bytes from each byte on.
    words = np.lib.stride_tricks.sliding_window_view(buffer, 8).view(np.uint64)[:, 0]
    is_whole = np.zeros(len(starts), np.bool_)
    for begin in range(0, len(starts), ROWS_AT_ONCE):
        rows = np.arange(begin, min(begin + ROWS_AT_ONCE, len(starts)))
        for width in _WIDTHS_USUAL_FIRST:
            at = starts[rows]
            stream = words[at + width]
            found = (stream == _STREAMS[0]) | (stream == _STREAMS[1])
            found &= buffer[at + width + _TAG] == ord("F")
            # The first space must be the one before the stream's name.
            for place in (*range(0, width - 8, 8), width - 8):
                found &= ~_holds_space(words[at + place])
            is_whole[rows[found]] = True
            rows = rows[~found]
            if not len(rows):
                break
    return is_whole


def _holds_space(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    # A byte is zero where subtracting one borrows from it, and it had no high bit.
    zeros = words ^ _SPACES
    is_there: npt.NDArray[np.bool_] = ((zeros - _ONES) & ~zeros & _HIGH_BITS) != 0
    return is_there


def _usual(heads: npt.NDArray[np.uint8], part: CriColumns) -> npt.NDArray[np.bool_]:
    """Fill *part* where lines have the usual form, and return which ones do not."""
    is_left = np.ones(len(heads), np.bool_)
    first = times.WIDTHS[0]
    widths = (heads[:, first : times.WIDTHS[-1] + 1] == ord(" ")).argmax(axis=1) + first
    for width in np.flatnonzero(np.bincount(widths)).tolist():
        rows = np.flatnonzero(widths == width)
        # Mostly all lines but a tenth have the same width: no copy where it is all of them.
        same = heads if len(rows) == len(heads) else heads[rows]
        micros, is_good = times.parse(same, width)
        is_out, is_err = _streams(same, width)
        has_text = same[:, width + _TAIL - 1] == ord(" ")
        is_good &= has_text | (same[:, width + _TAIL - 1] == ord("\n"))
        is_good &= (same[:, width + _TAIL - 2] == ord("F")) & (is_out | is_err)
        is_left[rows] = ~is_good
        chosen = rows[is_good]
        part.times[chosen] = micros[is_good]
        part.fds[chosen] = np.where(is_out, STDOUT, STDERR)[is_good]
        part.texts[chosen] += width + _TAIL - 1 + has_text[is_good]
    return is_left


def _streams(
    heads: npt.NDArray[np.uint8], width: int
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    found = np.ascontiguousarray(heads[:, width : width + 8]).view(np.uint64).ravel()
    return found == _STREAMS[0], found == _STREAMS[1]


def _careful(line: bytes, row: int, columns: CriColumns) -> None:
    fields = line.split(b" ", 3)
    if len(fields) < 3 or fields[1] not in _FDS:
        return
    columns.times[row] = cri.time_ns(line) // 1000
    columns.fds[row] = _FDS[fields[1]]
    columns.texts[row] += len(line) - len(fields[3]) if len(fields) == 4 else len(line)
