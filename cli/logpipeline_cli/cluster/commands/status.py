"""``kubectl logpipeline status``: the resource's conditions, and what stands where in NATS."""

from __future__ import annotations

import argparse
import asyncio
import sys
from datetime import UTC, datetime
from typing import Any

from logpipeline_cli.cluster.checked import checked_text, unchecked
from logpipeline_cli.cluster.nats import reached
from logpipeline_cli.cluster.session import Found, find, session
from logpipeline_cli.commands import status
from logpipeline_cli.errors import explain
from logpipeline_cli.exits import EXIT_OK
from logpipeline_cli.output import print_json


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
