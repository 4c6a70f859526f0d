"""``kubectl logpipeline status``: the resource's conditions, and what stands where in NATS."""

from __future__ import annotations

import argparse
import asyncio
import sys
from datetime import UTC, datetime
from typing import Any

from logpipeline.spec.crd import UNCHECKED_AFTER_S
from logpipeline_cli.cluster.nats import reached
from logpipeline_cli.cluster.session import Found, find, session
from logpipeline_cli.commands import status
from logpipeline_cli.errors import explain
from logpipeline_cli.exits import EXIT_OK
from logpipeline_cli.output import print_json, seconds_text


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


def run(args: argparse.Namespace) -> int:
    """Print the status once, or each second with --watch; with --check its problems."""
    with session(args) as cluster:
        found = find(cluster, args.pipeline)
        is_json = args.output == "json"
        try:
            with reached(found, args.nats, only_looks=True) as target:
                if args.check:
                    known = [overdue] if (overdue := unchecked(found.resource, _now())) else []
                    return asyncio.run(status.check(target, as_json=is_json, known=known))
                more = _watched(found) if args.watch else lambda: _known(found.resource)
                asyncio.run(status.show(target, as_json=is_json, watch=args.watch, more=more))
        except Exception as error:
            # What the operator found says most where NATS cannot be asked.
            if explain(error) is not None:
                _print(_known(found.resource), is_json=is_json)
            raise
    return EXIT_OK


def _watched(found: Found) -> status.More:
    return lambda: _known(found.refresh())


def _known(resource: dict[str, Any]) -> dict[str, Any]:
    seen = resource.get("status") or {}
    overdue = unchecked(resource, _now())
    return {
        "checked": checked_text(resource, _now()),
        **({"unchecked": overdue} if overdue else {}),
        "conditions": seen.get("conditions") or [],
        "generation": resource["metadata"].get("generation"),
        "observedGeneration": seen.get("observedGeneration"),
        **({"table": seen["table"]} if "table" in seen else {}),
    }


def _now() -> datetime:
    return datetime.now(UTC)


def _print(known: dict[str, Any], *, is_json: bool) -> None:
    if is_json:
        print_json(known)
    else:
        warning = [f"Warning: {known['unchecked']}"] if "unchecked" in known else []
        lines = [known["checked"], *warning, *status.conditions_text(known["conditions"])]
        print("\n".join(lines))
    sys.stdout.flush()
