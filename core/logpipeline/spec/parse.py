"""From a file or a dictionary to a LogPipeline, and back."""

from __future__ import annotations

import dataclasses
import difflib
import glob
import types
from collections.abc import Callable, Hashable, Iterator
from dataclasses import fields, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from logpipeline.quantity import (
    QuantityError,
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration,
)
from logpipeline.spec.api import API_VERSION, KIND
from logpipeline.spec.changes import check_change
from logpipeline.spec.components import FilePatterns, LocalShipper
from logpipeline.spec.declaration import (
    Rule,
    default_of,
    is_required,
    matches,
    rule_of,
    yaml_name,
)
from logpipeline.spec.mistakes import (
    Mistake,
    SpecError,
    below,
    did_you_mean,
    shown,
    unknown,
)
from logpipeline.spec.model import (
    NAME_CHARS_MAX,
    NAME_PATTERN,
    NAMESPACE_CHARS_MAX,
    LogPipeline,
    LogPipelineSpec,
)
from logpipeline.spec.rules import check_object, check_spec

_KINDS = {str: "a text", int: "an integer", bool: "true or false"}
# Stands for a value with mistakes, so that its neighbours can still be checked.
_BAD: Final = object()

Check = Callable[[Any, str], Iterator[Mistake]]

DATA_VARIABLE = "${DATA}"

Expand = Callable[[str], str]

_TOP = ("apiVersion", "kind", "metadata", "spec", "status")
_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


class Reader:
    """Reads, and keeps the mistakes it found; *check* finds those between an object's fields."""

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
        gone = [former for field in fields.values() if (former := rule_of(field).former)]
        formers = {former.name: former for former in gone}
        for key in value:
            if key in formers:
                if value[key] not in (None, formers[key].default):
                    self._wrong(below(path, key), formers[key].message)
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
            # They are not read: so many are a mistake.
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


def expand_local(pipeline: LogPipeline, data: Path) -> LogPipeline:
    """Return *pipeline* with ``${DATA}`` and ``~`` replaced where a path in its local part, or its
    table's, begins with them.
    """
    local = pipeline.spec.local
    folders = str(data.absolute()), str(Path.home())
    # A folder's own name may hold what means something in a glob.
    escaped = tuple(map(glob.escape, folders))

    def path(text: str) -> str:
        return _replaced(text, *folders)

    def pattern(text: str) -> str:
        return _replaced(text, *escaped)

    given = {field.name: getattr(local.nats, field.name) for field in fields(local.nats)}
    paths = {name: path(it) for name, it in given.items() if isinstance(it, str)}
    expanded = replace(
        local,
        nats=replace(local.nats, **paths),  # type: ignore[arg-type]  # names of texts only
        shippers=tuple(_shipper(shipper, path, pattern) for shipper in local.shippers),
    )
    table = pipeline.spec.table
    table = replace(table, path=table.path and path(table.path))
    return replace(pipeline, spec=replace(pipeline.spec, local=expanded, table=table))


def _shipper(shipper: LocalShipper, path: Expand, pattern: Expand) -> LocalShipper:
    return replace(
        shipper,
        pods=shipper.pods and path(shipper.pods),
        hosts_below=shipper.hosts_below and path(shipper.hosts_below),
        files=tuple(
            FilePatterns(
                include=tuple(map(pattern, patterns.include)),
                exclude=tuple(map(pattern, patterns.exclude)),
                ack=patterns.ack,
            )
            for patterns in shipper.files
        ),
    )


def _replaced(text: str, data: str, home: str) -> str:
    for start, folder in ((DATA_VARIABLE, data), ("~", home)):
        if text.startswith(f"{start}/"):
            return folder + text.removeprefix(start)
    return text


def load(path: Path) -> LogPipeline:
    """Return the one LogPipeline in the YAML file *path*.

    Raises:
        SpecError: it has mistakes; the error holds all of them.
        OSError: it cannot be read.
    """
    try:
        # A program that names server and stream reads without YAML, which takes 3 MB.
        from logpipeline.spec.documents import read_document
    except ModuleNotFoundError as error:
        what = f"needs {error.name}: pip install pyyaml, or name stream and server instead"
        raise SpecError((Mistake("", what),), file=path) from error
    try:
        return parse(read_document(path))
    except SpecError as error:
        raise SpecError(error.mistakes, file=path) from error.__cause__


def parse(resource: Any) -> LogPipeline:
    """Return the LogPipeline that *resource* is.

    Raises:
        SpecError: it has mistakes; the error holds all of them.
    """
    if mistakes := _strangers(resource):
        raise SpecError(tuple(mistakes))
    metadata = {} if resource.get("metadata") is None else resource["metadata"]
    reader = Reader(check_object)
    reader.mistakes.extend(
        Mistake(below("", key), unknown(key, _TOP)) for key in resource if key not in _TOP
    )
    reader.mistakes.extend(_metadata_mistakes(metadata))
    given = {} if resource.get("spec") is None else resource["spec"]
    spec = reader.object(LogPipelineSpec, given, "spec")
    if isinstance(spec, LogPipelineSpec):
        reader.mistakes.extend(check_spec(spec, tuple(reader.mistakes)))
    if reader.mistakes:
        raise SpecError(tuple(reader.mistakes))
    return LogPipeline(
        name=metadata["name"],
        namespace=metadata.get("namespace") or "default",
        uid=metadata.get("uid") or "",
        generation=metadata.get("generation") or 0,
        annotations=dict(metadata.get("annotations") or {}),
        spec=spec,
    )


def dump(pipeline: LogPipeline) -> dict[str, Any]:
    """Return *pipeline* as a resource, without what is at its default; `parse` reads it back."""
    optional = {
        "uid": pipeline.uid,
        "generation": pipeline.generation,
        "annotations": dict(pipeline.annotations),
    }
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": pipeline.name, "namespace": pipeline.namespace}
        | {name: value for name, value in optional.items() if value},
        "spec": _dump(pipeline.spec),
    }


def check_update(old: LogPipeline, new: LogPipeline) -> list[Mistake]:
    """Return the changes from *old* to *new* that are refused."""
    return list(check_change(old.spec, new.spec))


def plain(item: Any, rule: Rule) -> Any:
    """Return *item*, declared by *rule*, as it stands in YAML."""
    if dataclasses.is_dataclass(item):
        return _dump(item)
    if isinstance(item, tuple):
        return [plain(part, rule) for part in item]
    if rule.unit is not None and isinstance(item, int):
        return format_bytes(item) if rule.unit == "bytes" else format_duration(item)
    return item


def _dump(value: Any) -> dict[str, Any]:
    result = {}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if is_required(field) or item != default_of(field):
            result[yaml_name(field)] = plain(item, rule_of(field))
    return result


def _strangers(resource: Any) -> list[Mistake]:
    """Return why *resource* is not a LogPipeline at all; then nothing else is checked."""
    if not isinstance(resource, dict):
        start = "a LogPipeline begins with apiVersion, kind and metadata"
        return [Mistake("", f"expected a mapping, found {shown(resource)}; {start}")]
    return [
        Mistake(key, f"expected {wanted}, found {shown(resource.get(key))}")
        for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND))
        if resource.get(key) != wanted
    ]


def _metadata_mistakes(metadata: Any) -> list[Mistake]:
    if not isinstance(metadata, dict):
        return [Mistake("metadata", f"expected a mapping, found {shown(metadata)}")]
    mistakes = []
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if name is None:
        mistakes.append(Mistake("metadata.name", "is missing: the name of the pipeline"))
    elif not _is_name(name, NAME_CHARS_MAX, NAME_PATTERN):
        mistakes.append(Mistake("metadata.name", _name_rule(NAME_CHARS_MAX, name, "letter")))
    if namespace is not None and not _is_name(namespace, NAMESPACE_CHARS_MAX, _LABEL):
        rule = _name_rule(NAMESPACE_CHARS_MAX, namespace)
        mistakes.append(Mistake("metadata.namespace", rule))
    for key, kind, wanted in (("uid", str, "a text"), ("generation", int, "an integer")):
        if not isinstance(metadata.get(key), kind | None) or metadata.get(key) is True:
            found = shown(metadata[key])
            mistakes.append(Mistake(f"metadata.{key}", f"expected {wanted}, found {found}"))
    annotations = metadata.get("annotations")
    if not isinstance(annotations, dict | None):
        found = shown(annotations)
        mistakes.append(Mistake("metadata.annotations", f"expected a mapping, found {found}"))
    for key, value in annotations.items() if isinstance(annotations, dict) else ():
        if not isinstance(key, str) or not isinstance(value, str):
            place = below("metadata.annotations", key)
            mistakes.append(Mistake(place, f"expected a text, found {shown(value)}; quote it"))
    return mistakes


def _is_name(name: object, chars_max: int, pattern: str) -> bool:
    return isinstance(name, str) and len(name) <= chars_max and matches(pattern, name)


def _name_rule(chars_max: int, found: object, first: str = "letter or digit") -> str:
    return (
        f"expected at most {chars_max} lower-case letters, digits and '-', beginning with a "
        f"{first} and ending with a letter or digit, found {shown(found)}"
    )
