"""Reads values into the dataclasses that declare the resource, and collects every mistake."""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
from functools import lru_cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from logpipeline.quantity import QuantityError, parse_bytes, parse_duration
from logpipeline.spec.fields import Rule, rule_of, yaml_name
from logpipeline.spec.mistakes import Mistake

_KINDS = {
    str: "a text",
    int: "an integer",
    bool: "true or false",
    dict: "a mapping",
    list: "a list",
}


class Reader:
    """Reads, and keeps the mistakes it found."""

    def __init__(self) -> None:
        self.mistakes: list[Mistake] = []

    def object(self, kind: type[Any], value: Any, path: str) -> Any:
        """Return *value* as the dataclass *kind*; None where it has mistakes."""
        if not isinstance(value, dict):
            self._wrong(path, f"expected a mapping, found {_shown(value)}")
            return None
        before = len(self.mistakes)
        fields = {yaml_name(field): field for field in dataclasses.fields(kind)}
        for key in value:
            if key not in fields:
                self._unknown(f"{path}.{key}", str(key), list(fields))
        hints = _hints(kind)  # type: ignore[arg-type]  # a class is hashable
        read = {
            field.name: self.value(hints[field.name], rule_of(field), value[name], f"{path}.{name}")
            for name, field in fields.items()
            if value.get(name) is not None
        }
        for name, field in fields.items():
            required = (
                field.default is dataclasses.MISSING
                and field.default_factory is dataclasses.MISSING
            )
            if required and value.get(name) is None:
                self._wrong(f"{path}.{name}", f"is missing: {rule_of(field).description}")
        return kind(**read) if len(self.mistakes) == before else None

    def value(self, hint: Any, rule: Rule, value: Any, path: str) -> Any:
        """Return *value* as the type *hint*, within the limits of *rule*."""
        origin = get_origin(hint)
        if origin in (Union, types.UnionType):
            inner = next(part for part in get_args(hint) if part is not type(None))
            return self.value(inner, rule, value, path)
        if hint is Any:
            return value
        if origin is tuple:
            return self._items(get_args(hint)[0], rule, value, path)
        if origin is dict:
            return self._mapping(value, path)
        if origin is Literal:
            return self._one_of(get_args(hint), value, path)
        if dataclasses.is_dataclass(hint):
            return self.object(hint, value, path)  # type: ignore[arg-type]
        return self._scalar(hint, rule, value, path)

    def _items(self, hint: Any, rule: Rule, value: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            self._wrong(path, f"expected a list, found {_shown(value)}")
            return ()
        if rule.max_items is not None and len(value) > rule.max_items:
            self._wrong(path, f"{len(value)} entries, {rule.max_items} at most")
        return tuple(
            self.value(hint, rule, item, f"{path}[{index}]") for index, item in enumerate(value)
        )

    def _mapping(self, value: Any, path: str) -> dict[str, str]:
        if not isinstance(value, dict):
            self._wrong(path, f"expected a mapping of texts, found {_shown(value)}")
            return {}
        for key, item in value.items():
            if not isinstance(key, str) or not isinstance(item, str):
                self._wrong(f"{path}.{key}", f"expected a text, found {_shown(item)}; quote it")
        return dict(value)

    def _one_of(self, choices: tuple[Any, ...], value: Any, path: str) -> Any:
        if value not in choices or isinstance(value, bool):
            guess = difflib.get_close_matches(str(value), [str(choice) for choice in choices], 1)
            hint = f"; did you mean {guess[0]}?" if guess else ""
            self._wrong(
                path, f"expected one of {', '.join(map(str, choices))}, found {_shown(value)}{hint}"
            )
        return value

    def _scalar(self, hint: Any, rule: Rule, value: Any, path: str) -> Any:
        if rule.unit is not None:
            try:
                value = parse_bytes(value) if rule.unit == "bytes" else parse_duration(value)
            except QuantityError as error:
                self._wrong(path, str(error))
                return 0
        elif not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
            self._wrong(path, f"expected {_KINDS[hint]}, found {_shown(value)}")
            return value
        self._check_limits(rule, value, path)
        return value

    def _check_limits(self, rule: Rule, value: Any, path: str) -> None:
        if isinstance(value, str):
            if rule.min_length is not None and len(value) < rule.min_length:
                self._wrong(path, "must not be empty")
            if rule.max_length is not None and len(value) > rule.max_length:
                self._wrong(path, f"{len(value)} characters, {rule.max_length} at most")
            if rule.pattern is not None and not re.search(rule.pattern, value):
                self._wrong(path, f"{_shown(value)} is not of the form {rule.pattern}")
        elif isinstance(value, int):
            if rule.minimum is not None and value < rule.minimum:
                self._wrong(path, f"{value} is less than {rule.minimum}")
            if rule.maximum is not None and value > rule.maximum:
                self._wrong(path, f"{value} is more than {rule.maximum}")

    def _unknown(self, path: str, name: str, known: list[str]) -> None:
        guess = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {guess[0]}?" if guess else f"; known are {', '.join(sorted(known))}"
        self._wrong(path, f"unknown field{hint}")

    def _wrong(self, path: str, message: str) -> None:
        self.mistakes.append(Mistake(path, message))


@lru_cache(maxsize=256)
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return "nothing" if value is None else repr(value)[:80].replace("'", '"')
