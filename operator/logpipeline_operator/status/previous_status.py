"""Reads the values that a new status takes over from the previous one. Every field is checked: any
user with the right to write the status may have written anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from logpipeline_operator.cluster.objects import TIME_FORMAT

# The schema allows no more collectors.
ASSIGNMENTS_MAX = 1024
TABLE_STREAMS_MAX = 64
TABLE_FIGURES = ("path", "commit", "rows", "committedAt", "streams")


def condition(status: Mapping[str, Any] | None, kind: str) -> Mapping[str, Any]:
    """Return the condition *kind* of *status*; empty if it has none."""
    entries = (status or {}).get("conditions")
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping) and entry.get("type") == kind:
            return entry
    return {}


def identity(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of partitions, and the names of subject and streams."""
    kinds = {"partitions": int, "subject": str, "streams": str}
    return {name: status[name] for name, kind in kinds.items() if type(status.get(name)) is kind}


def books(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the missing and the lost lines, as text and in bytes."""
    found: dict[str, Any] = {
        name: status[name] for name in ("missing", "lost") if isinstance(status.get(name), str)
    }
    sizes = ("missingBytes", "lostBytes")
    return found | {name: status[name] for name in sizes if _is_count(status.get(name))}


def figures(status: Mapping[str, Any], name: str, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Return the fields *kinds* of the object *name* whose values have these types."""
    there = status.get(name)
    values = there if isinstance(there, Mapping) else {}
    return {key: values[key] for key, kind in kinds.items() if type(values.get(key)) is kind}


def selector(status: Mapping[str, Any]) -> str:
    """Return the labels of the collectors' pods."""
    text = _collectors(status).get("selector")
    return text if isinstance(text, str) else ""


def assignments(status: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the collectors with their partitions."""
    rows = _collectors(status).get("assignments")
    found: dict[str, dict[str, str]] = {}
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, Mapping):
            name, owned = row.get("name"), row.get("partitions")
            if isinstance(name, str) and isinstance(owned, str):
                found[name] = {"name": name, "partitions": owned}
    return list(found.values())[:ASSIGNMENTS_MAX]


def table(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of the table."""
    there = status.get("table")
    known = there if isinstance(there, Mapping) else {}
    found: dict[str, Any] = {
        name: known[name] for name in ("path", "lag", "missed") if isinstance(known.get(name), str)
    }
    found |= {name: known[name] for name in ("commit", "rows") if _is_count(known.get(name))}
    if time_of(known.get("committedAt")) is not None:
        found["committedAt"] = known["committedAt"]
    if isinstance(known.get("streams"), list):
        found["streams"] = _streams(known["streams"])
    return found


def _streams(rows: list[Any]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        if isinstance(row, Mapping):
            name, sequence = row.get("name"), row.get("sequence")
            if isinstance(name, str) and _is_count(sequence):
                found[name] = {"name": name, "sequence": sequence}
    return list(found.values())[:TABLE_STREAMS_MAX]


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def time_of(value: Any) -> datetime | None:
    """Return *value* as a time; None if it is not a time."""
    try:
        return datetime.strptime(value, TIME_FORMAT).replace(tzinfo=UTC)
    except (TypeError, ValueError):
        return None


def _collectors(status: Mapping[str, Any]) -> Mapping[str, Any]:
    collectors = status.get("collectors")
    return collectors if isinstance(collectors, Mapping) else {}
