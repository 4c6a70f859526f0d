"""Writes the reference of the resource from its definition, so that the two never differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from logpipeline.quantity import BYTES_PATTERN, DURATION_PATTERN
from logpipeline.spec.changes import CHANGE_RULES, ChangeRule
from logpipeline.spec.choices import CHOICES
from logpipeline.spec.components import LocalShipper, Match
from logpipeline.spec.crd import COLUMNS, GONE, Schema, class_crd, crd
from logpipeline.spec.declaration import CrossRule, yaml_name
from logpipeline.spec.pods import LabelRequirement, LabelSelector, PodOptions
from logpipeline.spec.rules import ENTRY_RULES, SPEC_RULES
from logpipeline.spec.streams import ConsumerTemplate, StreamOverride
from logpipeline.spec.table import LineField, ParseRule, TimeRule

_HEAD = """\
# The resource `LogPipeline`

Made from the code by `make generate`; `kubectl explain
logpipeline.spec` shows the same in a cluster. Short name: `lp`. Examples are in
[deploy/samples](../deploy/samples). How it is used in a cluster: [kubernetes.md](kubernetes.md).

A **size** is written as `10Gi`, `500M` or a number of bytes; a **time span** as `24h`, `1d`,
`1h30m` or `200ms`. Whatever is not marked *required* may be left out. The API server refuses what
is outside of the limits, and its message names the field; `logpipeline plan -f FILE` says the same
without a cluster.
"""
_ANNOTATIONS = """\
## Annotations

| On | Annotation | What it does |
|---|---|---|
| LogPipeline | `logpipeline.dev/paused: "true"` | Nothing is changed until it is removed. |
| LogPipeline | `logpipeline.dev/allow-data-loss: "<generation>"` | What deletes data is done. |
| LogPipeline | `logpipeline.dev/adopt: "true"` | Objects of children's names are taken over. |
| pod, namespace | `logpipeline.dev/exclude: "true"` | Its logs are not shipped. |
"""
_PODS = """\
## Options of pods

`spec.collectors`, `spec.shippers` and `spec.nats.managed` have all of these beside their own
fields. A change replaces the pods of that component one after the other.
"""
_CLASS = """\
## `LogPipelineClass`

Lies in no namespace; short name: `lpc`. What an administrator allows LogPipelines beyond the
rights of their authors; [who may ask for what](kubernetes.md#who-may-ask-for-what) says how
it is used. In a list of names, an entry is a name, or the beginning of names and a `*`; a folder
stands for all that is in it. A list that is empty allows nothing.
"""
_CHOICES = """\
### What a class decides

Each of these fields of a LogPipeline needs its class to allow the value. All others are free.
"""
_TABLE_HEAD = ("| Field | Type | Default | What it says |", "|---|---|---|---|")


def reference() -> str:
    """Return the reference as Markdown."""
    version = crd()["spec"]["versions"][0]
    root = version["schema"]["openAPIV3Schema"]["properties"]
    pods = _pod_options(root["spec"])
    return (
        "\n".join(
            (
                _HEAD,
                *_sections("spec", root["spec"], pods),
                _PODS,
                *_table(pods, required=()),
                "",
                *_rules(),
                _ANNOTATIONS,
                *_columns(),
                *_class(),
                *_sections("status", root["status"], {}),
            )
        ).rstrip()
        + "\n"
    )


def _pod_options(spec: Schema) -> Schema:
    """Return the fields that the three kinds of pods have in common."""
    managed = spec["properties"]["nats"]["properties"]["managed"]["properties"]
    names = [yaml_name(field) for field in dataclasses.fields(PodOptions)]
    return {name: managed[name] for name in names}


def _sections(path: str, schema: Schema, pods: Schema) -> Iterator[str]:
    """Yield the section of the object *path*, and those of the objects in it."""
    every = schema["properties"].items()
    fields = {name: field for name, field in every if field.get("description") != GONE}
    own = {name: field for name, field in fields.items() if pods.get(name) != field}
    yield f"## `{path}`\n"
    yield f"{schema['description']}\n" if schema.get("description") else ""
    if len(own) < len(fields):
        yield "It also has the [options of pods](#options-of-pods).\n"
    yield from _table(own, required=schema.get("required", ()), path=path)
    yield ""
    for name, field in own.items():
        inner = _object_of(field)
        if inner is not None and not _is_flat(field):
            described = {"description": field.get("description", ""), **inner}
            yield from _sections(_path_of(path, name, field), described, pods)


def _object_of(schema: Schema) -> Schema | None:
    """Return the schema of the object that *schema* is, or that each of its entries is."""
    if schema.get("type") == "array":
        schema = schema["items"]
    return schema if "properties" in schema else None


def _is_flat(schema: Schema) -> bool:
    """Return whether *schema* is an object of one field, for which a section would be too much."""
    return len(schema.get("properties", ())) == 1


def _path_of(path: str, name: str, field: Schema) -> str:
    return f"{path}.{name}" + "[]" * (field.get("type") == "array")


def _table(fields: Schema, *, required: Iterable[str], path: str = "") -> Iterator[str]:
    yield from _TABLE_HEAD
    for name, field in fields.items():
        default = "*required*" if name in required else _default(field)
        kind = _kind(field)
        if _is_flat(field):
            [(inner, field)] = field["properties"].items()
            name, kind, default = f"{name}.{inner}", _kind(field), default or _default(field)
        elif _object_of(field) is not None:
            kind = f"[{kind}](#{_anchor(_path_of(path, name, field))})"
        text = field.get("description", "") + _limits(field)
        yield f"| `{name}` | {kind} | {default} | {_cell(text)} |"


def _kind(schema: Schema) -> str:
    """Return the type of a field, in words."""
    if "enum" in schema:
        return " \\| ".join(f"`{choice}`" for choice in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    if schema.get("pattern") == BYTES_PATTERN:
        return "size"
    if schema.get("pattern") == DURATION_PATTERN:
        return "time span"
    if schema.get("x-kubernetes-int-or-string"):
        return "number or percentage"
    if schema.get("format") == "date-time":
        return "time"
    if "additionalProperties" in schema:
        return "map of texts"
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return "as in a pod"
    return {"integer": "number", "string": "text", "boolean": "yes or no"}.get(
        schema["type"], "object"
    )


def _default(schema: Schema) -> str:
    value = schema.get("default")
    if value is None or value in ({}, ""):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _limits(schema: Schema) -> str:
    """Return the limits of a number and of a quantity, as a text that goes on from another."""
    given = [f"{name} {schema[key]}" for key, name in _NUMBERS.items() if key in schema]
    for rule in schema.get("x-kubernetes-validations", ()):
        words = rule["message"].removeprefix("must be ")
        # Limits of 0, and of what Kubernetes can count, say nothing to a reader.
        if words != rule["message"] and not words.endswith(_UNSAID):
            given.append(words)
    return f" ({', '.join(given)})" if given else ""


_NUMBERS = {"minimum": "at least", "maximum": "at most", "minItems": "entries: at least"}
_UNSAID = ("at least 0", "at least 0s", "at most 4Pi", "at most 4096Pi", "at most 15250w")


def _rules() -> Iterator[str]:
    yield "## What goes with what\n\nA resource is refused with one of these messages.\n"
    yield from _listed(("spec", rule) for rule in SPEC_RULES)
    yield from _listed((_ENTRIES[rule.kind], rule) for rule in ENTRY_RULES)
    yield "\n## What cannot change\n"
    yield from _listed(("spec", rule) for rule in CHANGE_RULES)
    yield ""


# Where entries stand that have rules of their own.
_ENTRIES = {
    ParseRule: "spec.table.parse[]",
    LineField: "spec.table.parse[].fields[]",
    TimeRule: "spec.table.time[]",
    ConsumerTemplate: "spec.consumers[]",
    StreamOverride: "spec.stream.overrides[]",
    Match: "spec.shippers.match[]",
    LocalShipper: "spec.local.shippers[]",
    LabelSelector: "spec.shippers.podNamespaceSelector",
    LabelRequirement: "spec.shippers.podNamespaceSelector.matchExpressions[]",
}


def _listed(rules: Iterable[tuple[str, CrossRule | ChangeRule]]) -> Iterator[str]:
    for owner, rule in rules:
        yield f"- `{owner}.{rule.path}".rstrip(".") + f"` {_cell(rule.message)}"


def _class() -> Iterator[str]:
    yield _CLASS
    schema = class_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    yield from _sections("class.spec", schema["properties"]["spec"], {})
    yield _CHOICES
    paths: dict[str, list[str]] = {}
    for choice in CHOICES:
        path = choice.path.removesuffix("?").removesuffix("{}")
        paths.setdefault(choice.field, []).append(f"`spec.{path}`")
    yield from (f"- `{field}`: {', '.join(found)}" for field, found in paths.items())
    yield ""


def _columns() -> Iterator[str]:
    yield "## Columns of `kubectl get logpipelines`\n"
    for name, _, path, priority in COLUMNS:
        yield f"- {name}: `{path}`" + (" (with `-o wide`)" if priority else "")
    yield ""


def _anchor(path: str) -> str:
    """Return how Markdown's viewers call the heading of *path*."""
    return "".join(letter for letter in path.lower() if letter.isalnum() or letter in "-_")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
