"""Makes the CustomResourceDefinition: ``python -m logpipeline.spec.crd FILE``."""

from __future__ import annotations

import dataclasses
import sys
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from logpipeline.quantity import BYTES_PATTERN, DURATION_PATTERN
from logpipeline.spec.fields import Rule, rule_of, yaml_name
from logpipeline.spec.model import KIND, NAME_CHARS_MAX, LogPipelineSpec
from logpipeline.spec.parse import plain
from logpipeline.spec.rules import CHANGE_RULES, SPEC_RULES
from logpipeline.spec.status import STATUS_SCHEMA

GROUP = "logpipeline.dev"
VERSION = "v1alpha1"
PLURAL = "logpipelines"
Schema = dict[str, Any]

COLUMNS = (
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', 0),
    ("Partitions", "integer", ".status.partitions", 0),
    ("Collectors", "string", ".status.collectors.ready", 0),
    ("Shippers", "string", ".status.shippers.ready", 0),
    ("Lag", "string", ".status.lag", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Subject", "string", ".status.subject", 1),
    ("Message", "string", '.status.conditions[?(@.type=="Ready")].message', 1),
)


def crd() -> Schema:
    """Return the CustomResourceDefinition."""
    spec = _object(LogPipelineSpec)
    spec["description"] = "What is wanted."
    spec["default"] = {}
    spec["x-kubernetes-validations"] = [
        {"rule": rule.cel, "message": f"{rule.path.removeprefix('spec.')} {rule.message}"}
        for rule in (*SPEC_RULES, *CHANGE_RULES)
    ]
    name_rule = f"self.metadata.name.size() <= {NAME_CHARS_MAX}"
    schema = {
        "type": "object",
        "description": "A log pipeline: from files through JetStream to files, each line once.",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": STATUS_SCHEMA,
        },
        "x-kubernetes-validations": [
            {"rule": name_rule, "message": f"name must have {NAME_CHARS_MAX} characters at most"}
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["lp"],
                "categories": ["logpipeline"],
            },
            "versions": [_version(schema)],
        },
    }


def render() -> str:
    """Return the CRD as YAML."""
    head = "# Made by `make crd` from core/logpipeline/spec; change it there.\n"
    return head + yaml.safe_dump(crd(), sort_keys=False, allow_unicode=True, width=100)


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


def _object(kind: type[Any]) -> Schema:
    hints = get_type_hints(kind)
    properties, required = {}, []
    for field in dataclasses.fields(kind):
        name, rule = yaml_name(field), rule_of(field)
        schema = _schema(hints[field.name], rule)
        properties[name] = {"description": rule.description, **schema, **_default(field, schema)}
        if field.default is field.default_factory is dataclasses.MISSING:
            required.append(name)
    return {"type": "object", "properties": properties} | (
        {"required": required} if required else {}
    )


def _schema(hint: Any, rule: Rule) -> Schema:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _schema(next(part for part in get_args(hint) if part is not type(None)), rule)
    if hint is Any:
        return {"x-kubernetes-preserve-unknown-fields": True}
    if origin is tuple:
        items = _schema(get_args(hint)[0], dataclasses.replace(rule, max_items=None))
        limit = {"maxItems": rule.max_items} if rule.max_items else {}
        return {"type": "array", "items": items, **limit}
    if origin is dict:
        return {"type": "object", "additionalProperties": {"type": "string"}}
    if origin is Literal:
        choices = list(get_args(hint))
        return {"type": "integer" if isinstance(choices[0], int) else "string", "enum": choices}
    if dataclasses.is_dataclass(hint):
        return _object(hint)  # type: ignore[arg-type]
    return _scalar(hint, rule)


def _scalar(hint: Any, rule: Rule) -> Schema:
    if rule.unit == "bytes":
        # A quantity may be written as a number, as everywhere in Kubernetes.
        return {"x-kubernetes-int-or-string": True, "pattern": BYTES_PATTERN}
    if rule.unit == "duration":
        return {"type": "string", "maxLength": 32, "pattern": DURATION_PATTERN}
    if hint is bool:
        return {"type": "boolean"}
    if hint is int:
        limits = {"minimum": rule.minimum, "maximum": rule.maximum}
        return {"type": "integer", "format": "int64", **_given(limits)}
    lengths = {"minLength": rule.min_length, "maxLength": rule.max_length, "pattern": rule.pattern}
    return {"type": "string", **_given(lengths)}


def _default(field: dataclasses.Field[Any], schema: Schema) -> Schema:
    """Return the default as the API server fills it in; an object's own fields carry theirs."""
    if field.default is not dataclasses.MISSING:
        value = field.default
    elif field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    else:
        return {}
    if value is None or value in ((), {}):
        return {}
    return {"default": {} if schema.get("type") == "object" else plain(value, rule_of(field))}


def _given(limits: Schema) -> Schema:
    return {name: limit for name, limit in limits.items() if limit is not None}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render())
