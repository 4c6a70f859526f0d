"""CRI lines as columns: the time, stream and text of each, by arithmetic on the first bytes of many
lines at a time. Lines of an unusual form are parsed one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from logpipeline import cri

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Facts = npt.NDArray[np.bool_]

# RFC 3339 with one to nine decimals of a second, and "Z" or a zone: the form that runtimes write.
WIDTHS = range(len("2026-11-21T10:00:00.1Z"), len("2026-11-21T10:00:00.123456789+01:00") + 1)

_MINUTE = len("2026-11-21T10:00")
_DIGITS = [0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18]
_SIGNS = {4: b"-", 7: b"-", 10: b"T", 13: b":", 16: b":", 19: b"."}
_ZONE = len("+01:00")

# So many lines are processed together: their heads stay in the processor's cache.
ROWS_AT_ONCE = 16_384

NO_FD, STDOUT, STDERR = 0, 1, 2
_FDS = {b"stdout": STDOUT, b"stderr": STDERR}
_TAIL = len(" stdout F ")
_TAG = len(" stdout ")
_STREAMS = np.frombuffer(b" stdout  stderr ", np.uint64)
_SPACES, _ONES, _HIGH_BITS = (
    np.frombuffer(byte * 8, np.uint64)[0] for byte in (b" ", b"\x01", b"\x80")
)
# First nanoseconds in UTC, where some runtimes omit trailing zeros; then all others.
_WIDTHS_USUAL_FIRST = sorted(WIDTHS, key=lambda width: (width > 30, abs(width - 30)))
_HEAD_BYTES = WIDTHS[-1] + _TAIL


def parse_times(heads: Bytes, width: int) -> tuple[Numbers, Facts]:
    """Return the microseconds since 1970 of the times in the first *width* bytes of each row of
    *heads*, and which rows hold a time in a usual form; the others need `cri.time_ns`.
    """
    is_zulu: Facts = np.equal(heads[:, width - 1], ord("Z"))
    if is_zulu.all():
        return _parse(heads, width, 1)
    times = np.zeros(len(heads), np.int64)
    is_good = np.zeros(len(heads), np.bool_)
    for rows, zone in ((is_zulu, 1), (~is_zulu, _ZONE)):
        if rows.any():
            times[rows], is_good[rows] = _parse(heads[rows], width, zone)
    return times, is_good


def _parse(heads: Bytes, width: int, zone: int) -> tuple[Numbers, Facts]:
    fraction = width - zone - (_MINUTE + len(":00."))
    if not 1 <= fraction <= 9:
        nothing = np.zeros(len(heads), np.int64)
        return nothing, nothing != 0
    places = [*_DIGITS, *range(20, 20 + fraction)]
    # Bytes below "0" wrap around to large numbers.
    digits = heads[:, places] - np.uint8(ord("0"))
    is_good: Facts = np.all(digits <= 9, axis=1)
    for place, sign in _SIGNS.items():
        is_good &= heads[:, place] == ord(sign)
    if zone == _ZONE:
        # A zone of another length would count one of its characters among the digits.
        is_good &= np.isin(heads[:, width - _ZONE], [ord("+"), ord("-")])
    minutes = _minutes(heads, width - zone, width, is_good)
    seconds = digits[:, 12].astype(np.int64) * 10 + digits[:, 13]
    micros = np.zeros(len(heads), np.int64)
    for place in range(min(fraction, 6)):
        micros += digits[:, 14 + place].astype(np.int64) * 10 ** (5 - place)
    times = (minutes + seconds) * 1_000_000 + micros
    # Second 60, impossible dates, and 1970 itself, whose 0 means "no time", are left to
    # `cri.time_ns`.
    is_good &= (seconds < 60) & (minutes != _NO_MINUTE) & (times != 0)
    return times, is_good


_NO_MINUTE = -(1 << 40)


def _minutes(heads: Bytes, zone_at: int, width: int, is_good: Facts) -> Numbers:
    """Return the seconds since 1970 of each row's minute."""
    columns = [*range(_MINUTE), *range(zone_at, width)]
    named: Any = np.ascontiguousarray(heads[:, columns]).view(f"V{len(columns)}").ravel()
    # Neighbours mostly have the same minute: only where it changes it is parsed.
    is_new = np.ones(len(heads), np.bool_)
    is_new[1:] = named[1:] != named[:-1]
    firsts = np.flatnonzero(is_new)
    known: dict[bytes, int] = {}
    values = np.empty(len(firsts), np.int64)
    for place, row in enumerate(firsts.tolist()):
        key = named[row].tobytes()
        if key not in known:
            known[key] = _minute(key) if is_good[row] else _NO_MINUTE
        values[place] = known[key]
    return np.repeat(values, np.diff(np.append(firsts, len(heads))))


def _minute(key: bytes) -> int:
    # With a second that is not zero, a minute of 1970 differs from no time.
    found = cri.time_ns(key[:_MINUTE] + b":01.0" + key[_MINUTE:])
    return found // 1_000_000_000 - 1 if found else _NO_MINUTE


class CriColumns(NamedTuple):
    """Columns of CRI lines: microseconds since 1970 (0: none), NO_FD, STDOUT or STDERR, and where
    the text begins.
    """

    times: Numbers
    fds: npt.NDArray[np.int8]
    texts: Numbers


def parse(buffer: npt.NDArray[np.uint8], starts: Numbers, ends: Numbers) -> CriColumns:
    """Return the columns of the lines ``[starts, ends)`` of *buffer*, which has some bytes after
    the last line.
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
    """Return which of the lines that begin at *starts* are certainly not fragments; the buffer has
    some bytes after the last line.

    To search all bytes for the marks of fragments costs five times as much.
    """
    # The eight bytes at each position.
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
    # A byte is zero if subtracting one borrows from it, and its high bit was not set.
    zeros = words ^ _SPACES
    is_there: npt.NDArray[np.bool_] = ((zeros - _ONES) & ~zeros & _HIGH_BITS) != 0
    return is_there


def _usual(heads: npt.NDArray[np.uint8], part: CriColumns) -> npt.NDArray[np.bool_]:
    """Fill *part* for lines of the usual form, and return which lines have another form."""
    is_left = np.ones(len(heads), np.bool_)
    first = WIDTHS[0]
    widths = (heads[:, first : WIDTHS[-1] + 1] == ord(" ")).argmax(axis=1) + first
    for width in np.flatnonzero(np.bincount(widths)).tolist():
        rows = np.flatnonzero(widths == width)
        # Mostly nine tenths of the lines or all of them have the same width: if all, nothing is
        # copied.
        same = heads if len(rows) == len(heads) else heads[rows]
        micros, is_good = parse_times(same, width)
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
