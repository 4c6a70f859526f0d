"""The level of lines, by one regular expression over the column: a key of JSON or logfmt, a word in
capitals, in brackets or before a colon, or klog's first letter.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]

# Loggers write the level near the line's head. A search through whole lines costs twice as much,
# and finds words of the message instead.
HEAD_BYTES_MAX = 128
# The members of an object come in any order, and words in their values are no levels.
OBJECT_BYTES_MAX = 4096
OBJECT = b"{"

# Many loggers write the level first. Then lines have few different beginnings of one of these
# lengths, and each of these is searched once, which takes a fifth of the time.
BEGINNING_BYTES = (12, 16, 20, 24)
# Whether they have few is seen in a sample of so many lines.
SAMPLE_ROWS = 64
# Fewer lines than this are all searched.
SAMPLED_ROWS_MIN = 2048
# Beginnings are used if they decide about more than so many lines of the sample,
DECIDED_MIN = SAMPLE_ROWS // 4
# if the sample has at most so many different ones,
DIFFERENT_MAX = SAMPLE_ROWS // 2
# and if so many lines share one, on average.
ROWS_EACH_MIN = 16

_WORDS = (
    "trace|debug|info(?:rmation)?|notice|warn(?:ing)?|err(?:or)?|severe|"
    "fatal|crit(?:ical)?|alert|emerg(?:ency)?|panic|dpanic"
)
# In lower case, or with a first capital.
_SMALL = re.sub(r"(^|[|])([a-z])", lambda at: f"{at[1]}[{at[2].upper()}{at[2]}]", _WORDS)
# The short forms of Serilog and zerolog; in a sentence they mean much else.
_SHORT = "VRB|TRC|DBG|INF|WRN|ERR|FTL|CRT"
_NAME = r"(?i:level|lvl|severity|levelname|log\.level|loglevel)"
# The numbers of pino and bunyan. A number counts only after a key.
_NUMBER = r'[1-6]0(?:[ \t,;}"]|$)'
_IN_OBJECT = rf'"{_NAME}"[ \t]*:[ \t]*"?(?P<value>(?i:{_WORDS})\b|{_NUMBER})'
# RE2 takes twice as long for a pattern that is a little larger than this.
_IN_LINE = "|".join(
    (
        r'\b(?i:level|lvl|severity)"?[ \t]*[:=][ \t]*"?'
        rf"(?P<value>(?:{_SMALL})\b|{_NUMBER})",
        # Some loggers write a time, a thread or a module before it.
        r"\[[ \t]*(?:[0-9:.]+ |[A-Za-z0-9_-]+[:/])?"
        rf"(?P<bracket>{_SMALL}|{_SHORT})(?:[ \t]*\]|[|:,])",
        rf"\b(?P<word>{_WORDS.upper()})\b",
        # The form of compilers and shells: a program or a place first; rustc adds a number.
        rf"(?:^|: )(?P<colon>{_SMALL})(?:\[[A-Z0-9]+\])?:",
        rf"^[0-9][0-9:.TZ+APM-]* (?P<short>{_SHORT}) ",
        r"^(?P<letter>[IWEF])[0-9]{4} ",
    )
)
BINARY = pa.binary()

LEVELS = ("debug", "error", "fatal", "info", "trace", "warn")
NO_LEVEL, UNDECIDED = -1, -2
_BY_START = {
    "tr": "trace",
    "vr": "trace",
    "de": "debug",
    "db": "debug",
    "in": "info",
    "no": "info",
    "wa": "warn",
    "wr": "warn",
    "er": "error",
    "se": "error",
    "fa": "fatal",
    "ft": "fatal",
    "cr": "fatal",
    "al": "fatal",
    "em": "fatal",
    "pa": "fatal",
    "dp": "fatal",
    # klog's letters.
    "i": "info",
    "w": "warn",
    "e": "error",
    "f": "fatal",
    "10": "trace",
    "20": "debug",
    "30": "info",
    "40": "warn",
    "50": "error",
    "60": "fatal",
}


class _Search:
    """Finds *pattern* in the first *bytes_max* bytes: in a column with RE2, in one line with
    Python.
    """

    def __init__(self, pattern: str, *, bytes_max: int) -> None:
        self._slow = re.compile(pattern.encode(), re.ASCII)
        # One group is found a quarter faster than several: few texts match, and each is searched
        # again.
        self._fast = "(?P<all>" + re.sub(r"\?P<[a-z]+>", "?:", pattern) + ")"
        self._bytes_max = bytes_max

    def line(self, line: bytes) -> str | None:
        """Return the level of one *line*."""
        return _level_of(self._slow.search(line[: self._bytes_max]))

    def column(self, lines: pa.Array) -> Numbers:
        """Return the number of the level of each of *lines*, or NO_LEVEL."""
        size = self._beginning(lines) if len(lines) >= SAMPLED_ROWS_MIN else None
        if size is None:
            return self._searched(lines)
        texts = pc.binary_slice(lines, 0, size).dictionary_encode()
        if len(texts.dictionary) * ROWS_EACH_MIN > len(lines):
            return self._searched(lines)
        found = np.array([self._decided(text, size) for text in texts.dictionary.to_pylist()])
        numbers: Numbers = found[texts.indices.to_numpy()]
        rest = np.flatnonzero(numbers == UNDECIDED)
        if len(rest):
            numbers[rest] = self._searched(lines.take(pa.array(rest)))
        return numbers

    def _beginning(self, lines: pa.Array) -> int | None:
        """Return the length of beginnings that decides about the most lines, if there is one that
        decides about many.
        """
        rows = np.linspace(0, len(lines) - 1, SAMPLE_ROWS, dtype=np.int64)
        texts = pc.binary_slice(lines.take(pa.array(rows)), 0, BEGINNING_BYTES[-1]).to_pylist()
        best, most = None, DECIDED_MIN
        for size in BEGINNING_BYTES:
            counts = Counter(text[:size] for text in texts)
            if len(counts) > DIFFERENT_MAX:
                break
            decided = [n for text, n in counts.items() if self._decided(text, size) != UNDECIDED]
            if sum(decided) > most:
                best, most = size, sum(decided)
        return best

    def _decided(self, text: bytes, size: int) -> int:
        """Return the number of the level of all lines whose first *size* bytes are *text*, or of
        the line *text*, if that is shorter.
        """
        found = self._slow.search(text)
        # Of a match that ends with the text, the rest of the line could make another.
        is_sure = found is not None and found.end() < size and _is_closed(found)
        return _number(_level_of(found)) if is_sure else UNDECIDED

    def _searched(self, lines: pa.Array) -> Numbers:
        heads = pc.binary_slice(lines, 0, self._bytes_max).view(pa.string())
        texts = pc.extract_regex(heads, self._fast).field("all").dictionary_encode()
        found = texts.dictionary.cast(BINARY).to_pylist()
        number_of = [_number(_level_of(self._slow.search(text))) for text in found]
        # The last one is that of lines without a match.
        indices = texts.indices.fill_null(-1).to_numpy()
        numbers: Numbers = np.array([*number_of, NO_LEVEL], np.int64)[indices]
        return numbers


def _is_closed(found: re.Match[bytes]) -> bool:
    """Return whether what follows *found* cannot make another match. Only one that begins with a
    bracket could go on over the end of *found*.
    """
    bracket = found.string.find(b"[", 0, found.end())
    return bracket < 0 or (bracket == found.start() and found[0].endswith(b"]"))


def _level_of(found: re.Match[bytes] | None) -> str | None:
    if found is None or found.lastgroup is None:
        return None
    return _BY_START[found[found.lastgroup][:2].decode().lower()]


def _number(level: str | None) -> int:
    return NO_LEVEL if level is None else LEVELS.index(level)


_OBJECTS = _Search(_IN_OBJECT, bytes_max=OBJECT_BYTES_MAX)
_LINES = _Search(_IN_LINE, bytes_max=HEAD_BYTES_MAX)


def levels(lines: pa.Array) -> pa.DictionaryArray:
    """Return the level of each of *lines* (binary), null if none is found. The dictionary holds
    those that are found.
    """
    are_objects = pc.starts_with(lines, OBJECT).to_numpy(zero_copy_only=False)
    numbers = np.full(len(lines), NO_LEVEL)
    for search, are_its in ((_OBJECTS, are_objects), (_LINES, ~are_objects)):
        if are_its.all():
            numbers = search.column(lines)
        elif are_its.any():
            numbers[are_its] = search.column(lines.filter(pa.array(are_its)))
    is_used = np.bincount(numbers + 1, minlength=len(LEVELS) + 1)[1:] > 0
    places = np.cumsum(is_used, dtype=np.int32) - 1
    names = [name for name, used in zip(LEVELS, is_used, strict=True) if used]
    return pa.DictionaryArray.from_arrays(
        pa.array(places[numbers], mask=numbers == NO_LEVEL), pa.array(names, pa.string())
    )


def level_of(line: bytes) -> str | None:
    """Return the level of one *line*: the plain form of `levels`."""
    return (_OBJECTS if line.startswith(OBJECT) else _LINES).line(line)
