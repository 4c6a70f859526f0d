"""From a file or a dictionary to a LogPipeline, and back."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from logpipeline.quantity import format_bytes, format_duration
from logpipeline.spec.changes import check_change
from logpipeline.spec.fields import (
    Rule,
    default_of,
    is_required,
    matches,
    rule_of,
    yaml_name,
)
from logpipeline.spec.mistakes import Mistake, SpecError, below, shown, unknown
from logpipeline.spec.model import (
    API_VERSION,
    KIND,
    NAME_CHARS_MAX,
    NAME_PATTERN,
    NAMESPACE_CHARS_MAX,
    LogPipeline,
    LogPipelineSpec,
)
from logpipeline.spec.reading import Reader
from logpipeline.spec.rules import check_object, check_spec
from logpipeline.spec.yamlfile import read_document

_TOP = ("apiVersion", "kind", "metadata", "spec", "status")
_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


def load(path: Path) -> LogPipeline:
    """Return the one LogPipeline in the YAML file *path*.

    Raises:
        SpecError: it has mistakes; all of them are told.
        OSError: it cannot be read.
    """
    try:
        return parse(read_document(path))
    except SpecError as error:
        raise SpecError(error.mistakes, file=path) from error.__cause__


def parse(resource: Any) -> LogPipeline:
    """Return the LogPipeline that *resource* is.

    Raises:
        SpecError: it has mistakes; all of them are told.
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
    """Return what may not change from *old* to *new*."""
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
    """Return why *resource* is no LogPipeline at all; then nothing else is worth telling."""
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
        mistakes.append(Mistake("metadata.name", "is missing: what the pipeline is called"))
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
