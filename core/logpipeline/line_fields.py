"""The values in one line: what JSON, logfmt or an expression's groups say, by the rules of
`spec.table.parse`. Tables read many lines at once (`logpipeline_spark.lines.fields`), with what is
declared here where a value or a line is odd.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from fnmatch import translate
from functools import lru_cache
from typing import Any

from logpipeline import json_text
from logpipeline.line_expressions import compiled
from logpipeline.spec.table import FieldType, LineField, LineSelector, ParseRule
from logpipeline.wire import Batch

Document = dict[str, Any]
# What a rule may select lines by: their namespace, pod, container, host and source.
Names = tuple[str, str, str, str, str]

INT_MAX = 2**63 - 1
FLOAT_MAX = 1.7976931348623157e308
# Beyond it, what is left of a line cannot be written as JSON, and a table does not read the line.
DEPTH_MAX = 253
# Of 64 bits, with a sign or without; others are doubles.
_INTEGERS = range(-(2**63), 2**64)
_BOOLS = {"true": True, "false": False, "True": True, "False": False}
_OPENERS = ("{", " ", "\t")
_FIRST_PAIR = re.compile(r'[^ \t\n\f\r="]+=')
# RE2's white space, by which a table splits lines.
_PAIR = re.compile(
    r'(?:^|(?<=[ \t\n\f\r]))([^ \t\n\f\r="]+)='
    r'(?:"((?:[^"\\]|\\.)*)"(?![^ \t\n\f\r])|([^ \t\n\f\r]*))'
)


def names_of(host: str, batch: Batch | None) -> Names:
    """Return the names of the lines of *host* in *batch*; None is a message of another program."""
    if batch is None:
        return ("", "", "", host, "")
    return (batch.namespace or "", batch.pod or "", batch.container or "", host, batch.source)


@lru_cache(maxsize=4096)
def number_of_rule(names: Names, rules: tuple[ParseRule, ...]) -> int | None:
    """Return the number of the first of *rules* that is for the lines of *names*, if one is."""
    fitting = (number for number, rule in enumerate(rules) if _fits(names, rule.select))
    return next(fitting, None)


def _fits(names: Names, select: LineSelector) -> bool:
    wanted = (select.namespaces, select.pods, select.containers, select.hosts, select.sources)
    return all(
        not globs or any(_glob(glob).match(name) for glob in globs)
        for name, globs in zip(names, wanted, strict=True)
    )


@lru_cache(maxsize=4096)
def _glob(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob))


def document(line: str, rule: ParseRule) -> Document | None:
    """Return the fields of *line*, None if it does not have the rule's format."""
    if rule.format == "json":
        return _object(line) if line.startswith(_OPENERS) else None
    if rule.format == "logfmt":
        return pairs(line) if _FIRST_PAIR.match(line) else None
    match = compiled(str(rule.pattern)).search(line)
    if match is None:
        return None
    # A group without a match cannot be told from an empty one.
    return {name: value for name, value in match.groupdict().items() if value}


def value(document: Document, field: LineField) -> Any:
    """Return the value of *field*, of its type, in *document*; None if there is none that fits. A
    timestamp is returned as it is written.
    """
    found = value_at(document, field.key)
    return None if found is None else _CONVERT[field.type](found)


def value_at(document: Mapping[str, Any], key: str) -> Any:
    """Return the value at *key*, or else below its first part."""
    if key in document:
        return document[key]
    first, _, rest = key.partition(".")
    inner = document.get(first) if rest else None
    return value_at(inner, rest) if isinstance(inner, dict) else None


def remove(document: Document, key: str) -> None:
    """Remove what `value_at` returns, and parents that become empty."""
    if key in document:
        del document[key]
        return
    first, _, rest = key.partition(".")
    inner = document.get(first) if rest else None
    if isinstance(inner, dict):
        remove(inner, rest)
        if not inner:
            del document[first]


def pairs(line: str) -> Document:
    """Return the pairs in a *line* of logfmt; words between them stay in the line only."""
    found = _PAIR.findall(line)
    return {key: _unquoted(quoted) if quoted else plain for key, quoted, plain in found}


def to_int(value: Any) -> int | None:
    """Return *value* as an integer of 64 bits: a whole number, or a text of one."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        value = int(value) if value.is_integer() else None
    elif isinstance(value, str):
        is_short = len(value) <= 20 and value.isascii() and value.lstrip("+-").isdigit()
        value = _parsed(int, value) if is_short else None
    return value if isinstance(value, int) and -INT_MAX - 1 <= value <= INT_MAX else None


def to_float(value: Any) -> float | None:
    """Return *value* as a double: a number, or a text of one."""
    if isinstance(value, str):
        value = _parsed(float, value) if value[-1:].isdecimal() or value[-1:] == "." else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    found = float(value)
    # A text may hold a number beyond this type.
    return found if abs(found) <= FLOAT_MAX else None


def to_bool(value: Any) -> bool | None:
    """Return *value* as a boolean: one, or a text of one."""
    if isinstance(value, bool):
        return value
    return _BOOLS.get(value) if isinstance(value, str) else None


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_CONVERT: dict[FieldType, Callable[[Any], Any]] = {
    "string": _to_text,
    "int": to_int,
    "float": to_float,
    "bool": to_bool,
    "timestamp": lambda value: value,
}


def _object(line: str) -> Document | None:
    try:
        found = _DECODER.decode(line)
        if "\\u" in line:
            # A lone surrogate is no text, which a table does not read.
            _to_text(found).encode()
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and _is_shallow(found) else None


def _is_shallow(document: Document) -> bool:
    """Return whether at most DEPTH_MAX objects and lists lie in one another."""
    level: list[Any] = [document]
    for _ in range(DEPTH_MAX):
        members = (each.values() if isinstance(each, dict) else each for each in level)
        level = [each for inner in members for each in inner if isinstance(each, dict | list)]
        if not level:
            return True
    return False


def _integer(text: str) -> int | float:
    # The length first: converting takes time that grows with the square of it.
    if len(text) <= 20 and (number := int(text)) in _INTEGERS:
        return number
    return json_text.finite(text)


_DECODER = json.JSONDecoder(
    parse_constant=json_text.no_constant, parse_float=json_text.finite, parse_int=_integer
)


def _unquoted(text: str) -> str:
    try:
        found = str(_DECODER.decode(f'"{text}"'))
        found.encode()
        return found
    except ValueError:
        return text.replace('\\"', '"')


def _parsed(kind: type[int | float], text: str) -> int | float | None:
    try:
        # Python accepts `1_000` as a number; nothing else does.
        return None if "_" in text else kind(text)
    except ValueError:
        return None
