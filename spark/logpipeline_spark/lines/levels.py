"""How grave a line is, by one regular expression over the column: a key of JSON or logfmt, a word
in capitals or brackets, or klog's first letter.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

# Loggers write the level near the line's head; a search through whole lines costs twice as much,
# and finds words of the message instead.
HEAD_BYTES_MAX = 128

_WORDS = (
    "trace|debug|info(?:rmation)?|notice|warn(?:ing)?|err(?:or)?|severe|"
    "fatal|crit(?:ical)?|alert|emerg(?:ency)?|panic|dpanic"
)
_PATTERN = (
    r'(?i:\b(?:level|lvl|severity)"?[ \t]*[:=][ \t]*"?|\[)(?P<key>(?i:' + _WORDS + r")|[1-6]0)\b"
    r"|\b(?P<word>" + _WORDS.upper() + r")\b"
    r"|^(?P<letter>[IWEF])[0-9]{4} "
)
_SLOW = re.compile(_PATTERN.encode(), re.ASCII)
_FAST = "(?P<all>" + re.sub(r"\?P<[a-z]+>", "?:", _PATTERN) + ")"
BINARY = pa.binary()

_BY_START = {
    "tr": "trace",
    "de": "debug",
    "in": "info",
    "no": "info",
    "wa": "warn",
    "er": "error",
    "se": "error",
    "fa": "fatal",
    "cr": "fatal",
    "al": "fatal",
    "em": "fatal",
    "pa": "fatal",
    "dp": "fatal",
    # klog's letters, and the numbers that pino and bunyan write.
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


def levels(lines: pa.Array) -> pa.DictionaryArray:
    """Return the level of each of *lines* (binary), null where none is found."""
    heads = pc.binary_slice(lines, 0, HEAD_BYTES_MAX).view(pa.string())
    # One group is found a quarter faster than three: few texts match, and each is looked at again.
    texts = pc.extract_regex(heads, _FAST).field("all").dictionary_encode()
    names = [level_of(text) if text else None for text in texts.dictionary.cast(BINARY).to_pylist()]
    unique = sorted({name for name in names if name})
    codes = pa.array([unique.index(name) if name else None for name in names], pa.int32())
    return pa.DictionaryArray.from_arrays(codes.take(texts.indices), pa.array(unique, pa.string()))


def level_of(line: bytes) -> str | None:
    """Return the level of one *line*: the plain words of what `levels` does to a column."""
    found = _SLOW.search(line[:HEAD_BYTES_MAX])
    if found is None:
        return None
    return _BY_START[(found["key"] or found["word"] or found["letter"])[:2].decode().lower()]
