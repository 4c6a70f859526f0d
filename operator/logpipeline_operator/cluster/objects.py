"""Reads the fields that all Kubernetes objects have in common. Any of them may be missing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

# How Kubernetes writes times.
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def labels_of(there: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of *there*."""
    return there["metadata"].get("labels") or {}


def annotations_of(there: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations of *there*."""
    return there["metadata"].get("annotations") or {}


def is_ending(there: Mapping[str, Any]) -> bool:
    """Return whether *there* is being deleted: it stays until its finalizers have run."""
    return "deletionTimestamp" in there["metadata"]


def is_owned_by(there: Mapping[str, Any], uid: str, *, as_controller: bool = False) -> bool:
    """Return whether the object *uid* is an owner of *there*, or its controller."""
    return any(
        owner.get("uid") == uid and (not as_controller or owner.get("controller"))
        for owner in there["metadata"].get("ownerReferences") or []
    )


def has_controller(there: Mapping[str, Any]) -> bool:
    """Return whether any object is the controller of *there*."""
    return any(owner.get("controller") for owner in there["metadata"].get("ownerReferences") or [])


def condition(there: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    """Return the condition *type_* in the status of *there*; empty if it has none."""
    conditions = (there.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each.get("type") == type_), {})


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether *pod* reports that it is ready; one that is being deleted may still do so."""
    return bool(condition(pod, "Ready").get("status") == "True")


def seconds_of(text: str) -> float:
    """Return the time *text*, as Kubernetes writes it, in seconds since the epoch."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def time_text(at: datetime) -> str:
    """Return *at* as Kubernetes writes times."""
    return at.astimezone(UTC).strftime(TIME_FORMAT)
