"""Fields that other managers added to a child, if they change what the child means.

A child is applied with the operator's fields. Fields of other managers stay beside them, and most
do no harm: labels, annotations, defaults. Some change the child's meaning: a node selector added by
hand removes shippers from nodes, one more label in a Service's selector leaves it without
endpoints. These are listed here, and removed. A field without a manager stays: a default of the API
server, or one that admission added, which would add it again to each write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from logpipeline import json_text
from logpipeline_operator.children.model import Manifest
from logpipeline_operator.cluster.client import FIELD_MANAGER

Path = tuple[str, ...]
Meanings = Mapping[Path, str]

# Why a field matters: the end of the sentence "it changes …".
NODES = "which nodes its pods run on"
ISOLATION = "what its pods can reach and who can reach into them"
CONTENT = "what runs in its pods"
TRAFFIC = "which pods it leads to"
ROLLOUT = "when new pods come and count"
RIGHTS = "who has its rights"

_POD: Meanings = {
    **{
        (name,): NODES
        for name in (
            "affinity", "nodeName", "nodeSelector", "priorityClassName", "runtimeClassName",
            "schedulerName", "schedulingGates", "tolerations", "topologySpreadConstraints",
        )
    },
    **{
        (name,): ISOLATION
        for name in (
            "dnsConfig", "dnsPolicy", "hostAliases", "hostIPC", "hostNetwork", "hostPID",
            "hostUsers", "securityContext", "serviceAccountName", "shareProcessNamespace",
        )
    },
    **{
        (name,): CONTENT
        for name in ("activeDeadlineSeconds", "containers", "initContainers", "volumes")
    },
    ("readinessGates",): ROLLOUT,
}  # fmt: skip
# Other fields of the operator's own items are defaults.
_CONTAINER_FIELDS = frozenset(
    {
        "args", "command", "env", "envFrom", "lifecycle", "resources", "securityContext",
        "volumeDevices", "volumeMounts", "workingDir",
    }
)  # fmt: skip
_WORKLOAD: Meanings = {
    **{("spec", "template", "spec", *path): why for path, why in _POD.items()},
    **{
        ("spec", name): ROLLOUT
        for name in ("minReadySeconds", "ordinals", "paused", "updateStrategy")
    },
}
_MEANINGS: Mapping[str, Meanings] = {
    "DaemonSet": _WORKLOAD,
    "StatefulSet": _WORKLOAD,
    "Service": {
        **{
            ("spec", name): TRAFFIC
            for name in (
                "externalIPs", "externalName", "ports", "publishNotReadyAddresses", "selector",
                "sessionAffinity", "type",
            )
        },
    },
    "NetworkPolicy": {("spec",): ISOLATION},
    "PodDisruptionBudget": {("spec",): ROLLOUT},
    "RoleBinding": {("subjects",): RIGHTS},
    "ClusterRoleBinding": {("subjects",): RIGHTS},
}  # fmt: skip
# Defaults of the API server belong to the manager that made the object without server-side apply.
_DEFAULTS: Mapping[str, Any] = {
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "sessionAffinity": "None",
    "type": "ClusterIP",
}
# An added item is a foreign field; further fields of the operator's own items are defaults.
_ITEMS_ONLY = frozenset({"volumes", "ports", "env", "volumeMounts", "volumeDevices"})
# A limit for objects with very many managers, which the operator did not make.
FOREIGN_FIELDS_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignField:
    """A field that *manager* added: its *path*, as `differences` writes paths, *why* it matters,
    and the JSON *pointer* to remove.
    """

    path: str
    manager: str
    why: str
    pointer: str


def foreign_fields(wanted: Manifest, there: Manifest) -> tuple[ForeignField, ...]:
    """Return the fields that others added to *there* and that change the meaning of *wanted*."""
    meanings = _MEANINGS.get(str(wanted["kind"]), {})
    found: dict[str, ForeignField] = {}
    for manager, fields in _others(there):
        for path, why in meanings.items():
            for each in _under(manager, fields, wanted, there, path, why):
                found.setdefault(each.pointer, each)
                if len(found) == FOREIGN_FIELDS_MAX:
                    return tuple(found.values())
    return tuple(found.values())


def removal(there: Manifest, found: tuple[ForeignField, ...]) -> list[dict[str, Any]]:
    """Return the JSON patch that removes *found* from *there*, in this version of it only."""
    version = there["metadata"]["resourceVersion"]
    steps = [{"op": "test", "path": "/metadata/resourceVersion", "value": version}]
    # The last items of a list first, so that the indexes of the others stay valid.
    ordered = sorted(found, key=lambda each: _numbered(each.pointer), reverse=True)
    return [*steps, *({"op": "remove", "path": each.pointer} for each in ordered)]


def managers(there: Manifest, paths: tuple[str, ...]) -> dict[str, str]:
    """Return the other managers of *paths*, as far as they are known."""
    found: dict[str, str] = {}
    for manager, fields in _others(there):
        owned = set(_owned(fields))
        found |= {path: manager for path in paths if path in owned and path not in found}
    return found


def _others(there: Manifest) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for entry in there["metadata"].get("managedFields") or []:
        # Fields of the status are written by controllers.
        if entry.get("manager") != FIELD_MANAGER and not entry.get("subresource"):
            yield str(entry.get("manager") or "an unnamed manager"), entry.get("fieldsV1") or {}


def _under(
    manager: str, fields: Mapping[str, Any], wanted: Any, there: Any, path: Path, why: str
) -> Iterator[ForeignField]:
    pointer, text = "", ""
    for number, name in enumerate(path):
        if f"f:{name}" not in fields or not isinstance(there, Mapping) or name not in there:
            return
        fields, there = fields[f"f:{name}"], there[name]
        is_wanted = isinstance(wanted, Mapping) and name in wanted
        wanted = wanted[name] if is_wanted else None
        pointer, text = f"{pointer}/{_escaped(name)}", f"{text}.{name}" if text else name
        if not is_wanted:
            if number == len(path) - 1 and not _is_harmless(name, there):
                yield ForeignField(path=text, manager=manager, why=why, pointer=pointer)
            return
    for extra, where in _extras(fields, wanted, there, path[-1]):
        yield ForeignField(path=text + extra, manager=manager, why=why, pointer=pointer + where)


def _extras(
    fields: Mapping[str, Any], wanted: Any, there: Any, name: str
) -> Iterator[tuple[str, str]]:
    """Yield the paths and pointers of those *fields* that *there* has and *wanted* has not."""
    if not fields:
        yield from _extra_of_whole(wanted, there)
    for key, inner in fields.items():
        if key.startswith("f:") and isinstance(there, Mapping):
            yield from _extra_field(key[2:], inner, wanted, there, name)
        elif key.startswith("k:") and isinstance(there, list) and (item := _item_of(key)):
            yield from _extra_item(item, inner, wanted, there, name)


def _extra_of_whole(wanted: Any, there: Any) -> Iterator[tuple[str, str]]:
    """Yield the extra fields of a map or list that has one manager as a whole."""
    if isinstance(wanted, Mapping) and isinstance(there, Mapping):
        for name in sorted(set(there) - set(wanted)):
            if not _is_harmless(name, there[name]):
                yield f".{name}", f"/{_escaped(name)}"
    elif isinstance(wanted, list) and isinstance(there, list) and len(there) > len(wanted):
        yield "", ""


def _extra_field(
    field: str, inner: Mapping[str, Any], wanted: Any, there: Mapping[str, Any], name: str
) -> Iterator[tuple[str, str]]:
    if field not in there or (name in ("containers", "initContainers") and _is_inert(field)):
        return
    has = isinstance(wanted, Mapping) and field in wanted
    if not has:
        if not _is_harmless(field, there[field]):
            yield f".{field}", f"/{_escaped(field)}"
        return
    for path, where in _extras(inner, wanted[field], there[field], field):
        yield f".{field}{path}", f"/{_escaped(field)}{where}"


def _extra_item(
    key: Mapping[str, Any], inner: Mapping[str, Any], wanted: Any, there: list[Any], name: str
) -> Iterator[tuple[str, str]]:
    number = next((n for n, item in enumerate(there) if _has_key(item, key)), None)
    if number is None:
        return
    text = f"[{next(iter(key.values()))}]"
    ours = [item for item in (wanted if isinstance(wanted, list) else []) if _has_key(item, key)]
    if not ours:
        yield text, f"/{number}"
    elif name not in _ITEMS_ONLY:
        for path, where in _extras(inner, ours[0], there[number], name):
            yield f"{text}{path}", f"/{number}{where}"


def _item_of(key: str) -> Mapping[str, Any]:
    """Return the fields by which *key* names an item; none if it cannot be read."""
    try:
        found = json_text.parse(key[2:])
    except ValueError:
        return {}
    return found if isinstance(found, Mapping) else {}


def _is_inert(field: str) -> bool:
    return field not in _CONTAINER_FIELDS


def _has_key(item: Any, key: Mapping[str, Any]) -> bool:
    # The API server fills in some fields of keys, such as a port's protocol.
    return isinstance(item, Mapping) and all(
        item.get(name, value) == value for name, value in key.items()
    )


def _is_harmless(name: str, value: Any) -> bool:
    return value in (None, "", 0, False) or value in ({}, []) or _DEFAULTS.get(name) == value


def _owned(fields: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for key, inner in fields.items():
        if key.startswith("f:"):
            here = f"{path}.{key[2:]}" if path else key[2:]
        elif key.startswith("k:") and (item := _item_of(key)):
            here = f"{path}[{next(iter(item.values()))}]"
        else:
            continue
        yield here
        yield from _owned(inner, here)


def _numbered(pointer: str) -> list[tuple[int, str]]:
    return [(int(part) if part.isdigit() else -1, part) for part in pointer.split("/")]


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
