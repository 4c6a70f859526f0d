"""From a file or a dictionary to a LogPipeline, and back."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from logpipeline.quantity import format_bytes, format_duration
from logpipeline.spec.fields import Rule, rule_of, yaml_name
from logpipeline.spec.mistakes import Mistake, SpecError
from logpipeline.spec.model import API_VERSION, KIND, NAME_CHARS_MAX, LogPipeline, LogPipelineSpec
from logpipeline.spec.reading import Reader
from logpipeline.spec.rules import check, check_change

FILE_BYTES_MAX = 1024 * 1024
_TOP = ("apiVersion", "kind", "metadata", "spec", "status")


class _Loader(yaml.SafeLoader):
    """Refuses what YAML accepts: a key twice, and aliases, with which a file grows without end."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(
                None, None, "aliases are not allowed", event.start_mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key!r} stands here twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def load(path: Path) -> LogPipeline:
    """Return the one LogPipeline in the YAML file *path*.

    Raises:
        SpecError: it has mistakes; all of them are told.
        OSError: it cannot be read.
    """
    raw = path.read_bytes()
    if len(raw) > FILE_BYTES_MAX:
        raise SpecError(Mistake(str(path), f"{len(raw)} bytes, {FILE_BYTES_MAX} at most"))
    try:
        documents = [document for document in yaml.load_all(raw, _Loader) if document is not None]
    except yaml.YAMLError as error:
        raise SpecError(Mistake(str(path), f"is no valid YAML: {_where(error)}")) from error
    if len(documents) != 1:
        raise SpecError(
            Mistake(str(path), f"holds {len(documents)} documents; give exactly one LogPipeline")
        )
    try:
        return parse(documents[0])
    except SpecError as error:
        raise SpecError(
            *(Mistake(f"{path}: {m.path}", m.message) for m in error.mistakes)
        ) from None


def parse(resource: Any) -> LogPipeline:
    """Return the LogPipeline that *resource* is.

    Raises:
        SpecError: it has mistakes; all of them are told.
    """
    if not isinstance(resource, dict):
        raise SpecError(
            Mistake(
                "document", "is no mapping; a LogPipeline begins with apiVersion, kind, metadata"
            )
        )
    reader = Reader()
    mistakes = reader.mistakes
    if resource.get("apiVersion") != API_VERSION:
        mistakes.append(
            Mistake("apiVersion", f"expected {API_VERSION}, found {resource.get('apiVersion')}")
        )
    if resource.get("kind") != KIND:
        mistakes.append(Mistake("kind", f"expected {KIND}, found {resource.get('kind')}"))
    mistakes.extend(
        Mistake(str(key), f"unknown field; known are {', '.join(_TOP)}")
        for key in resource
        if key not in _TOP
    )
    metadata = resource.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name, namespace = metadata.get("name"), metadata.get("namespace") or "default"
    mistakes.extend(_name_mistakes(name, namespace))
    spec = reader.object(LogPipelineSpec, resource.get("spec") or {}, "spec")
    if spec is not None:
        mistakes.extend(check(spec))
    if mistakes:
        raise SpecError(*mistakes)
    return LogPipeline(
        name=str(name),
        namespace=str(namespace),
        uid=str(metadata.get("uid") or ""),
        generation=int(metadata.get("generation") or 0),
        annotations=dict(metadata.get("annotations") or {}),
        spec=spec,
    )


def dump(pipeline: LogPipeline) -> dict[str, Any]:
    """Return *pipeline* as a resource, without what is at its default."""
    metadata: dict[str, Any] = {"name": pipeline.name, "namespace": pipeline.namespace}
    if pipeline.annotations:
        metadata["annotations"] = dict(pipeline.annotations)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": _dump(pipeline.spec),
    }


def check_update(old: LogPipeline, new: LogPipeline) -> list[Mistake]:
    """Return what may not change from *old* to *new*."""
    return list(check_change(old.spec, new.spec))


def _dump(value: Any) -> dict[str, Any]:
    result = {}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if item != default:
            result[yaml_name(field)] = plain(item, rule_of(field))
    return result


def plain(item: Any, rule: Rule) -> Any:
    """Return *item* as it stands in YAML."""
    if dataclasses.is_dataclass(item):
        return _dump(item)
    if isinstance(item, tuple):
        return [plain(part, rule) for part in item]
    if rule.unit is not None and isinstance(item, int):
        return format_bytes(item) if rule.unit == "bytes" else format_duration(item)
    return item


def _name_mistakes(name: Any, namespace: Any) -> list[Mistake]:
    label = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    mistakes = []
    if not isinstance(name, str) or not re.fullmatch(rf"{label}(\.{label})*", name):
        mistakes.append(
            Mistake(
                "metadata.name",
                f"needs a name of lower-case letters, digits, '-' and '.', found {name!r}",
            )
        )
    elif len(name) > NAME_CHARS_MAX:
        mistakes.append(
            Mistake("metadata.name", f"{len(name)} characters, {NAME_CHARS_MAX} at most")
        )
    if not isinstance(namespace, str) or not re.fullmatch(label, namespace) or len(namespace) > 63:
        mistakes.append(Mistake("metadata.namespace", f"is no namespace: {namespace!r}"))
    return mistakes


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else str(problem)
