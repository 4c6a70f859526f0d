"""Makes the CustomResourceDefinitions from the declarations of fields."""

from __future__ import annotations

import dataclasses
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from logpipeline.quantity import (
    BYTES_MAX,
    BYTES_PATTERN,
    DURATION_NS_MAX,
    DURATION_PATTERN,
    QUANTITY_CHARS_MAX,
    format_bytes,
    format_duration,
)
from logpipeline.spec.api import CLASS_KIND, CLASS_PLURAL, GROUP, KIND, PLURAL, VERSION
from logpipeline.spec.changes import CHANGE_RULES, ChangeRule
from logpipeline.spec.classes import CLASS_RULES, LogPipelineClassSpec
from logpipeline.spec.declaration import (
    CrossRule,
    Former,
    Rule,
    default_of,
    is_required,
    nanoseconds_cel,
    quantity_cel,
    rule_of,
    yaml_name,
)
from logpipeline.spec.model import NAME_CHARS_MAX, NAME_PATTERN, LogPipelineSpec
from logpipeline.spec.parse import plain
from logpipeline.spec.rules import ENTRY_RULES, SPEC_RULES

Schema = dict[str, Any]

# An operator says at least so often that it looked, and seldom more often: each time is a write.
CHECKED_EVERY_S = 120.0
# A status that was not confirmed for so long says nothing about now, and its operator is gone.
UNCHECKED_AFTER_S = 420.0

# The description of a field that there was; no reference names it.
GONE = "Is gone."

COLUMNS = (
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', 0),
    ("Partitions", "integer", ".status.partitions", 0),
    ("Collectors", "string", ".status.collectors.ready", 0),
    ("Shippers", "string", ".status.shippers.ready", 0),
    ("Lag", "string", ".status.lag", 0),
    ("Missing", "string", ".status.missing", 0),
    ("Lost", "string", ".status.lost", 0),
    ("Checked", "date", ".status.lastChecked", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Subject", "string", ".status.subject", 1),
    ("Table", "string", ".status.table.lag", 1),
    ("Message", "string", '.status.conditions[?(@.type=="Ready")].message', 1),
)


def _text(description: str, **limits: Any) -> Schema:
    return {"type": "string", "description": description, **limits}


def _count(description: str, **limits: Any) -> Schema:
    return {"type": "integer", "description": description, "format": "int32", **limits}


def _status_object(description: str, properties: Schema, **more: Any) -> Schema:
    return {"type": "object", "description": description, "properties": properties, **more}


def _keyed_list(description: str, key: str, items: Schema, **limits: Any) -> Schema:
    return {
        "type": "array",
        "description": description,
        "items": items,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
        **limits,
    }


_GENERATION = {"type": "integer", "format": "int64", "minimum": 0}

_CONDITION = _status_object(
    "One aspect of the pipeline's state.",
    {
        "type": _text("Which aspect, such as Ready or StreamsReady.", maxLength=316),
        "status": _text("Whether it holds.", enum=["True", "False", "Unknown"]),
        "observedGeneration": {
            "description": "The generation that this was seen with.", **_GENERATION,
        },
        "lastTransitionTime": _text("Since when status is what it is.", format="date-time"),
        "reason": _text(
            "Why, in one word for programs.",
            minLength=1, maxLength=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        ),
        "message": _text("Why, and what to do, for people.", maxLength=32768),
    },
    required=["type", "status", "lastTransitionTime", "reason", "message"],
)  # fmt: skip

_ASSIGNMENT = _status_object(
    "A collector and its range of partitions.",
    {
        "name": _text("The collector's pod."),
        "partitions": _text("Its partitions, such as 0-4, or none."),
    },
    required=["name", "partitions"],
)

_COLLECTORS = _status_object(
    "The collectors.",
    {
        "replicas": _count("How many there are."),
        "readyReplicas": _count("How many of them are ready."),
        "ready": _text("Ready and wanted ones, such as 2/2."),
        "selector": _text("Labels of their pods, for autoscalers."),
        "assignments": _keyed_list(
            "The partitions that each collector owns.", "name", _ASSIGNMENT, maxItems=1024
        ),
    },
)

_SHIPPERS = _status_object(
    "The shippers.",
    {
        "desired": _count("How many nodes should have one."),
        "readyPods": _count("How many are ready."),
        "ready": _text("Ready and wanted ones, such as 3/3."),
        "notReadyNodes": _text("Nodes whose shipper is not ready; the first ten."),
        "behind": _count("Nodes whose lines have waited for more than five minutes."),
        "behindNodes": _text("Which these are; the first ten."),
    },
)

_NATS = _status_object(
    "The nats-server that is run for the pipeline; nothing where yours is used.",
    {"ready": _text("Ready and wanted servers, such as 3/3.")},
)

_LARGE: Schema = {"type": "integer", "format": "int64", "minimum": 0}

_STREAM_IN_TABLE = _status_object(
    "A stream, and up to where it is in the table.",
    {
        "name": _text("The stream."),
        "sequence": {"description": "The last message that is in the table.", **_LARGE},
    },
    required=["name", "sequence"],
)

_TABLE = _status_object(
    "The table; nothing where none is kept. Figures are at most a minute old while lines come.",
    {
        "path": _text("Where it lies."),
        "commit": {"description": "The number of the last commit.", **_LARGE},
        "rows": {"description": "Lines in the table.", **_LARGE},
        "committedAt": _text("When that commit was made.", format="date-time"),
        "lag": _text("About how much is stored and not yet in the table, and since when."),
        "missed": _text(
            "About how much was deleted of full streams before it was in the table, in all."
        ),
        "streams": _keyed_list(
            "Up to where streams are in the table; the first 64.",
            "name",
            _STREAM_IN_TABLE,
            maxItems=64,
        ),
    },
)

STATUS_SCHEMA: Schema = _status_object(
    "What is.",
    {
        "observedGeneration": {
            "description": "The generation of the spec that this describes.", **_GENERATION,
        },
        "conditions": _keyed_list("What holds and what does not.", "type", _CONDITION),
        "partitions": _count("How many partitions there are; 1 where the spec says 0."),
        "subject": _text("Root of the subjects."),
        "streams": _text("Base of the streams' names."),
        "lag": _text("About how much is stored and not yet in files, and since when."),
        "missing": _text("About how much was sent and is not stored; shippers send it again."),
        "missingBytes": {"description": "The same, in bytes of log files.", **_LARGE},
        "lost": _text("About how much is lost; `kubectl logpipeline losses` lists it."),
        "lostBytes": {"description": "The same, in bytes of log files.", **_LARGE},
        "collectors": _COLLECTORS,
        "shippers": _SHIPPERS,
        "nats": _NATS,
        "table": _TABLE,
        "version": _text("Version of the operator that wrote this."),
        "lastChecked": _text(
            "When an operator last looked; it says so every two minutes. Seven minutes later all "
            "of this may be out of date.",
            format="date-time",
        ),
        "checkedBy": _text("The operator that looked: its namespace and release.", maxLength=512),
        "claimedAt": _text(
            "When that operator claimed the pipeline before a look. If it is later than "
            "`lastChecked`, the look is still under way, or its looks fail.",
            format="date-time",
        ),
    },
)  # fmt: skip


def crd() -> Schema:
    """Return the CustomResourceDefinition."""
    spec = {"description": "What is wanted.", **_object(LogPipelineSpec), "default": {}}
    schema = {
        "type": "object",
        "description": "A log pipeline: from files through JetStream to files, each line once.",
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of this schema."},
            "kind": {"type": "string", "description": f"Always {KIND}."},
            "metadata": {"type": "object"},  # Kubernetes describes it, and forbids that we do.
            "spec": spec,
            "status": STATUS_SCHEMA,
        },
        "x-kubernetes-validations": [
            {
                "rule": f"self.metadata.name.size() <= {NAME_CHARS_MAX}",
                "message": f"name must have {NAME_CHARS_MAX} characters at most",
            },
            {
                "rule": f"self.metadata.name.matches('{NAME_PATTERN}')",
                "message": "name must begin with a letter and hold no dot: Services, and the host "
                "names of pods, are called after it",
            },
            *(_validation(rule, "spec.") for rule in SPEC_RULES),
            *(_validation(rule, "spec.") for rule in CHANGE_RULES),
        ],
    }
    names = {"shortNames": ["lp"], "categories": ["logpipeline"]}
    return _definition(KIND, PLURAL, "Namespaced", names, _version(schema))


def class_crd() -> Schema:
    """Return the CustomResourceDefinition of classes."""
    spec = {
        "description": "What LogPipelines of this class may ask for.",
        **_object(LogPipelineClassSpec),
        "default": {},
    }
    schema = {
        "type": "object",
        "description": "What LogPipelines may choose beyond the rights of their authors.",
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of this schema."},
            "kind": {"type": "string", "description": f"Always {CLASS_KIND}."},
            "metadata": {"type": "object"},
            "spec": spec,
        },
        "x-kubernetes-validations": [_validation(rule, "spec.") for rule in CLASS_RULES],
    }
    columns = [
        {"name": "Pods", "type": "string", "jsonPath": ".spec.podNamespaces"},
        {"name": "Namespaces", "type": "string", "jsonPath": ".spec.namespaces"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": schema},
    }
    return _definition(CLASS_KIND, CLASS_PLURAL, "Cluster", {"shortNames": ["lpc"]}, version)


def _definition(kind: str, plural: str, scope: str, more_names: Schema, version: Schema) -> Schema:
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {**names, **more_names},
            "versions": [version],
        },
    }


def render() -> str:
    """Return the definitions as YAML: pipelines first, then classes."""
    head = "# Made by `make generate` from core/logpipeline/spec; change it there.\n"
    return head + "---\n".join(as_yaml(each) for each in (crd(), class_crd()))


def as_yaml(manifest: Schema) -> str:
    """Return *manifest* as every reader of YAML takes it."""
    return yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """Writes each part out, also where two are the same: not every reader knows aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _version(schema: Schema) -> Schema:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.collectors.replicas",
                "statusReplicasPath": ".status.collectors.replicas",
                "labelSelectorPath": ".status.collectors.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path} | ({"priority": 1} if priority else {})
            for name, kind, path, priority in COLUMNS
        ],
        "schema": {"openAPIV3Schema": schema},
    }


def _validation(rule: CrossRule | ChangeRule, start: str = "") -> Schema:
    path = f"{start}{rule.path}".rstrip(".")
    place = {"fieldPath": f".{path}"} if path else {}
    return {"rule": rule.cel, "message": f"{path} {rule.message}".strip(), **place}


def _object(kind: type[Any]) -> Schema:
    hints = get_type_hints(kind)
    properties, required = {}, []
    for field in dataclasses.fields(kind):
        name, rule = yaml_name(field), rule_of(field)
        schema = _schema(hints[field.name], rule)
        properties[name] = {"description": rule.description, **schema, **_default(field, schema)}
        if rule.former is not None:
            properties[rule.former.name] = _former(rule.former)
        if is_required(field):
            required.append(name)
    rules = [_validation(rule) for rule in ENTRY_RULES if rule.kind is kind]
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        **({"x-kubernetes-validations": rules} if rules else {}),
    }


def _former(former: Former) -> Schema:
    """Return the schema of a field that is gone: an API server would drop silently what no schema
    knows.
    """
    rule = "false" if former.default is None else f"self == {former.default}"
    return {
        "description": GONE,
        **(
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            if former.default is None
            else {"type": "integer"}
        ),
        "x-kubernetes-validations": [{"rule": rule, "message": former.message}],
    }


def _schema(hint: Any, rule: Rule) -> Schema:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        kinds = [part for part in get_args(hint) if part is not type(None)]
        return _schema(kinds[0], rule) if len(kinds) == 1 else {"x-kubernetes-int-or-string": True}
    if origin is tuple:
        return _list(get_args(hint)[0], rule)
    if origin is dict:
        if get_args(hint)[1] is Any:
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        return {"type": "object", "additionalProperties": {"type": "string"}}
    if origin is Literal:
        choices = list(get_args(hint))
        return {"type": "integer" if isinstance(choices[0], int) else "string", "enum": choices}
    if dataclasses.is_dataclass(hint):
        return _object(hint)  # type: ignore[arg-type]
    return _scalar(hint, rule)


def _list(hint: Any, rule: Rule) -> Schema:
    kind: Schema = {}
    if rule.unique_by is not None:
        kind["x-kubernetes-list-type"] = "map" if rule.unique_by else "set"
    if rule.unique_by:
        kind["x-kubernetes-list-map-keys"] = [rule.unique_by]
    limits = _given({"minItems": rule.min_items, "maxItems": rule.max_items})
    return {"type": "array", "items": _schema(hint, rule), **limits, **kind}


def _scalar(hint: Any, rule: Rule) -> Schema:
    if rule.unit is not None:
        return _quantity(rule)
    if hint is bool:
        return {"type": "boolean"}
    if hint is int:
        limits = {"minimum": rule.minimum, "maximum": rule.maximum}
        return {"type": "integer", "format": "int64", **_given(limits)}
    lengths = {"minLength": rule.min_length, "maxLength": rule.max_length, "pattern": rule.pattern}
    kind = {"format": "date-time"} if rule.is_time else {}
    return {"type": "string", **kind, **_given(lengths)}


def _quantity(rule: Rule) -> Schema:
    length = {"maxLength": QUANTITY_CHARS_MAX}
    if rule.unit == "bytes":
        # A size may be written as a number, as everywhere in Kubernetes.
        schema = {"x-kubernetes-int-or-string": True, **length, "pattern": BYTES_PATTERN}
    else:
        schema = {"type": "string", "minLength": 1, **length, "pattern": DURATION_PATTERN}
    greatest = BYTES_MAX if rule.unit == "bytes" else DURATION_NS_MAX
    rules = [
        {"rule": _comparison(rule, sign, limit), "message": f"must be {word} {_shown(rule, limit)}"}
        for sign, word, limit in (
            (">=", "at least", 0 if rule.minimum is None else rule.minimum),
            ("<=", "at most", greatest if rule.maximum is None else rule.maximum),
        )
    ]
    return {**schema, "x-kubernetes-validations": rules}


def _comparison(rule: Rule, sign: str, limit: int) -> str:
    if rule.unit == "bytes":
        return f"{quantity_cel('self')}.compareTo(quantity('{limit}')) {sign} 0"
    return f"{nanoseconds_cel('self')} {sign} {float(limit)}"


def _shown(rule: Rule, limit: int) -> str:
    return format_bytes(limit) if rule.unit == "bytes" else format_duration(limit)


def _default(field: dataclasses.Field[Any], schema: Schema) -> Schema:
    """Return the default as the API server fills it in; an object's own fields carry theirs."""
    value = None if is_required(field) else default_of(field)
    if value is None or value in ((), {}):
        return {}
    return {"default": {} if schema.get("type") == "object" else plain(value, rule_of(field))}


def _given(limits: Schema) -> Schema:
    return {name: limit for name, limit in limits.items() if limit is not None}
