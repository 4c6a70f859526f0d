"""Whether a record that was made of another process's JSON holds what its fields declare.

JSON gives any value for any field, and a dataclass takes it: the mistake then shows far from the
record, as a comparison that fails in a task that nothing expects to end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
_Check = Callable[[Any], bool]


def checked(record: T) -> T:
    """Return *record*, a dataclass or a named tuple.

    Raises:
        TypeError: one of its fields has another type than it declares. A number for a truth value
            is another type, and so is the other way round.
    """
    for name, check in _checks(record):
        if not check(getattr(record, name)):
            found = type(getattr(record, name)).__name__
            raise TypeError(f"{type(record).__name__}.{name} is a {found}")
    return record


def _checks(record: object) -> tuple[tuple[str, _Check], ...]:
    kind: Any = type(record)
    return _fields(kind)


@cache
def _fields(kind: type) -> tuple[tuple[str, _Check], ...]:
    hints = get_type_hints(kind)
    names = [each.name for each in fields(kind)] if is_dataclass(kind) else kind._fields  # type: ignore[attr-defined]  # a named tuple
    return tuple((name, _check_of(hints[name])) for name in names)


@cache
def _check_of(kind: Any) -> _Check:
    if kind is Any:
        return lambda _: True
    if isinstance(kind, NewType):
        return _check_of(kind.__supertype__)
    if kind in (int, NoneType):
        return lambda value: type(value) is kind
    if kind is float:
        return lambda value: type(value) in (int, float)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return lambda value: value in arguments
    if origin in (Union, UnionType):
        choices = [_check_of(each) for each in arguments]
        return lambda value: any(check(value) for check in choices)
    if origin is tuple and arguments[-1] is not ...:
        parts = [_check_of(each) for each in arguments]
        return lambda value: (
            isinstance(value, tuple)
            and len(value) == len(parts)
            and all(check(each) for check, each in zip(parts, value, strict=True))
        )
    if origin in (tuple, list):
        inner = _check_of(arguments[0])
        return lambda value: isinstance(value, origin) and all(map(inner, value))
    if origin in (dict, Mapping):
        key, item = map(_check_of, arguments)
        return lambda value: (
            isinstance(value, Mapping) and all(map(key, value)) and all(map(item, value.values()))
        )
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        return lambda value: isinstance(value, kind) and _is_well(value)
    assert origin is None, f"a field of JSON is no {kind}"
    return lambda value: isinstance(value, kind)


def _is_well(record: object) -> bool:
    return all(check(getattr(record, name)) for name, check in _checks(record))
