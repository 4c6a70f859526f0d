"""What lines say, as dictionaries: JSON, logfmt, or the named groups of an expression.

Lines are read many at a time. orjson reads a list of them in one call: no reader of
Arrow's keeps what is not declared, or goes on behind a bad line.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from logpipeline.spec.columns import ParseRule

Document = dict[str, Any]
# Dictionaries of so many lines stay in the processor's cache: a trial with four times as many took
# a quarter longer.
LINES_AT_ONCE = 256
# Stands between two lines, so that no line can pass for two, nor two for one: nobody who writes a
# line knows it.
_BETWEEN = secrets.randbits(62)
_SEPARATOR = f",{_BETWEEN},"
_OPENERS = pa.array([b"{", b" ", b"\t"])

# A pair of logfmt. Without backslashes: in a plain value they stand for themselves, and in JSON
# they do not.
_PAIR = r'([^\s="\\]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s"\\]*))(?:\s+|$)'
_PAIRS = r'^(?:[^\s="\\]+=(?:"(?:[^"\\]|\\.)*"|[^\s"\\]*)(?:\s+|$))+$'
_MEMBER = r',"\1":"\2\3"'
# One of these is looked at by itself.
_ODD_PAIR = re.compile(r'(?:^|(?<=\s))([^\s="]+)=(?:"((?:[^"\\]|\\.)*)"(?!\S)|(\S*))')


_NEWLINE = orjson.Fragment(b"\n")


def documents(lines: pa.Array, rule: ParseRule) -> list[Document | None]:
    """Return what each of *lines* (text) says, and None for those that are not of the rule's
    format. Meant for LINES_AT_ONCE of them.
    """
    if rule.format == "json":
        starts = pc.binary_slice(lines.cast(pa.binary()), 0, 1)
        return _chosen(lines, pc.is_in(starts, _OPENERS), _of_json)
    if rule.format == "logfmt":
        return _chosen(lines, pc.match_substring_regex(lines, '^[^\\s="]+='), _of_logfmt)
    assert rule.pattern is not None
    return _of_groups(lines, rule.pattern)


def texts(documents: list[Document]) -> list[str | None]:
    """Return what is left in *documents* as JSON, None where nothing is.

    Raises:
        TypeError: one is too deep; see `is_shallow`.
    """
    # The text of an object holds no newline, so that one separates two of them.
    parts: list[Any] = [_NEWLINE] * (2 * len(documents))
    parts[0::2] = documents
    found = orjson.dumps(parts)[1:-1].decode().split(",\n,")
    found[-1] = found[-1].removesuffix(",\n")
    return [None if text == "{}" else text for text in found]


def text_of(value: Any) -> str:
    """Return *value* as JSON.

    Raises:
        TypeError: it is too deep.
    """
    return orjson.dumps(value).decode()


def is_shallow(document: Document) -> bool:
    """Return whether *document* can be written: orjson reads 1,024 levels and writes 254."""
    try:
        text_of([document])
    except TypeError:
        return False
    return True


def _chosen(
    lines: pa.Array, is_candidate: pa.Array, read: Callable[[pa.Array], list[Document | None]]
) -> list[Document | None]:
    """Return what *read* says of candidates, and None for all others."""
    if pc.all(is_candidate).as_py():
        return read(lines)
    found = iter(read(lines.filter(is_candidate)))
    return [next(found) if is_one else None for is_one in is_candidate.to_pylist()]


def _of_json(lines: pa.Array) -> list[Document | None]:
    return _objects(lines, lines, _object)


def _of_logfmt(lines: pa.Array) -> list[Document | None]:
    is_plain = pc.match_substring_regex(lines, _PAIRS)
    members = pc.replace_substring_regex(pc.if_else(is_plain, lines, ""), _PAIR, _MEMBER)
    objects = pc.binary_join_element_wise("{", pc.utf8_ltrim(members, ","), "}", "")
    return _objects(pc.if_else(is_plain, objects, ""), lines, _pairs)


def _of_groups(lines: pa.Array, pattern: str) -> list[Document | None]:
    found = pc.extract_regex(lines, pattern)
    names = [field.name for field in found.type]
    columns = [found.field(name).to_pylist() for name in names]
    # A group that took no part cannot be told from one that is empty.
    return [
        {name: value for name, value in zip(names, row, strict=True) if value} if is_found else None
        for is_found, *row in zip(found.is_valid().to_pylist(), *columns, strict=True)
    ]


def _objects(
    objects: pa.Array, lines: pa.Array, careful: Callable[[str], Document | None]
) -> list[Document | None]:
    """Return *objects* (JSON), which stand for *lines*, read at once; where one of them is none,
    what *careful* says of each line.
    """
    if not len(objects):
        return []
    whole = pa.ListArray.from_arrays(pa.array([0, len(objects)], pa.int32()), objects)
    try:
        found = orjson.loads(f"[{pc.binary_join(whole, _SEPARATOR)[0].as_py()}]")
    except orjson.JSONDecodeError:
        found = []
    rows: list[Document | None] = found[0::2]
    # A line of two values would else pass where it is the last one.
    count = len(objects)
    is_aligned = len(found) == 2 * count - 1 and found[1::2].count(_BETWEEN) == count - 1
    if is_aligned and set(map(type, rows)) == {dict}:
        return rows
    return [careful(line) for line in lines.to_pylist()]


def _object(line: str) -> Document | None:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def _pairs(line: str) -> Document:
    """Return the pairs of *line*; words between them are left in the line alone."""
    found = _ODD_PAIR.findall(line)
    return {key: _unquoted(quoted) if quoted else plain for key, quoted, plain in found}


def _unquoted(text: str) -> str:
    try:
        return str(orjson.loads(f'"{text}"'))
    except orjson.JSONDecodeError:
        return text.replace('\\"', '"')
