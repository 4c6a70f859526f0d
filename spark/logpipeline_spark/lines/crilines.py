"""CRI lines as columns: the time, stream and text of each, by arithmetic on the first bytes of many
lines at a time. Lines of an unusual form are parsed one by one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from logpipeline import cri

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Facts = npt.NDArray[np.bool_]
# Eight bytes of a line's head, the first of them in the lowest bits.
Words = npt.NDArray[np.uint64]

# RFC 3339 with one to nine decimals of a second, and "Z" or a zone: the form that runtimes write.
WIDTH_MAX = len("2026-11-21T10:00:00.123456789+01:00")
_DECIMALS = range(1, 10)

_MINUTE = len("2026-11-21T10:00")
_FRACTION_AT = len("2026-11-21T10:00:00.")
_ZULU, _OFFSET = len("Z"), len("+01:00")
_USUAL_MINUTE = re.compile(
    rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(?:Z|[+-][0-9]{2}:[0-9]{2})"
)

# So many lines are processed together: their heads stay in the processor's cache.
ROWS_AT_ONCE = 16_384

NO_FD, STDOUT, STDERR = 0, 1, 2
_FDS = {b"stdout": STDOUT, b"stderr": STDERR}
_TAG = len(" stdout ")
_TAIL = len(" stdout F ")
_WORD = 8
# A head is so many bytes, in whole words.
HEAD_BYTES = 48


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text, "little"))


_OUT, _ERR = _word(b" stdout "), _word(b" stderr ")
_WHOLE, _WHOLE_AND_EMPTY = _word(b"F "), _word(b"F\n")
# A second's signs, and the bytes where they are.
_SIGNS, _SIGNED = _word(b":\0\0."), _word(b"\xff\0\0\xff")
_ZERO, _ZEROS = _word(b"0"), _word(b"0" * _WORD)
_HIGH_HALVES = _word(b"\xf0" * _WORD)
_SIXES = _word(b"\x06" * _WORD)


class CriColumns(NamedTuple):
    """Columns of CRI lines: microseconds since 1970 (0: none), NO_FD, STDOUT or STDERR, and where
    the text begins.
    """

    times: Numbers
    fds: npt.NDArray[np.int8]
    texts: Numbers


def parse_usual(buffer: Bytes, starts: Numbers, is_cri: Facts) -> CriColumns:
    """Return the columns of the lines of *buffer* that begin at *starts*. Those for which *is_cri*
    holds are filled, if they are certainly whole lines of the usual form; all others are blank.
    After the last line the buffer goes on for HEAD_BYTES.
    """
    columns = CriColumns(
        np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int8), starts.copy()
    )
    heads: Any = np.ndarray((len(buffer) - HEAD_BYTES + 1,), f"V{HEAD_BYTES}", buffer, strides=(1,))
    for begin in range(0, len(starts), ROWS_AT_ONCE):
        rows = np.arange(begin, min(begin + ROWS_AT_ONCE, len(starts)))
        rows = rows[is_cri[rows]]
        words = heads[starts[rows]].view("<u8").reshape(-1, HEAD_BYTES // _WORD)
        _fill(np.ascontiguousarray(words.T), rows, columns)
    return columns


def parse_other(
    buffer: Bytes, starts: Numbers, ends: Numbers, columns: CriColumns, is_cri: Facts
) -> None:
    """Fill *columns* for the lines ``[starts, ends)`` that `parse_usual` left blank."""
    for row in np.flatnonzero(is_cri & (columns.fds == NO_FD)).tolist():
        line = buffer[starts[row] : ends[row]].tobytes()
        fields = line.split(b" ", 3)
        if len(fields) < 3 or fields[1] not in _FDS:
            continue
        columns.times[row] = cri.time_ns(line) // 1000
        columns.fds[row] = _FDS[fields[1]]
        columns.texts[row] += len(line) - len(fields[3]) if len(fields) == 4 else len(line)


@dataclass(frozen=True, slots=True)
class _Form:
    """Times with so many *decimals* of a second, and a *zone* of so many bytes."""

    decimals: int
    zone: int

    @property
    def width(self) -> int:
        return _FRACTION_AT + self.decimals + self.zone

    def fds(self, heads: Words) -> npt.NDArray[np.int8]:
        """Return the streams of the whole lines among *heads* whose time is followed by a stream
        at the place of this form.
        """
        stream = _bytes(heads, self.width, _WORD)
        tag = _bytes(heads, self.width + _TAG, 2)
        is_whole = (tag == _WHOLE) | (tag == _WHOLE_AND_EMPTY)
        fds = np.where(stream == _OUT, STDOUT, np.where(stream == _ERR, STDERR, NO_FD))
        return np.where(is_whole, fds, NO_FD).astype(np.int8)

    def times(self, heads: Words) -> Numbers:
        """Return the microseconds since 1970 of *heads*, 0 for those without a time of this form.
        Second 60, impossible dates, and 1970 itself, are no times here.
        """
        signs, digits = _bytes(heads, _MINUTE, 4) & _SIGNED, _bytes(heads, _MINUTE + 1, 2)
        tens, ones = _bytes(heads, _MINUTE + 1, 1) - _ZERO, _bytes(heads, _MINUTE + 2, 1) - _ZERO
        seconds = (tens * np.uint64(10) + ones).astype(np.int64)
        is_good = (signs == _SIGNS) & _are_digits(digits, 2) & (seconds < 60)
        eight = min(self.decimals, _WORD)
        fraction = _bytes(heads, _FRACTION_AT, eight)
        is_good &= _are_digits(fraction, eight)
        if self.decimals > _WORD:
            is_good &= _are_digits(_bytes(heads, _FRACTION_AT + _WORD, 1), 1)
        minutes = self._minutes(heads)
        micros = (minutes + seconds) * 1_000_000 + _micros(fraction, eight)
        return np.where(is_good & (minutes != _NO_MINUTE), micros, 0)

    def _minutes(self, heads: Words) -> Numbers:
        """Return the seconds since 1970 of each head's minute, or _NO_MINUTE."""
        # "Z", or the hours and minutes from UTC.
        zone = _bytes(heads, self.width - self.zone, self.zone)
        parts = (heads[0], heads[1], zone)
        # Neighbours mostly have the same minute: only where it changes it is parsed.
        is_new = np.ones(len(zone), np.bool_)
        is_new[1:] = np.logical_or.reduce([part[1:] != part[:-1] for part in parts])
        firsts = np.flatnonzero(is_new)
        known: dict[tuple[int, ...], int] = {}
        values = np.empty(len(firsts), np.int64)
        for place, key in enumerate(zip(*(part[firsts].tolist() for part in parts), strict=True)):
            if key not in known:
                known[key] = _minute(key, self.zone)
            values[place] = known[key]
        return np.repeat(values, np.diff(np.append(firsts, len(zone))))


_NO_MINUTE = -(1 << 40)


def _minute(words: tuple[int, ...], zone_bytes: int) -> int:
    sizes = (_WORD, _WORD, zone_bytes)
    parts = [word.to_bytes(size, "little") for word, size in zip(words, sizes, strict=True)]
    if not _USUAL_MINUTE.fullmatch(b"".join(parts)):
        return _NO_MINUTE
    # With a second that is not zero, a minute of 1970 differs from no time.
    found = cri.time_ns(b"%b%b:01.0%b" % tuple(parts))
    return found // 1_000_000_000 - 1 if found else _NO_MINUTE


# First nanoseconds, as most runtimes write them, in UTC or in the zone of the node; some omit
# trailing zeros.
_FORMS = tuple(_Form(*each) for each in product(reversed(_DECIMALS), (_ZULU, _OFFSET)))


def _fill(heads: Words, rows: Numbers, columns: CriColumns) -> None:
    """Fill those *rows* of *columns* whose *heads* have one of the usual forms."""
    for form in _FORMS:
        fds = form.fds(heads)
        is_found = fds != NO_FD
        if not is_found.any():
            continue
        times = form.times(heads if is_found.all() else heads[:, is_found])
        is_found[is_found] = times != 0
        has_text = _bytes(heads, form.width + _TAG, 2) == _WHOLE
        found = rows[is_found]
        columns.times[found] = times[times != 0]
        columns.fds[found] = fds[is_found]
        columns.texts[found] += form.width + _TAIL - 1 + has_text[is_found]
        rows, heads = rows[~is_found], heads[:, ~is_found]
        if not len(rows):
            return


def _bytes(heads: Words, at: int, count: int) -> Words:
    """Return the *count* bytes at *at* of each head, the first in the lowest bits."""
    word, inside = divmod(at, _WORD)
    found: Words = heads[word] >> np.uint64(8 * inside)
    if inside + count > _WORD:
        found |= heads[word + 1] << np.uint64(8 * (_WORD - inside))
    return found if count == _WORD else found & np.uint64((1 << 8 * count) - 1)


def _are_digits(found: Words, count: int) -> Facts:
    """Return for which words the lowest *count* bytes, after which they are zero, are digits."""
    filled = found | (_ZEROS << np.uint64(8 * count)) if count < _WORD else found
    # Digits are 0x30 to 0x39: six more, and the high half is still the same.
    above = (filled + _SIXES) & _HIGH_HALVES
    are_digits: Facts = ((filled & _HIGH_HALVES) == _ZEROS) & (above == _ZEROS)
    return are_digits


def _micros(fraction: Words, count: int) -> Numbers:
    """Return the microseconds of *fraction*: *count* digits, of which the seventh and later ones
    are less than one.
    """
    if count < _WORD:
        fraction = fraction | (_ZEROS << np.uint64(8 * count))
    # Two bytes of 0 come before six digits. Then numbers of two digits, of four and of all eight
    # come from pairs of the numbers before, as in D. Lemire, "Quickly parsing eight digits", 2018.
    found = (fraction << np.uint64(16)) & ~_HIGH_HALVES
    found = found * np.uint64(10 * 256 + 1) >> np.uint64(8)
    found = (found & np.uint64(0x00FF_00FF_00FF_00FF)) * np.uint64(100 * 65536 + 1) >> np.uint64(16)
    found = (found & np.uint64(0x0000_FFFF_0000_FFFF)) * np.uint64(10_000 * (1 << 32) + 1)
    return (found >> np.uint64(32)).astype(np.int64)
