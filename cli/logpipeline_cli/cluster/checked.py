"""When an operator last looked at a pipeline: a status that is too old says nothing of now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from logpipeline.spec.status import UNCHECKED_AFTER_S
from logpipeline_cli.output import seconds_text


def checked_text(resource: dict[str, Any], now: datetime) -> str:
    """Return when and by which operator the pipeline was looked at, for people."""
    age_s, by = _age_s(resource, now), _operator(resource)
    if age_s is None:
        return "no operator has looked at it yet"
    return f"last checked {seconds_text(max(age_s, 0.0))} ago by {by}"


def unchecked(resource: dict[str, Any], now: datetime) -> str | None:
    """Return a warning, with what to do, if no operator has looked at the pipeline for too long;
    else None.
    """
    age_s, by = _age_s(resource, now), _operator(resource)
    metadata = resource["metadata"]
    if age_s is None:
        # A moment ago made, it is not overdue.
        age_s = (now - _time(metadata["creationTimestamp"])).total_seconds()
        by = "its operator"
    if age_s <= UNCHECKED_AFTER_S:
        return None
    what = f"no operator has looked at it for {seconds_text(age_s)}: the conditions are out of date"
    if "deletionTimestamp" in metadata and metadata.get("finalizers"):
        held = ", ".join(metadata["finalizers"])
        return (
            f"{what}, and it is being deleted and waits for {held}; start {by}, or take the "
            f"finalizer off: kubectl -n {metadata['namespace']} patch logpipeline "
            f'{metadata["name"]} --type=merge -p \'{{"metadata":{{"finalizers":null}}}}\''
        )
    return f"{what}; look at the pods of {by}"


def _age_s(resource: dict[str, Any], now: datetime) -> float | None:
    written = (resource.get("status") or {}).get("lastChecked")
    return (now - _time(written)).total_seconds() if written else None


def _operator(resource: dict[str, Any]) -> str:
    return str((resource.get("status") or {}).get("checkedBy") or "its operator")


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
