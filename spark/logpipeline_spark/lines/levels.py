"""The level of lines, by one regular expression over the column: a key of JSON or logfmt, a word in
capitals, in brackets or before a colon, or klog's first letter.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

# Loggers write the level near the line's head. A search through whole lines costs twice as much,
# and finds words of the message instead.
HEAD_BYTES_MAX = 128
# The members of an object come in any order, and words in their values are no levels.
OBJECT_BYTES_MAX = 4096
OBJECT = b"{"

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
    """Finds *pattern*: in a column with RE2, in one line with Python."""

    def __init__(self, pattern: str) -> None:
        self._slow = re.compile(pattern.encode(), re.ASCII)
        # One group is found a quarter faster than several: few texts match, and each is searched
        # again.
        self._fast = "(?P<all>" + re.sub(r"\?P<[a-z]+>", "?:", pattern) + ")"

    def column(self, lines: pa.Array, size: int) -> pa.DictionaryArray:
        """Return the level of each of *lines*, by its first *size* bytes."""
        heads = pc.binary_slice(lines, 0, size).view(pa.string())
        texts = pc.extract_regex(heads, self._fast).field("all").dictionary_encode()
        found = texts.dictionary.cast(BINARY).to_pylist()
        names = [self.line(text) if text else None for text in found]
        return pa.DictionaryArray.from_arrays(texts.indices, pa.array(names, pa.string()))

    def line(self, text: bytes) -> str | None:
        """Return the level in *text*."""
        found = self._slow.search(text)
        if found is None or found.lastgroup is None:
            return None
        return _BY_START[found[found.lastgroup][:2].decode().lower()]


_OBJECTS, _LINES = _Search(_IN_OBJECT), _Search(_IN_LINE)


def levels(lines: pa.Array) -> pa.DictionaryArray:
    """Return the level of each of *lines* (binary), null if none is found."""
    are_objects = pc.starts_with(lines, OBJECT)
    if not pc.any(are_objects).as_py():
        return _unified(_LINES.column(lines, HEAD_BYTES_MAX))
    if pc.all(are_objects).as_py():
        return _unified(_OBJECTS.column(lines, OBJECT_BYTES_MAX))
    objects = _OBJECTS.column(pc.if_else(are_objects, lines, b""), OBJECT_BYTES_MAX)
    others = _LINES.column(pc.if_else(are_objects, b"", lines), HEAD_BYTES_MAX)
    return _unified(pc.coalesce(objects.cast(pa.string()), others.cast(pa.string())))


def _unified(found: pa.Array) -> pa.DictionaryArray:
    """Return *found* with each level once in its dictionary, and without null there."""
    texts = found.cast(pa.string()).dictionary_encode()
    order = pc.sort_indices(texts.dictionary)
    ranks = pc.sort_indices(order).cast(pa.int32())
    return pa.DictionaryArray.from_arrays(ranks.take(texts.indices), texts.dictionary.take(order))


def level_of(line: bytes) -> str | None:
    """Return the level of one *line*: the plain form of `levels`."""
    if line.startswith(OBJECT):
        return _OBJECTS.line(line[:OBJECT_BYTES_MAX])
    return _LINES.line(line[:HEAD_BYTES_MAX])
