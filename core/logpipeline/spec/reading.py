"""Reads values into the dataclasses that declare the resource, and collects every mistake."""

from __future__ import annotations

import dataclasses
import difflib
import types
from collections.abc import Callable, Hashable, Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from logpipeline.quantity import (
    QuantityError,
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration,
)
from logpipeline.spec.fields import Rule, is_required, matches, rule_of, yaml_name
from logpipeline.spec.mistakes import Mistake, below, did_you_mean, is_called, shown, unknown

_KINDS = {str: "a text", int: "an integer", bool: "true or false"}
# Stands for a value with mistakes, so that its neighbours can still be checked.
_BAD: Final = object()

Check = Callable[[Any, str], Iterator[Mistake]]


class Reader:
    """Reads, and keeps the mistakes it found; *check* tells those between an object's fields."""

    def __init__(self, check: Check) -> None:
        self.mistakes: list[Mistake] = []
        self._check = check

    def object(self, kind: type[Any], value: Any, path: str) -> Any:
        """Return *value* as the dataclass *kind*; fields with mistakes are at their defaults.

        None where a required one is missing.
        """
        if not isinstance(value, dict):
            self._wrong(path, f"expected a mapping, found {shown(value)}")
            return None
        before = len(self.mistakes)
        fields = {yaml_name(field): field for field in dataclasses.fields(kind)}
        formers = {rule_of(field).former: name for name, field in fields.items()}
        formers.pop(None, None)
        for key in value:
            if key in formers:
                self._wrong(below(path, key), is_called(formers[key]))
            elif key not in fields:
                self._wrong(below(path, key), unknown(key, fields))
        hints = _hints(kind)  # type: ignore[arg-type]  # a class has a hash
        read: dict[str, Any] = {}
        for name, field in fields.items():
            if value.get(name) is not None:
                place = below(path, name)
                item = self._value(hints[field.name], rule_of(field), value[name], place)
                if item is not _BAD:
                    read[field.name] = item
            elif is_required(field):
                self._wrong(below(path, name), f"is missing: {rule_of(field).description}")
        if any(is_required(field) and field.name not in read for field in fields.values()):
            return None
        result = kind(**read)
        if len(self.mistakes) == before:
            self.mistakes.extend(self._check(result, path))
        return result

    def _value(self, hint: Any, rule: Rule, value: Any, path: str) -> Any:
        """Return *value* as the type *hint*, within the limits of *rule*; `_BAD` if it is not."""
        before = len(self.mistakes)
        read = self._read(hint, rule, value, path)
        is_object = dataclasses.is_dataclass(read) and not isinstance(read, type)
        return read if is_object or len(self.mistakes) == before else _BAD

    def _read(self, hint: Any, rule: Rule, value: Any, path: str) -> Any:
        origin = get_origin(hint)
        if origin in (Union, types.UnionType):
            kinds = [part for part in get_args(hint) if part is not type(None)]
            if len(kinds) > 1:
                return self._either(kinds, value, path)
            return self._read(kinds[0], rule, value, path)
        if origin is tuple:
            return self._items(get_args(hint)[0], rule, value, path)
        if origin is dict:
            return self._mapping(get_args(hint)[1], value, path)
        if origin is Literal:
            return self._one_of(get_args(hint), value, path)
        if dataclasses.is_dataclass(hint):
            return self.object(hint, value, path)  # type: ignore[arg-type]
        return self._scalar(hint, rule, value, path)

    def _items(self, hint: Any, rule: Rule, value: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            self._wrong(path, f"expected a list, found {shown(value)}")
            return ()
        if rule.max_items is not None and len(value) > rule.max_items:
            # They are not read: who writes so many means something else.
            self._wrong(path, f"expected at most {rule.max_items} entries, found {len(value)}")
            return ()
        if rule.min_items is not None and len(value) < rule.min_items:
            self._wrong(path, f"expected at least {rule.min_items} entry, found {len(value)}")
        if rule.unique_by is not None:
            self._check_unique(rule.unique_by, value, path)
        places = [f"{path}[{index}]" for index in range(len(value))]
        items = [self._value(hint, rule, *pair) for pair in zip(value, places, strict=True)]
        return tuple(item for item in items if item is not _BAD)

    def _check_unique(self, name: str, value: list[Any], path: str) -> None:
        seen: list[Any] = []
        for index, item in enumerate(value):
            key = item if not name else item.get(name) if isinstance(item, dict) else None
            if key is not None and key in seen:
                place = f"{path}[{index}]" + (f".{name}" if name else "")
                self._wrong(place, f"{shown(key)} is used more than once; names are unique")
            seen.append(key)

    def _mapping(self, hint: Any, value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._wrong(path, f"expected a mapping, found {shown(value)}")
            return {}
        for key, item in value.items():
            if not isinstance(key, str):
                self._wrong(below(path, key), f"expected a text as key, found {shown(key)}")
            elif hint is str and not isinstance(item, str):
                self._wrong(below(path, key), f"expected a text, found {shown(item)}; quote it")
        return dict(value)

    def _either(self, kinds: list[Any], value: Any, path: str) -> Any:
        if not isinstance(value, tuple(kinds)) or isinstance(value, bool):
            names = " or ".join(_KINDS[kind] for kind in kinds)
            self._wrong(path, f"expected {names}, found {shown(value)}")
        return value

    def _one_of(self, choices: tuple[Any, ...], value: Any, path: str) -> Any:
        if type(value) is not type(choices[0]) or value not in choices:
            close = difflib.get_close_matches(str(value)[:80], map(str, choices), 1)
            known = ", ".join(map(str, choices))
            hint = f"; {did_you_mean(close)}" if close else ""
            self._wrong(path, f"expected one of {known}, found {shown(value)}{hint}")
        return value

    def _scalar(self, hint: Any, rule: Rule, value: Any, path: str) -> Any:
        if rule.unit is not None:
            try:
                value = parse_bytes(value) if rule.unit == "bytes" else parse_duration(value)
            except QuantityError as error:
                self._wrong(path, str(error))
                return value
        elif not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
            self._wrong(path, f"expected {_KINDS[hint]}, found {shown(value)}")
            return value
        if isinstance(value, str):
            self._check_text(rule, value, path)
        else:
            self._check_size(rule, value, path)
        return value

    def _check_size(self, rule: Rule, value: int, path: str) -> None:
        show = {"bytes": format_bytes, "duration": format_duration}.get(rule.unit or "", str)
        if rule.minimum is not None and value < rule.minimum:
            self._wrong(path, f"expected at least {show(rule.minimum)}, found {show(value)}")
        if rule.maximum is not None and value > rule.maximum:
            self._wrong(path, f"expected at most {show(rule.maximum)}, found {show(value)}")

    def _check_text(self, rule: Rule, value: str, path: str) -> None:
        if rule.min_length is not None and len(value) < rule.min_length:
            self._wrong(path, "must not be empty")
        elif rule.max_length is not None and len(value) > rule.max_length:
            self._wrong(path, f"expected at most {rule.max_length} characters, found {len(value)}")
        elif rule.pattern is not None and not matches(rule.pattern, value):
            wanted = f"something like {rule.example}" if rule.example else rule.pattern
            self._wrong(path, f"expected {wanted}, found {shown(value)}")
        elif rule.is_time and not _is_time(value):
            self._wrong(path, f"no such time: {shown(value)}")

    def _wrong(self, path: str, message: str) -> None:
        self.mistakes.append(Mistake(path, message))


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=256)
def _hints(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind)
