"""Times of CRI lines, a column at once. A program writes many lines in a minute, so calendar rules
are asked once for each minute, and the rest is arithmetic on digits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from logpipeline import cri

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Facts = npt.NDArray[np.bool_]

# RFC 3339 with one to nine digits behind the second, and "Z" or a zone: what runtimes write.
WIDTHS = range(len("2026-11-21T10:00:00.1Z"), len("2026-11-21T10:00:00.123456789+01:00") + 1)

_MINUTE = len("2026-11-21T10:00")
_DIGITS = [0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18]
_SIGNS = {4: b"-", 7: b"-", 10: b"T", 13: b":", 16: b":", 19: b"."}
_ZONE = len("+01:00")


def parse(heads: Bytes, width: int) -> tuple[Numbers, Facts]:
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
    # Second 60 and what is no date are left to the careful way, and so is 1970 itself, which is
    # also how "no time" is written.
    is_good &= (seconds < 60) & (minutes != _NO_MINUTE) & (times != 0)
    return times, is_good


_NO_MINUTE = -(1 << 40)


def _minutes(heads: Bytes, zone_at: int, width: int, is_good: Facts) -> Numbers:
    """Return the seconds since 1970 of each row's minute."""
    columns = [*range(_MINUTE), *range(zone_at, width)]
    named: Any = np.ascontiguousarray(heads[:, columns]).view(f"V{len(columns)}").ravel()
    # Neighbours mostly share their minute: only where it changes somebody looks.
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
    # A second that is not zero tells a minute of 1970 from no time at all.
    found = cri.time_ns(key[:_MINUTE] + b":01.0" + key[_MINUTE:])
    return found // 1_000_000_000 - 1 if found else _NO_MINUTE
