"""Writes the reference of the package for programs (docs/api.md) from its docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import logpipeline
from logpipeline.consuming.options import Deliver, OnError

_HEAD = """\
# The package `logpipeline` in Python

Made from the code by `make generate`.

What programs need to read the streams is imported from `logpipeline` itself; `import logpipeline`
alone loads none of it. How to use it is in [consuming.md](consuming.md#from-python), with whole
programs. The arguments are the options of [the command](cli.md#logpipeline-consume), under the
same names. All is typed.
"""
# A function with more arguments is shown without them: they are those of `ReaderArguments`.
_SHOWN_MAX = 5
# Names of types that say less than what they stand for.
_TYPES = {
    name: str(kind).removeprefix("typing.")
    for name, kind in (("Deliver", Deliver), ("OnError", OnError))
}


def reference() -> str:
    """Return the reference as Markdown."""
    found = {name: getattr(logpipeline, name) for name in logpipeline.__all__}
    classes = {name: each for name, each in found.items() if inspect.isclass(each)}
    errors = {name: each for name, each in classes.items() if issubclass(each, Exception)}
    functions = {name: each for name, each in found.items() if name not in classes}
    parts = [_HEAD, "## Functions\n"]
    for name, each in functions.items():
        parts.append(f"### `{name}`\n\n{_code(_call(name, each))}\n{_text(each)}")
    parts.append("## Classes\n")
    parts += [_class(name, each) for name, each in classes.items() if name not in errors]
    parts += ["## Errors\n", *_errors(errors)]
    return "\n".join(parts)


def _class(name: str, found: type) -> str:
    fields = "".join(f"{line}\n" for line in _fields(found))
    parts = [f"### `{name}`\n", _text(found)]
    if fields:
        parts.append(_code(fields))
    for member, value in vars(found).items():
        if member.startswith("_"):
            continue
        if isinstance(value, property | cached_property):
            getter = value.fget if isinstance(value, property) else value.func
            kind = inspect.signature(getter).return_annotation if getter else ""
            parts.append(f"#### `{name}.{member}: {kind}`\n\n{_text(value)}")
        elif inspect.isfunction(value):
            is_async = "async " if inspect.iscoroutinefunction(value) else ""
            shown = f"{is_async}{_call(f'{name}.{member}', value)}".replace("self, ", "")
            parts.append(f"#### `{shown.replace('(self)', '()')}`\n\n{_text(value)}")
    return "\n".join(parts)


def _fields(found: type) -> Iterator[str]:
    """Yield the public fields of a class, with their types and defaults."""
    own = dataclasses.fields(found) if dataclasses.is_dataclass(found) else ()
    defaults = {each.name: each.default for each in own}
    for name, kind in inspect.get_annotations(found).items():
        if name.startswith("_") and kind != "KW_ONLY":
            continue
        default = defaults.get(name, dataclasses.MISSING)
        shown = "" if default is dataclasses.MISSING else f" = {default!r}"
        yield _plain(f"{name}: {kind}{shown}") if kind != "KW_ONLY" else "*"


def _errors(errors: dict[str, type]) -> Iterator[str]:
    yield "| Error | Is a | When |\n| --- | --- | --- |"
    for name, each in errors.items():
        yield f"| `{name}` | `{each.__bases__[0].__name__}` | {_line(each)} |"
    yield ""


def _call(name: str, function: Any) -> str:
    """Return how *function* is called, without its arguments where they are too many."""
    signature = inspect.signature(function)
    if len(signature.parameters) > _SHOWN_MAX:
        return f"{name}(name: str, *, …) -> {signature.return_annotation}"
    return f"{name}{_plain(str(signature))}"


def _plain(text: str) -> str:
    # Annotations are texts, which a signature shows in quotes.
    plain = re.sub(r"(: |-> )'([^']+)'", r"\1\2", text)
    return re.sub(r"\w+", lambda word: _TYPES.get(word[0], word[0]), plain).replace("'", '"')


def _code(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```\n"


def _line(found: Any) -> str:
    return " ".join(_text(found).split())


def _text(found: Any) -> str:
    """Return a docstring as Markdown."""
    text = re.sub(r"``([^`]+)``", r"`\1`", inspect.getdoc(found) or "")
    text = re.sub(r"(?<![\w*`])\*(\w+)\*(?![\w*])", r"`\1`", text)
    text, _, raised = text.partition("\nRaises:\n")
    if raised:
        text += "\nRaises:\n"
        # What is indented further goes on with the line before.
        for line in re.sub(r"\n {8}", " ", raised).splitlines():
            names, _, why = line.strip().partition(": ")
            named = ", ".join(f"`{name}`" for name in names.split(", "))
            text += f"\n- {named}: {why}"
    return f"{text.rstrip()}\n"
